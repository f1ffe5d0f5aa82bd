"""page.py LAZULI WORK: starts `lazuli serve` and uses its page in a real browser, for tests/cli/page.sh.

Prints a line for each failed check, and the counts at the end. With a third argument, a folder, it writes the pictures of
docs/server.md there instead.
"""
import base64
import gzip
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import urllib.request

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "serve")]
import browser  # noqa: E402
import server  # noqa: E402
from server import check  # noqa: E402

LAZULI, WORK = os.path.abspath(sys.argv[1]), sys.argv[2]
SHOTS = sys.argv[3] if len(sys.argv) > 3 else None
ROOT = pathlib.Path(__file__).resolve().parents[2]
AUDIT = (ROOT / "tests/page/audit.js").read_text()


class Server(server.Server):
    def __init__(self, state, *options, port=0):
        self.options, self.state = options, state
        super().__init__(LAZULI, WORK, "--state", f"{WORK}/{state}", *options, port=port)
        self.url += "/"
        self.wait()

    def get(self, path, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", path, headers={name.replace("_", "-"): text for name, text in headers.items()})
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer, data

    def json(self, path):
        return json.loads(self.get("/api/v1" + path)[1])


# ---- what needs no browser ----


def test_files(s):
    """The files of web, and how they are served."""
    files = list((ROOT / "web").iterdir())
    check(sum(f.stat().st_size for f in files) < 150_000, "the page has less than 150 KB", sum(f.stat().st_size for f in files))
    for f in files:
        text = f.read_text()
        if f.suffix == ".js":
            check(text.count("\n") <= 300, "a module has at most 300 lines", f.name, text.count("\n"))
            check(not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text), "no markup from data", f.name)
        check(not re.search(r"https?://(?!www\.w3\.org/(2000/svg|1999/02/22-rdf-syntax-ns#))", text), "nothing from elsewhere", f.name)  # these are names
        answer, data = s.get("/page/" + f.name)
        check(answer.status == 200 and data == f.read_bytes(), "a file", f.name, answer.status)
        packed, bytes_ = s.get("/page/" + f.name, accept_encoding="gzip, deflate")
        check(packed.getheader("content-encoding") == "gzip" and gzip.decompress(bytes_) == data, "compressed", f.name)
        check(packed.getheader("etag") != answer.getheader("etag"), "another tag", f.name)
        again, data = s.get("/page/" + f.name, if_none_match=answer.getheader("etag"))
        check(again.status == 304 and not data, "not again", f.name, again.status)
    answer, data = s.get("/")
    check(answer.getheader("content-type") == "text/html; charset=utf-8" and data == (ROOT / "web/index.html").read_bytes(), "the page")
    policy = answer.getheader("content-security-policy")
    check("default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy, "its policy", policy)
    check(answer.getheader("x-content-type-options") == "nosniff" and answer.getheader("cache-control") == "no-cache", "its headers")
    for path in ("/page/none.js", "/page/..", "/page/%2e%2e/x", "/page/a/b"):
        check(s.get(path)[0].status in (400, 404), "no other file", path)


# ---- helpers ----

DONE = "document.querySelector('#frames .frame:not(.waiting) > img')?.complete && !document.getElementById('bar').hidden"
SHOWN = "document.querySelector('#frames .frame > img').src.split('/').at(-2)"


def set_field(t, name, value):
    t.js(f"""(() => {{ const e = document.getElementById('{name}'); e.value = {json.dumps(str(value))};
        e.dispatchEvent(new Event(e.tagName === 'SELECT' ? 'change' : 'input', {{bubbles: true}})); }})()""")


def make(t, prompt, seconds=60):
    """Types a prompt, presses Make, and waits for the picture. Returns its id."""
    before = t.js("document.querySelector('#days .thumb')?.dataset.id ?? ''")
    t.click("#prompt")
    t.key("a", control=True)
    t.type(prompt)
    t.click("#make")
    good = t.until(f"document.querySelector('#days .thumb')?.dataset.id !== {json.dumps(before)} && {DONE}", seconds)
    check(good, "a picture", prompt, t.js("document.getElementById('problem-text').textContent"))
    return t.js(SHOWN) if good else None


def idle(t):
    return t.until("document.getElementById('queue').hidden")


def audit(t, where):
    for problem in t.js(AUDIT):
        check(False, where, problem)
    check(True, where)
    roles = {"button", "textbox", "combobox", "radio", "slider", "spinbutton", "checkbox", "searchbox", "link", "dialog", "menuitem", "progressbar",
             "group", "toolbar", "region", "image"}
    for role, name in t.names():
        if role in roles and not name:
            check(role in ("group", "image", "region"), f"{where}: a {role} has a name")


# ---- the fifteen ----


def test_first(s, t):
    """One box, one button; the preview; the gallery; the same seed gives the same bytes."""
    t.until("/about/.test(document.getElementById('cost').textContent) || /less/.test(document.getElementById('cost').textContent)", 10)
    cost = t.js("document.getElementById('cost').textContent")
    check(re.search(r"256 × 256 · 0\.07 MP · \d+ MiB · (about|less)", cost), "what it costs, before anything was made", cost)
    check(t.js("document.activeElement === document.body && !document.getElementById('more').checkVisibility()"), "settings are folded away")
    t.click("#make")
    check("Write what" in t.until("document.getElementById('problem').hidden ? '' : document.getElementById('problem-text').textContent", 3), "an empty prompt")
    t.click("#examples li:nth-child(2) button")
    check(t.js("document.getElementById('prompt').value") == "two red apples", "an example")
    first = make(t, "a fox in 3d style")
    answer = s.json("/pictures/" + first)
    check(answer["settings"]["prompt"] == "a fox in 3d style" and answer["width"] == 256, "it is the server's", answer)
    check(t.js("document.querySelector('#frames img').alt") == "a fox in 3d style", "its alt text")
    check(t.js("document.querySelector('#frames img').naturalWidth") == 256, "it is shown")

    # The preview changes while the picture forms.
    t.click("#more-open")
    set_field(t, "steps", 180)
    t.js("""window.seen = new Set(); window.texts = new Set(); window.watcher = setInterval(() => {
        const e = document.querySelector('#frames .forming'); if (e?.src && !e.hidden) window.seen.add(e.src);
        if (!document.getElementById('progress').hidden) window.texts.add(document.getElementById('stage-text').textContent); }, 20)""")
    make(t, "a cat")
    seen, texts = t.js("clearInterval(window.watcher) ?? [window.seen.size, [...window.texts]]")
    check(seen >= 3, "the preview changes", seen)
    check(any(re.match(r"Step \d+ of 180", text) for text in texts), "the step is told", texts)
    set_field(t, "steps", "")

    # The seed of the first picture, fixed, gives the same bytes.
    t.click(f"[data-id={first}]")
    t.until(f"{DONE} && {SHOWN} === '{first}'")
    t.key("s")
    check(t.js("document.getElementById('seed').value") == str(answer["seed"]), "its seed is in the form", t.js("document.getElementById('seed').value"))
    check(t.js("document.getElementById('seed-mode').getAttribute('aria-pressed')") == "true", "the seed is fixed")
    second = make(t, "a fox in 3d style")
    files = [s.get(f"/api/v1/pictures/{i}/file")[1] for i in (first, second)]
    check(first != second and files[0] == files[1], "the same bytes")
    check(len(files[0]) > 1000, "it is a picture", len(files[0]))
    t.click("#seed-mode")
    check(t.js("document.getElementById('seed').value") == "", "a new seed again")
    t.click("#more-open")
    return first


def test_queue(s, t):
    """Waiting, positions, cancelling, reloading meanwhile, errors of the server."""
    t.click("#more-open")
    set_field(t, "steps", 200)
    t.click("input[value='16:9']")
    check(t.until("document.getElementById('cost').textContent.startsWith('512 × 256')"), "a size of the training", t.js("document.getElementById('cost').textContent"))
    t.click("#prompt")
    for prompt in ("a dog", "a whale", "a tree", "a car"):
        t.key("a", control=True)
        t.type(prompt)
        t.key("Enter", control=True)
        t.until(f"[...document.querySelectorAll('#queue-list b')].some((b) => b.textContent === '{prompt}')")
    check(t.until("document.querySelectorAll('#queue-list li').length === 4"), "four jobs", t.js("document.getElementById('queue-list').textContent"))
    check(t.until("document.getElementById('queue-title').textContent === 'Queue, 3 waiting'", 5), "three wait", t.js("document.getElementById('queue-title').textContent"))
    check("Waiting" in t.js("document.getElementById('stage-text').textContent"), "the stage says so", t.js("document.getElementById('stage-text').textContent"))
    t.open(s.url)  # a reload finds them
    check(t.until("document.querySelectorAll('#queue-list li').length === 4"), "after a reload")
    check(t.until("!document.getElementById('progress').hidden && /Step/.test(document.getElementById('stage-text').textContent)", 10), "the running one is shown")
    t.click("#queue-list li:nth-child(2) [aria-label^=Cancel]")
    check(t.until("document.querySelectorAll('#queue-list li').length === 3"), "one is cancelled")
    t.click("#queue-clear")
    check(t.until("document.querySelectorAll('#queue-list li').length === 1"), "all that wait are cancelled")
    begun = time.time()
    t.click("#cancel")
    check(idle(t) and time.time() - begun < 5, "the running one is cancelled", time.time() - begun)
    states = [j["status"] for j in s.json("/jobs?limit=4")["jobs"]]
    check(states == ["cancelled"] * 4, "the server knows", states)
    t.click("#more-open")
    set_field(t, "steps", 999)
    check(t.until("/^Steps: .*200/.test(document.getElementById('remark').textContent)"), "it is told before", t.js("document.getElementById('remark').textContent"))
    before = t.js("document.getElementById('prompt').value")
    set_field(t, "prompt", "a wombat")
    set_field(t, "steps", 4)
    check(t.until("""document.getElementById('remark').textContent.startsWith('This model does not know "wombat", and the prompt names no thing that it knows.')"""),
          "unknown words", t.js("document.getElementById('remark').textContent"))
    set_field(t, "prompt", before)
    set_field(t, "steps", 999)
    t.click("#make")
    text = t.until("document.getElementById('problem').hidden ? '' : document.getElementById('problem-text').textContent")
    check(text and "steps" in text, "the server's sentence", text)
    check(t.js("!document.getElementById('problem-copy').hidden"), "it can be copied")
    t.click("#reset")
    t.click("#problem-close")
    check(t.js("document.getElementById('steps').value + document.querySelector('[name=shape]:checked').value") == "1:1", "the model's own settings")
    t.js("document.getElementById('make').click(); document.getElementById('make').click()")
    t.until(DONE)
    idle(t)
    check(len([j for j in s.json("/jobs")["jobs"] if j["settings"]["prompt"] == "a car" and j["status"] == "completed"]) == 1, "two clicks are one job")


def texts_of(s, data):
    """The texts of a picture file, by the server."""
    body = json.dumps({"image": base64.b64encode(data).decode()}).encode()
    asked = urllib.request.Request(f"{s.url}sdapi/v1/png-info", body, {"content-type": "application/json"})
    return json.load(urllib.request.urlopen(asked))["items"]


def test_rating(s, t, first, n):
    """Stars by key and by mouse, shown and searched for."""
    t.key("4")
    check(t.until(f"document.querySelector('[data-id={first}] .rated')?.textContent === '★★★★'") and s.json("/pictures/" + first)["rating"] == 4, "four stars")
    check("4 of 5 stars" in t.js(f"document.querySelector('[data-id={first}]').getAttribute('aria-label')"), "a screen reader hears them")
    set_field(t, "rated", 4)
    check(t.until("document.querySelectorAll('.thumb').length === 1"), "only those with four stars")
    set_field(t, "rated", 5)
    check(t.until("document.getElementById('no-pictures').textContent === 'No picture has that many stars.'"), "none with five")
    set_field(t, "rated", 0)
    t.until(f"document.querySelectorAll('.thumb').length === {n}")
    t.click(f"[data-id={first}]")
    t.until(f"{SHOWN} === '{first}'")
    t.key("i")
    t.until("document.getElementById('details').open")
    check(t.js("document.querySelectorAll('.stars .lit').length") == 4, "four are lit")
    t.click("[aria-label='2 stars']")
    check(t.until("document.querySelectorAll('.stars .lit').length === 2") and t.js("document.activeElement.getAttribute('aria-label')") == "2 stars", "two, and the focus stays")
    t.click("[aria-label='2 stars']")
    check(t.until("!document.querySelector('.rated')") and s.json("/pictures/" + first)["rating"] == 0, "the same star again takes them away")
    t.key("3")
    t.until("!!document.querySelector('.rated')")
    t.key("Escape")


def test_gallery(s, t, first):
    """Search, pin, delete and undo, details, four more, downloads."""
    n = t.js("document.querySelectorAll('.thumb').length")
    check(n == len(s.json("/pictures")["pictures"]) and n >= 4, "all pictures", n)
    check(t.js("document.querySelector('.day h3').textContent") == "Today", "by day")
    t.click("#search")
    t.type("FOX")
    check(t.until("document.querySelectorAll('.thumb').length === 2"), "search", t.js("document.querySelectorAll('.thumb').length"))
    t.type("xyz")
    check(t.until("document.getElementById('no-pictures').textContent.includes('FOXxyz')"), "nothing found")
    t.key("a", control=True)
    t.key("Delete")
    t.until(f"document.querySelectorAll('.thumb').length === {n}")
    t.key("Escape")
    t.click(f"[data-id={first}]")
    t.until(f"{SHOWN} === '{first}'")
    t.key("p")
    check(t.until("document.getElementById('do-pin').getAttribute('aria-pressed') === 'true'") and s.json("/pictures/" + first)["pinned"], "pinned")
    t.click("#only-pinned")
    check(t.until("document.querySelectorAll('.thumb').length === 1"), "only pinned ones")
    t.click("#only-pinned")
    t.until(f"document.querySelectorAll('.thumb').length === {n}")

    test_rating(s, t, first, n)

    # Details, and using them
    t.key("i")
    text = t.until("document.getElementById('details').open && document.getElementById('details-body').textContent")
    seed = s.json("/pictures/" + first)["seed"]
    check(text and str(seed) in text and "256 × 256" in text and "a fox in 3d style" in text, "details", text)
    audit(t, "details")
    t.click("[aria-label='Use this prompt']")
    check(t.js("document.getElementById('prompt').value") == "a fox in 3d style", "its prompt")
    t.click("[aria-label='Use this seed']")
    check(t.js("document.getElementById('seed').value") == str(seed), "its seed")
    t.key("Escape")
    check(t.until("!document.getElementById('details').open && document.activeElement.id === 'do-info'", 3), "closed, and the focus is back")
    line = t.js("import('./page/details.js').then((m) => import('./page/viewer.js').then((v) => m.commandLine(v.shownPicture())))")
    check(line == f"lazuli 'a fox in 3d style' -W 256 -H 256 -S {seed} -o lazuli-{seed}.png", "the command", line)
    words = line.replace("'a fox in 3d style'", "@").split()
    words = [LAZULI] + ["a fox in 3d style" if word == "@" else word for word in words[1:]]
    subprocess.run([*words, "-q"], cwd=WORK, check=True, env={k: v for k, v in os.environ.items() if k != "LAZULI_MODEL"})
    with open(f"{WORK}/lazuli-{seed}.png", "rb") as file:
        check(file.read() == s.get(f"/api/v1/pictures/{first}/file")[1], "the command makes the same bytes")

    # Downloads
    t.send("Browser.setDownloadBehavior", behavior="allow", browserContextId=t.context, downloadPath=WORK)
    made = s.get(f"/api/v1/pictures/{first}/file")[1]
    with open(f"{WORK}/made.png", "wb") as file:
        file.write(made)
    original = texts_of(s, made)
    check(json.loads(original["lazuli"])["seed"] == seed, "the settings in the file", original)
    for how, ending, head, bare in (("original", "png", b"\x89PNG", False), ("jpeg", "jpg", b"\xff\xd8", False), ("webp", "webp", b"RIFF", False),
                                    ("png", "png", b"\x89PNG", True), ("jpeg", "jpg", b"\xff\xd8", True), ("webp", "webp", b"RIFF", True)):
        name = f"{WORK}/lazuli-{seed}.{ending}"
        if os.path.exists(name):
            os.remove(name)
        t.click("#do-save")
        t.until("document.getElementById('save-menu').matches(':popover-open')")
        t.click(f"[data-save={how}]" + ("[data-bare]" if bare else ":not([data-bare])"))
        end = time.time() + 10
        while time.time() < end and not (os.path.exists(name) and os.path.getsize(name)):
            time.sleep(0.05)
        data = open(name, "rb").read() if os.path.exists(name) else b""
        check(data.startswith(head), "a download", how, bare)
        check(texts_of(s, data) == ({} if bare else original), "its texts", how, bare, texts_of(s, data))
        if ending != "png":  # the library reads its pixels, and a browser too
            shown = subprocess.run([LAZULI, "compare", "--json", name, f"{WORK}/made.png"], capture_output=True, text=True)
            check(shown.returncode < 2 and json.loads(shown.stdout)["psnr"] > 25, "its pixels", how, shown.stdout[:200], shown.stderr)
            blob = f"new Blob([Uint8Array.from(atob('{base64.b64encode(data).decode()}'), (c) => c.charCodeAt(0))], {{type: 'image/{how}'}})"
            inside = None if bare else t.js(f"import('./page/texts.js').then((m) => m.settingsInside({blob}))")
            check(bare or inside == json.loads(original["lazuli"]), "the page reads them", how, inside)

    # Deleting, and taking it back
    t.click(f"[data-id={first}]")
    t.key("Delete")
    check(t.until(f"!document.querySelector('[data-id={first}]')") and not s.json("/pictures/" + first).get("error"), "it leaves the gallery, not yet the server")
    t.key("z")
    check(t.until(f"document.querySelector('[data-id={first}]') && {SHOWN} === '{first}'"), "undo")
    other = t.js("document.querySelector('.thumb').dataset.id")
    t.click(f"[data-id={other}]")
    t.key("Delete")
    t.until(f"!document.querySelector('[data-id={other}]')")
    t.open(s.url)  # leaving the page deletes for good
    check(t.until(f"fetch('api/v1/pictures/{other}').then((a) => a.status === 410)"), "it is gone", other)

    # Four more, as a grid
    t.click(f"[data-id={first}]")
    t.until(f"{SHOWN} === '{first}'")
    t.key("v")
    check(t.until("document.querySelectorAll('#frames .pick').length === 4", 60), "a grid of four")
    seeds = sorted(p["seed"] for p in s.json("/pictures?limit=4")["pictures"])
    check(seeds == [seed + i for i in (1, 2, 3, 4)], "the next seeds", seeds)
    idle(t)
    t.click("#frames .frame:nth-child(3) .pick")
    check(t.until(f"{DONE} && {SHOWN}"), "one of them")


def test_compare(s, t):
    t.click(".thumb:nth-child(2)")
    t.until(f"{DONE} && {SHOWN} === document.querySelectorAll('.thumb')[1].dataset.id")
    t.key("c")
    check(t.until("document.querySelector('#compare .pair.slider')?.checkVisibility()"), "compare")
    t.js("(() => { const e = document.querySelector('#compare input'); e.value = 20; e.dispatchEvent(new Event('input')); })()")
    check(t.js("getComputedStyle(document.querySelector('#compare img')).clipPath") == "inset(0px 80% 0px 0px)", "the slider moves", t.js("getComputedStyle(document.querySelector('#compare img')).clipPath"))
    t.click("#compare .row button:nth-child(2)")
    check(t.js("document.querySelectorAll('#compare .side img').length") == 2, "side by side")
    t.click(".thumb:nth-child(4)")
    chosen = t.js("document.querySelectorAll('.thumb')[3].dataset.id")
    check(t.until(f"document.querySelectorAll('#compare img')[1]?.src.includes('{chosen}')", 5), "with another picture of the gallery")
    t.key("Escape")
    check(t.js("document.getElementById('compare').hidden && document.getElementById('frames').checkVisibility()"), "closed")


def test_images(s, t, first):
    """A start image by dropping, and a mask: what is not painted stays as it is, byte by byte."""
    whole = s.get(f"/api/v1/pictures/{first}/file")[1]
    middle = len(whole) // 2
    wrong = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1:]
    before = len(os.listdir(f"{WORK}/{s.state}/uploads"))
    for name, data in (("notes.txt", b"hello"), ("fake.png", b"no picture"), ("empty.png", b""), ("cut.png", whole[:middle]), ("wrong.png", wrong)):
        with open(f"{WORK}/{name}", "wb") as file:
            file.write(data)
        t.drop(f"{WORK}/{name}", "#stage")
        check(t.until(f"[...document.querySelectorAll('.toast p')].some((p) => p.textContent === '{name} is not a PNG, JPEG or WebP picture, or it is damaged.')", 10), "a wrong file is named", name)
    check(t.js("document.getElementById('images').hidden"), "none is used")
    check(len(os.listdir(f"{WORK}/{s.state}/uploads")) == before, "none was sent")
    t.drop(f"{WORK}/wrong.png", "#stage")
    t.js("new Promise((resolve) => setTimeout(resolve, 300))")
    texts = t.js("[...document.querySelectorAll('.toast p')].map((p) => p.textContent)")
    check(len(texts) == len(set(texts)) <= 3 and texts[-1].startswith("wrong.png"), "each message once", texts)
    # A damage that the browser does not see
    t.js("(window.decoded = window.createImageBitmap, window.createImageBitmap = async () => ({ close() {} }))")
    t.drop(f"{WORK}/wrong.png", "#stage")
    check(t.until("document.querySelectorAll('#images .image').length === 1"), "it is sent")
    set_field(t, "prompt", "make it blue")
    t.click("#make")
    text = t.until("document.getElementById('problem').hidden ? '' : document.getElementById('problem-text').textContent")
    check(text and text.startswith("wrong.png: the picture is damaged: "), "the picture that failed names the file", text)
    check(t.until("document.querySelector('#queue-list .failed .soft')?.textContent.startsWith('wrong.png: ')", 5), "so does the list")
    t.click("#queue-list [aria-label^=Forget]")
    t.click("#problem-close")
    t.click("#images [aria-label^=Remove]")
    t.js("window.createImageBitmap = window.decoded")
    with open(f"{WORK}/start.png", "wb") as file:
        file.write(whole)
    t.drop(f"{WORK}/start.png", "#stage")
    check(t.until("document.querySelectorAll('#images .image').length === 1"), "an image was dropped")
    check(t.js("document.querySelector('#images select').value") == "look", "the demo model looks at it")
    t.js("(() => { const e = document.querySelector('#images select'); e.value = 'start'; e.dispatchEvent(new Event('change')); })()")
    check(t.until("[...document.querySelectorAll('.toast p')].some((p) => p.textContent.includes('made by Lazuli'))"), "its settings are offered")
    t.click("#more-open")
    check(t.js("document.getElementById('strength-field').checkVisibility()"), "its strength")
    set_field(t, "strength", 0.5)
    made = make(t, "a dog in 3d style")
    settings = s.json("/pictures/" + made)["settings"]
    check(settings["strength"] == 0.5 and settings["images"][0].startswith("upload:"), "it was used", settings)
    t.click("#images [aria-label^=Remove]")
    check(t.js("document.getElementById('images').hidden && !document.getElementById('strength-field').checkVisibility()"), "removed")
    t.click("#more-open")

    t.click(f"[data-id={first}]")
    t.until(f"{SHOWN} === '{first}'")
    t.key("m")
    check(t.until("!document.getElementById('painter').hidden && document.querySelector('.sheet-picture img').complete"), "the mask is open")
    audit(t, "mask")
    left, top, width, height = t.js("(() => { const b = document.querySelector('#painter canvas').getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()")
    t.mouse("mouseMoved", left + width * 0.1, top + height * 0.2)
    t.mouse("mousePressed", left + width * 0.1, top + height * 0.2, 1)
    for i in range(1, 9):
        t.mouse("mouseMoved", left + width * (0.1 + 0.03 * i), top + height * 0.2, 1)
    t.mouse("mouseReleased", left + width * 0.34, top + height * 0.2)
    count = "(() => { const c = document.querySelector('#painter canvas'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 127; return n; })()"
    painted = t.until(count, 5)
    check(painted and 500 < painted < 256 * 64, "painted", painted)
    t.key("z", control=True)
    check(t.js(count) == 0, "undone")
    for key in ("]", "["):
        t.key(key)
    t.js("document.querySelector('#painter canvas').focus()")
    for key in ("ArrowUp", "ArrowUp", "ArrowUp", " "):
        t.key(key)
    painted = t.js(count)
    check(painted > 200, "painted by the keyboard", painted)
    t.key("Enter")
    check(t.until("document.getElementById('painter').hidden && document.querySelector('#images .role')?.textContent === 'Repaint a part'"), "the mask is an image of the form")
    made = make(t, "a banana")
    same = t.js(f"""(async () => {{
        const pixels = async (id) => {{ const b = await createImageBitmap(await (await fetch(`api/v1/pictures/${{id}}/file`)).blob()), c = new OffscreenCanvas(b.width, b.height), x = c.getContext('2d'); x.drawImage(b, 0, 0); return x.getImageData(0, 0, b.width, b.height).data; }};
        const [a, b] = await Promise.all([pixels('{first}'), pixels('{made}')]);
        let changed = 0, corner = 0;
        for (let i = 0; i < a.length; i += 4) {{ const d = a[i] !== b[i] || a[i + 1] !== b[i + 1] || a[i + 2] !== b[i + 2]; changed += d; corner += d && i / 4 > 200 * 256; }}
        return [a.length === b.length, changed, corner]; }})()""")
    check(same[0] and 0 < same[1] <= painted * 1.6 + 600 and same[2] == 0, "only the painted part changed", same, painted)
    t.click("#images [aria-label^=Remove]")


def test_keyboard(t):
    """Everything in reach of the tab key, in the order of the page, each with a visible focus."""
    t.js("document.activeElement.blur(); window.scrollTo(0, 0)")
    t.open(t.js("location.href"))
    t.until("!!document.querySelector('.thumb')")
    t.js("document.querySelector('.thumb').click()")
    t.until(DONE)
    t.js("document.activeElement.blur()")
    order = []
    for _ in range(40):
        t.key("Tab")
        here = t.js("""(() => { const e = document.activeElement, s = getComputedStyle(e.matches('[type=radio]') ? e.parentElement : e);
            return [e.id || e.className || e.tagName, e !== document.body && s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2 || e.matches('.skip')]; })()""")
        if here[0] == "BODY" or here[0] in order:
            break
        order.append(here[0])
        check(here[1], "the focus is visible", here[0])
    wanted = ["skip", "theme", "help-open", "do-pin", "do-delete", "prompt", "make", "seed-mode", "more-open", "only-pinned", "search", "thumb"]
    places = [order.index(name) if name in order else -1 for name in wanted]
    check(-1 not in places and places == sorted(places), "the order of the tab key", order)
    t.js("document.activeElement.blur()")
    t.key("?")
    check(t.js("document.getElementById('help').open"), "help")
    audit(t, "help")
    t.key("Escape")
    t.until("!document.getElementById('help').open")
    first = t.js(SHOWN)
    t.key("ArrowRight")
    check(t.until(f"{SHOWN} !== '{first}'"), "the older picture")
    t.key("ArrowLeft")
    check(t.until(f"{SHOWN} === '{first}'"), "the newer picture")
    t.key("/")
    check(t.js("document.activeElement.id") == "prompt", "to the prompt")
    t.key("a", control=True)
    t.type("a star")
    before = t.js("document.querySelectorAll('.thumb').length")
    t.key("Enter", control=True)
    check(t.until(f"document.querySelectorAll('.thumb').length > {before} && {DONE}"), "made without a mouse")
    t.js("document.querySelector('.thumb[tabindex=\"0\"]').focus()")
    t.key("ArrowRight")
    t.key("Enter")
    check(t.until(f"{SHOWN} === document.querySelectorAll('.thumb')[1].dataset.id"), "the second of the gallery")
    t.js("document.getElementById('do-reuse').focus()")
    t.key("Enter")
    check(t.until("document.activeElement.dataset.use === 'all'"), "a menu")
    t.key("ArrowDown")
    t.key("Enter")
    check(t.until("document.activeElement.id === 'do-reuse'"), "and back")
    # Keys of one letter can be switched off.
    t.js("document.getElementById('single-keys').click(); document.activeElement.blur()")
    t.key("i")
    check(not t.js("document.getElementById('details').open"), "no key of a letter")
    t.js("document.getElementById('single-keys').click()")


def test_phone(b, s):
    t = browser.Tab(b, s.url, 390, 844)
    t.size(390, 844, phone=True)
    t.open(s.url)
    t.until("!!document.querySelector('.thumb')")
    audit(t, "phone, nothing chosen")
    t.click("#more-open")
    audit(t, "phone, settings")
    t.click("#more-open")
    made = make(t, "a heart")
    check(made, "a picture on a phone")
    audit(t, "phone, a picture")
    first, prompt = t.js("(window.scrollTo(0, 0), ['#frames img', '#prompt'].map((s) => document.querySelector(s).getBoundingClientRect().top))")
    check(0 <= first < 300 and prompt < 844, "the picture and the prompt come first", first, prompt)
    x, y = t.place("#mat")
    for kind, at in (("touchStart", x + 80), ("touchMove", x), ("touchMove", x - 80)):
        t.send("Input.dispatchTouchEvent", type=kind, touchPoints=[{"x": at, "y": y}])
    t.send("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    check(t.until(f"{SHOWN} !== '{made}'", 5), "a swipe goes to the next")
    t.click("#do-info")
    check(t.until("document.getElementById('details').matches(':modal')"), "details are a sheet")
    t.click("#details [data-close]")
    check(t.errors() == [], "no errors on a phone", t.errors())
    t.close()


def test_models(b):
    """Models that look at images, or have guidance, get these fields; others do not."""
    s = Server("models", "-m", "models/demo", "-m", "tests/data/flux2/A", "-m", "tests/data/flux2/C")
    t = browser.Tab(b, s.url)
    t.click("#more-open")
    field = "(n) => document.getElementById(n).checkVisibility()"
    check(t.js(f"['model', 'guidance', 'negative'].map({field})") == [True, False, False], "the demo model", t.js(f"['model', 'guidance', 'negative'].map({field})"))
    set_field(t, "model", "C")
    check(t.js(f"['guidance', 'negative'].map({field})") == [True, True], "a guided model")
    set_field(t, "model", "A")
    for name in ("ref1", "ref3"):
        t.drop(str(ROOT / f"tests/data/flux2/{name}.png"), "#prompt")
    check(t.until("document.querySelectorAll('#images .image').length === 2"), "two references")
    check(t.js("[...document.querySelectorAll('#images select')].map((e) => e.value)") == ["look", "look"], "it looks at them")
    names = t.js("[...document.querySelectorAll('#images .name')].map((e) => e.textContent)")
    t.click("#images .image:nth-child(2) .back")
    check(t.js("[...document.querySelectorAll('#images .name')].map((e) => e.textContent)") == names[::-1], "their order")
    set_field(t, "steps", 1)
    t.click("input[value=own]")
    set_field(t, "width", 64)
    set_field(t, "height", 64)
    made = make(t, "both")
    settings = s.json("/pictures/" + made)["settings"]
    check(len(settings["images"]) == 2 and "strength" not in settings and settings["model"] == "A", "both were sent", settings)
    errors = [e for e in t.errors() if "503" not in e]  # a model that is not loaded is not planned with
    check(errors == [], "no errors with other models", errors)
    t.close()
    s.stop()


def test_sizes(b):
    """No shape and no image asks for more pixels than the server makes."""
    s = Server("sizes", "-m", "models/demo", "-m", "tests/data/flux2/A", "--max-pixels", "40000")
    s.get("/readyz")
    t = browser.Tab(b, s.url)
    for model in ("demo", "A"):
        t.until(f"import('./page/state.js').then(({{ modelOf }}) => modelOf('{model}').known)")
        sizes = t.js(f"""(async () => {{
            const {{ settings, size, fitShape, show }} = await import('./page/settings.js'), found = [];
            settings.model = '{model}';
            for (const shape of ['1:1', '3:2', '2:3', '16:9', '9:16'])
                for (const scale of ['0.25', '0.5', '1', '2', '4']) {{ Object.assign(settings, {{ shape, scale }}); found.push([shape, scale, size()]); }}
            for (const [w, h] of [[100, 100], [640, 480], [3000, 100]]) {{ fitShape(w, h); found.push(['image', w / h, size()]); }}
            Object.assign(settings, {{ shape: '1:1', scale: '1' }});
            show();
            return found; }})()""")
        more = [entry for entry in sizes if entry[2]["width"] * entry[2]["height"] > 40000 or entry[2]["width"] < 16 or entry[2]["height"] < 16]
        check(not more, "sizes that the server makes", model, more)
    set_field(t, "model", "demo")
    check(t.until("document.getElementById('cost').textContent.startsWith('192 × 192')", 10), "the next smaller square", t.js("document.getElementById('cost').textContent"))
    t.close()
    s.stop()


def test_unsent(s, t):
    """Make, while the server is away; it stays away."""
    s.stop(signal.SIGKILL)
    text = "document.getElementById('problem').hidden ? '' : document.getElementById('problem-text').textContent"
    set_field(t, "prompt", "a heart")
    t.click("#make")
    check(t.until(f"({text}).startsWith('The server does not answer.')", 3), "the page says that nothing was sent", t.js(text))
    time.sleep(1)
    t.js("window.sent = 0, window.real = window.fetch, window.fetch = (...all) => { window.sent += all[1]?.method === 'POST' && all[0].endsWith('/jobs'); return window.real(...all); }")
    t.click("#make")
    check(t.until(f"({text}).startsWith('The server cannot be reached. If the picture is not in the queue')", 10), "and when it gives up", t.js(text))
    check(t.js("window.sent") <= 3, "a second press is the same picture", t.js("window.sent"))


def test_lost(b, s):
    """The connection breaks and comes back."""
    t = browser.Tab(b, s.url)
    n = t.until("document.querySelectorAll('.thumb').length")
    t.click(".thumb")
    t.until(DONE)
    s.stop(signal.SIGKILL)
    t.key("p")
    check(t.until("document.getElementById('problem-text').textContent === 'The server cannot be reached.' && !document.getElementById('problem').hidden", 10), "a press without a server")
    check(t.until("!document.getElementById('lost').hidden", 10), "the page says so")
    s = Server(s.state, *s.options, port=s.port)
    check(t.until("document.getElementById('lost').hidden", 20), "and that it is back")
    check(t.until("document.getElementById('problem').hidden", 5), "so the message goes")
    check(t.until(f"document.querySelectorAll('.thumb').length === {n}"), "with all pictures")
    test_unsent(s, t)
    s = Server(s.state, *s.options, port=s.port)
    check(t.until("document.getElementById('lost').hidden", 20), "it is back once more")
    check(t.js("!document.getElementById('problem').hidden"), "what was not sent is still told")
    check(len(s.json("/jobs?state=queued")["jobs"] + s.json("/jobs?state=in_progress")["jobs"]) == 0, "and was not sent")
    t.close()
    return s


def test_pause(s, t):
    """An administrator stops the queue."""
    title, stage = ("document.getElementById('%s').textContent" % name for name in ("queue-title", "stage-text"))
    check(s.call("POST", "/api/v1/queue/pause", {}, key="secret-two")[2]["paused"], "the queue is stopped")
    check(t.until(f"{title} === 'Queue, paused by an administrator'", 5), "the page says so at once", t.js(title))
    set_field(t, "prompt", "a heart")
    t.click("#make")
    check(t.until(f"{title} === 'Queue, 1 waiting, paused by an administrator'", 5), "also while a picture waits", t.js(title))
    check(t.until(f"{stage} === 'Paused by an administrator'", 5), "the stage too", t.js(stage))
    check(t.js("document.querySelector('#queue-list .soft').textContent + document.getElementById('stage-time').textContent") == "next, paused", "no time is told")
    check(t.js("document.getElementById('queue-pause').hidden"), "it cannot go on by this key")
    t.open(s.url)
    check(t.until(f"{title} === 'Queue, 1 waiting, paused by an administrator'"), "after a reload", t.js(title))
    s.call("POST", "/api/v1/queue/resume", {}, key="secret-two")
    check(t.until(f"document.getElementById('queue').hidden"), "it goes on", t.js(title))


def test_key(b):
    with open(f"{WORK}/keys", "w") as file:
        file.write("ada secret-one\nroot secret-two admin\n")
    os.chmod(f"{WORK}/keys", 0o600)
    s = Server("keyed", "--key-file", f"{WORK}/keys")
    t = browser.Tab(b, s.url)
    check(t.until("document.getElementById('lock').open"), "a key is asked for")
    t.click("#key")
    t.type("wrong-key")
    t.key("Enter")
    check(t.until("document.getElementById('lock-problem').textContent === 'the key is wrong'"), "a wrong key")
    t.key("a", control=True)
    t.type("secret-one")
    t.key("Enter")
    check(t.until("document.body.dataset.ready && !document.getElementById('lock').open"), "the right key")
    check(make(t, "a key"), "a picture with a key")
    test_pause(s, t)
    check("secret" not in t.js("JSON.stringify(localStorage)") and "secret" not in t.js("document.cookie"), "the key is not kept")
    t.close()
    s.stop()


def timed(f, *args):
    begun = time.time()
    result = f(*args)
    if os.environ.get("LZ_TEST_TIMES"):
        print(f"{f.__name__} {time.time() - begun:.1f} s")
    return result


def test_all(b):
    s = Server("state")
    timed(test_files, s)
    t = browser.Tab(b, s.url)
    audit(t, "empty")
    first = timed(test_first, s, t)
    audit(t, "a picture")
    timed(test_queue, s, t)
    timed(test_gallery, s, t, first)
    timed(test_compare, s, t)
    timed(test_images, s, t, first)
    timed(test_keyboard, t)
    errors = [e for e in t.errors() if "410" not in e and "400" not in e]  # answers that were asked for
    check(errors == [], "no errors", errors)
    t.close()
    dark = browser.Tab(b, s.url, dark=True, reduced=True)
    dark.until("!!document.querySelector('.thumb')")
    dark.click(".thumb")
    dark.until(DONE)
    dark.click("#more-open")
    audit(dark, "dark")
    dark.close()
    timed(test_phone, b, s)
    s = timed(test_lost, b, s)
    check(s.stop() == 0, "the server ends")
    timed(test_models, b)
    timed(test_sizes, b)
    timed(test_key, b)


def run():
    b = browser.Browser(browser.find())
    try:
        if SHOTS:
            import shots
            shots.take(b, Server, browser.Tab, make, SHOTS)
        else:
            test_all(b)
    finally:
        b.close()


if __name__ == "__main__":
    server.Place.lazuli, server.Place.work = LAZULI, WORK
    server.main(run)
