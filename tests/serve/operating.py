"""operating.py: what an operator sets: limits, what is kept, models, memory."""
import base64
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import threading
import time

from pictures import SMALL, form, fox, png
from server import Place, check, start, until


def test_operator():
    """--strict, --pin, --max-input-pixels, --log, --log-prompts, $LAZULI_KEYS."""
    s = start("strict", "--strict", "--pin", "steps,size", "--max-input-pixels", "5000", "--log", "json", "--log-prompts", "--previews", "off", "--public-url", "https://pictures.example/",
               env={**os.environ, "LAZULI_KEYS": "ada secret-one\nroot secret-two admin\n"})
    key = {"authorization": "Bearer secret-one"}
    path = "/v1/images/generations"
    s.wait()
    check(s.code("GET", "/v1/models") == (401, "invalid_api_key") and s.code("GET", "/v1/models", **key) == (200, None), "keys of the environment")
    check(s.code("POST", path, {**SMALL, "colour": "red"}, **key) == (400, "unknown_parameter"), "an unknown field")
    status, _, data = s.call("POST", "/sdapi/v1/txt2img", {"prompt": "a", "sampler_name": "Euler"}, **key)
    check(status == 422 and data["error"] == "unknown_parameter", "the same for /sdapi", data)
    check(s.code("POST", path, {**SMALL, "model": "gpt-image-1"}, **key) == (404, "model_not_found"), "a name of another model")
    status, answer, data = s.call("POST", path, {"prompt": "the fox of the log", "size": "64x64", "steps": 1, "model": "demo"}, **key)
    check(status == 200 and data["size"] == "256x256" and answer.getheader("x-lazuli-ignored") == "steps, size", "pinned", data.get("size"),
          answer.getheader("x-lazuli-ignored"))
    cookie = s.call("POST", "/api/v1/session", {"key": "secret-one"})[1].getheader("set-cookie")
    check(cookie.endswith("; Secure"), "a cookie for https", cookie)
    url = s.call("POST", path, {"prompt": "a fox", "response_format": "url"}, **key)[2]["data"][0]["url"]
    check(re.fullmatch(r"https://pictures\.example/files/[a-z2-7]{32}\.png", url), "the public address", url)
    status, answer, data = s.call("GET", url[len("https://pictures.example"):])
    heads = {name: answer.getheader(name) for name in ("content-type", "x-content-type-options", "content-security-policy", "cross-origin-resource-policy", "content-disposition")}
    check(status == 200 and list(heads.values()) == ["image/png", "nosniff", "sandbox; default-src 'none'", "cross-origin", "inline"], "its headers", heads)
    large = png(80, 80, lambda x, y: (x, y, 0))
    body, kind = form({"prompt": "a"}, [("image", large)])
    status, _, data = s.call("POST", "/v1/images/edits", body, content_type=kind, **key)
    check(status == 400 and "the most is 5000 pixels" in data["error"]["message"], "too many pixels", data)
    lines = [json.loads(line) for line in s.text().splitlines() if line.startswith("{")]
    asked = [line for line in lines if line.get("path") == path and line["status"] == 200]
    check(asked[0]["outcome"] == "completed" and asked[0]["wait"] >= 0 and asked[0]["run"] > 0, "what its job took", asked)
    check(len(asked) == 2 and asked[0]["who"] == "key:ada" and asked[0]["method"] == "POST" and asked[0]["seconds"] > 0, "a line of JSON", asked)
    check(any("the fox of the log" in line.get("message", "") for line in lines), "a prompt in the log")
    check("secret" not in s.text(), "no key is in the log")
    check(s.stop() == 0, "it ends")


def test_keeping():
    """--keep-pictures, --quality, --metrics-listen, and files that nobody knows."""
    state, path = f"{Place.work}/keeping", "/v1/images/generations"
    old = time.time() - 2 * 86400
    for name in ("pictures/pic_unknown.png", "pictures/pic_fresh.png", "thumbs/pic_unknown.webp", "uploads/abc.def.part"):
        os.makedirs(os.path.dirname(f"{state}/{name}"), exist_ok=True)
        open(f"{state}/{name}", "w").close()
        if "fresh" not in name:
            os.utime(f"{state}/{name}", (old, old))

    def files():
        return {name for name in os.listdir(state + "/pictures") if "fresh" not in name}

    # Two of the pictures that follow have less than 9,500 bytes, and three have more.
    s = start("keeping", "--keep-pictures", "30,9500", "--quality", "low=2,hd=3", "--metrics-listen", "127.0.0.1:0",
               env={**os.environ, "LAZULI_KEYS": "ada secret-one\n"})
    key = {"authorization": "Bearer secret-one"}
    s.wait()
    main, s.port = [int(port) for port in re.findall(r"listening on http://127.0.0.1:(\d+)", s.text())]
    check([s.call("GET", p)[0] for p in ("/metrics", "/healthz", "/readyz", "/v1/models", "/")] == [200, 200, 200, 404, 404], "only metrics")
    check(s.call("GET", "/metrics", host="prometheus.example")[0] == 200, "by any name")
    text = s.call("GET", "/metrics")[2].decode()
    for name in ('lazuli_device_memory_bytes{kind="total"}', 'lazuli_memory_bytes{kind="front"}', 'lazuli_memory_bytes{kind="worker"}', 'lazuli_disk_bytes{kind="free"}'):
        check(s.metric(name) > 1e6, name, text)
    s.port, s.host = main, f"127.0.0.1:{main}"
    check(s.call("GET", "/v1/models")[0] == 401, "the other address needs a key")
    check(files() == set(), "old files that nobody knows are removed", files())
    check(os.path.exists(state + "/pictures/pic_fresh.png"), "fresh ones stay")

    def steps(**fields):
        data = s.call("POST", path, {"prompt": "a fox", "seed": 7, "size": "64x64", "response_format": "file", **fields}, **key)[2]
        return int(re.search(rb"Steps: (\d+)", data).group(1))
    check([steps(quality="low"), steps(quality="hd"), steps(quality="low", steps=1), steps()] == [2, 3, 1, 4], "steps by quality")
    until("the oldest are removed", lambda: len(files()) == 2)
    left = s.call("GET", "/api/v1/pictures", **key)[2]["pictures"]
    check([p["settings"]["steps"] for p in left if "steps" in p["settings"]] == [1] and len(left) == 2, "the newest stay", left)
    check(sum(p["bytes"] for p in left) <= 9500, "not more than allowed", [p["bytes"] for p in left])
    check(s.stop() == 0, "it ends")

    s = start("keeping", "--keep-pictures", "0")
    s.wait()
    before, listed = files(), len(s.call("GET", "/api/v1/pictures")[2]["pictures"])
    status, _, data = s.call("POST", path, SMALL)
    check(status == 200 and base64.b64decode(data["data"][0]["b64_json"]) == fox(), "a picture that is not kept")
    check(s.call("POST", path, {**SMALL, "response_format": "file"})[2] == fox(), "a file that is not kept")
    check(files() == before and len(s.call("GET", "/api/v1/pictures")[2]["pictures"]) == listed, "nothing is kept", files())
    url = s.call("POST", path, {**SMALL, "response_format": "url"})[2]["data"][0]["url"]
    check(s.call("GET", url.split(s.host)[1])[0] == 200, "an address is valid for an hour")
    check(s.metric('lazuli_http_requests_total{path="/v1/images/generations",code="2xx"}') == 3, "requests by path")
    check(s.metric('lazuli_pictures_total{model="demo"}') == 3, "pictures by model")
    check(s.metric('lazuli_device_memory_bytes{kind="peak"}') > 1e6, "memory of the pictures")
    check(s.stop() == 0, "it ends")


def test_rows():
    """Lists look at the rows of their owner only, and rows that nobody needs are deleted after a week."""
    keys = {**os.environ, "LAZULI_KEYS": "ada secret-one\nroot secret-two admin\n"}
    s = start("rows", env=keys)
    s.wait()
    jobs = [s.call("POST", "/api/v1/jobs", {"prompt": "a", "width": 64, "height": 64, "steps": 1}, key="secret-one")[2]["id"] for _ in range(3)]
    for id in jobs:
        until("a job", lambda: s.job(id, key="secret-one")["status"] == "completed")
    names = [s.job(id, key="secret-one")["pictures"][0]["id"] for id in jobs]
    for name in names[:2]:
        check(s.code("DELETE", f"/api/v1/pictures/{name}", key="secret-one") == (200, None), "it is removed")
    s.call("POST", "/api/v1/queue/pause", key="secret-two")
    failed = s.call("POST", "/api/v1/jobs", {"prompt": "a"}, key="secret-one")[2]["id"]
    check(s.call("POST", f"/api/v1/jobs/{failed}/cancel", key="secret-one")[0] == 200, "it is cancelled")
    check(s.stop() == 0, "it ends")
    now = int(time.time())
    with sqlite3.connect(s.state + "/jobs.sqlite") as db:
        removed = [db.execute("SELECT removed FROM pictures WHERE id=?", (name,)).fetchone()[0] for name in names]
        check(now - 60 < removed[0] <= now and removed[2] == 0, "when it was removed", removed)
        db.execute("UPDATE jobs SET created=?, started=?, completed=?", (now - 9 * 86400,) * 3)
        db.execute("UPDATE pictures SET removed=? WHERE id=?", (now - 8 * 86400, names[0]))
        db.execute("UPDATE pictures SET removed=1 WHERE id=?", (names[1],))  # as an earlier version has it
        db.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<150000) INSERT INTO jobs(id, owner, source, state, model, settings, n, seeds, created, completed) "
                   "SELECT 'other' || i, 'key:eve', 1, 2, 'demo', '{}', 1, '[1]', ?1, ?1 FROM n", (now,))
        db.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<150000) INSERT INTO pictures(id, job, owner, number, seed, width, height, bytes, format, created, "
                   "facts) SELECT 'other' || i, 'other' || i, 'key:eve', 0, 1, 64, 64, 100, 'png', ?1, '{}' FROM n", (now,))
    db.close()
    s = start("rows", env=keys)
    until("a picture that was removed a week ago is forgotten", lambda: s.code("GET", f"/api/v1/pictures/{names[0]}", key="secret-one") == (404, "not_found"))
    for id in (jobs[0], failed):
        until("so is a job without pictures", lambda: s.code("GET", f"/api/v1/jobs/{id}", key="secret-one") == (404, "not_found"))
    check(s.code("GET", f"/api/v1/pictures/{names[1]}", key="secret-one") == (410, "gone"), "one that was removed lately is not")
    check(all(s.code("GET", f"/api/v1/jobs/{id}", key="secret-one") == (200, None) for id in jobs[1:]), "jobs with pictures stay")
    for path, most in (("/api/v1/jobs", 2), ("/api/v1/pictures", 1), ("/api/v1/pictures?q=a", 1), ("/api/v1/jobs?state=completed", 2)):
        before = s.cpu_seconds()
        for _ in range(40):
            status, _, data = s.call("GET", path, key="secret-one")
            check(status == 200 and len(next(v for v in data.values() if isinstance(v, list))) == most, "a list", path, data)
        check(s.cpu_seconds() - before < 0.12, "it does not look at the rows of others", path, s.cpu_seconds() - before)
    check(s.call("GET", "/api/v1/pictures?limit=5", key="secret-two")[0] == 200, "the list of all")
    check(s.stop() == 0, "it ends")


def test_uploads():
    """Old uploads are removed, many at a time, except those that a waiting job needs."""
    s = start("uploads", env={**os.environ, "LAZULI_KEYS": "root secret-two admin\n"})
    s.wait()
    check(s.call("POST", "/api/v1/queue/pause", key="secret-two")[0] == 200, "the queue is stopped")
    images = [s.call("POST", "/api/v1/uploads", png(8, 8, lambda x, y, i=i: (x, y, i)), "secret-two", content_type="image/png")[2]["id"] for i in range(100)]
    job = s.call("POST", "/api/v1/jobs", {"prompt": "a fox", "width": 64, "height": 64, "steps": 1, "images": [f"upload:{id}" for id in images[:2]]}, "secret-two")
    check(job[0] == 202 and len(os.listdir(f"{s.state}/uploads")) == 100, "a job with the oldest", job[2])
    with sqlite3.connect(f"{s.state}/jobs.sqlite") as db:
        db.execute("UPDATE uploads SET created = created - 90000")
    db.close()
    until("the others are removed", lambda: len(os.listdir(f"{s.state}/uploads")) == 2)
    check(set(os.listdir(f"{s.state}/uploads")) == set(images[:2]), "those that are needed are left")
    check(s.stop() == 0, "it ends")


def test_idle():
    """The worker ends when nothing is to do, and comes back for the next picture."""
    s = start("idle", "--idle-unload", "1")
    s.wait()
    until("the worker ends", lambda: not s.worker())
    check(s.call("GET", "/readyz")[0] == 200 and not s.call("GET", "/v1/models/demo")[2]["loaded"], "it is still ready")
    status, _, data = s.call("POST", "/v1/images/generations", SMALL)
    check(status == 200 and base64.b64decode(data["data"][0]["b64_json"]) == fox(), "a picture wakes it")
    check(s.metric("lazuli_worker_restarts_total") == 0, "which is no failure")
    check(s.call("POST", "/api/v1/models/demo/unload")[2]["loaded"] is False, "unloaded by hand")
    until("the worker ends again", lambda: not s.worker())
    for _ in range(3):
        s.call("POST", "/v1/images/generations", {**SMALL, "size": "256x256"})
        unloaded = s.call("POST", "/api/v1/models/demo/unload")[2]["loaded"]
        check(unloaded is False and not s.call("GET", "/v1/models/demo")[2]["loaded"], "unloaded at once after a picture")
        until("the worker ends again", lambda: not s.worker())
    names = [p["id"] + ".webp" for p in s.call("GET", "/api/v1/pictures")[2]["pictures"]]
    check(len(names) == 4 and sorted(os.listdir(f"{s.state}/thumbs")) == sorted(names), "after it has written the small pictures", names, os.listdir(f"{s.state}/thumbs"))
    check(s.call("POST", "/api/v1/models/demo/load")[0] == 202, "loaded by hand")
    until("it is loaded", lambda: s.call("GET", "/v1/models/demo")[2]["loaded"])
    check(s.code("POST", "/api/v1/models/none/load") == (404, "model_not_found"), "no model")
    check(s.stop() == 0, "it ends")
    with sqlite3.connect(f"{Place.work}/idle/jobs.sqlite") as db:
        db.execute("ALTER TABLE pictures DROP COLUMN rating")
    db.close()
    s = start("idle")
    check([p["rating"] for p in s.call("GET", "/api/v1/pictures")[2]["pictures"]] == [0] * 4, "the pictures of a version without ratings")
    check(s.stop() == 0, "it ends")


def test_transparent():
    """A model whose pictures have opacity."""
    s = start("transparent", "-m", "tests/data/qwen21/B")
    s.wait()
    path, body = "/v1/images/generations", {"prompt": "a fox", "size": "64x64", "seed": 1, "steps": 1}
    check(s.call("GET", "/api/v1/about")[2]["models"][0]["transparent"] is True, "the model can")
    for options, colour, told in [({}, 6, "transparent"), ({"background": "auto"}, 6, "transparent"),
                                  ({"background": "transparent"}, 6, "transparent"), ({"background": "opaque"}, 2, "opaque"),
                                  ({"output_format": "jpeg"}, None, "opaque"), ({"output_format": "webp"}, None, "transparent")]:
        status, _, data = s.call("POST", path, {**body, **options})
        check(status == 200 and data["background"] == told, "the background is told", options, data.get("background"))
        picture = base64.b64decode(data["data"][0]["b64_json"]) if status == 200 else b""
        check(colour is None or picture[25] == colour, "the kind of the PNG", options)
    check(s.code("POST", path, {**body, "background": "transparent", "output_format": "jpeg"}) == (400, "invalid_value"), "no JPEG")
    check(s.code("POST", path, {**body, "background": "green"}) == (400, "unsupported_value"), "no colour")
    job = s.call("POST", "/api/v1/jobs", {"prompt": "a fox", "seed": 1, "steps": 1, "width": 64, "height": 64, "background": "opaque"})[2]
    until("it is made", lambda: s.call("GET", f"/api/v1/jobs/{job['id']}")[2]["status"] == "completed")
    job = s.call("GET", f"/api/v1/jobs/{job['id']}")[2]
    check(s.call("GET", f"/api/v1/pictures/{job['pictures'][0]['id']}/file")[2][25] == 2, "the native field", job)
    kept = s.call("GET", "/api/v1/pictures?limit=10")[2]["pictures"]
    check(len(kept) == 7, "all are kept", kept)
    for p in kept:
        until("a small picture", lambda: s.call("GET", f"/api/v1/pictures/{p['id']}/thumb")[2][8:12] == b"WEBP")
    check(s.stop() == 0, "it ends")


def test_layers():
    """A model that takes an image apart: the whole picture and its layers are the pictures of a job."""
    folder = "tests/data/layered"
    with open(f"{folder}/tall.png", "rb") as file:
        tall = file.read()
    subprocess.run([Place.lazuli, "fox", "-m", f"{folder}/Y", "-i", f"{folder}/tall.png", "-s", "1", "-S", "1", "--layers", "2", "--no-metadata", "-q",
                    "-o", f"{Place.work}/layers.png"], check=True)
    alone = [open(f"{Place.work}/layers{end}.png", "rb").read() for end in ("", "-1", "-2")]
    s = start("layers", "-m", f"{folder}/Y")
    s.wait()
    check(s.call("GET", "/api/v1/about")[2]["models"][0]["layers"] == 4, "the model's own number")
    path, plain = "/v1/images/edits", {"prompt": "fox", "steps": "1", "seed": "1", "layers": "2"}

    def edit(headers=(), **fields):
        body, kind = form({**plain, **fields}, [("image", tall)])
        return s.call("POST", path, body, content_type=kind, **dict(headers))

    status, _, data = edit(metadata="false")
    if check(status == 200, "layers", data):
        check([d["layer"] for d in data["data"]] == [0, 1, 2] and {d["seed"] for d in data["data"]} == {1}, "the whole picture, then the lowest layer")
        check([base64.b64decode(d["b64_json"]) for d in data["data"]] == alone, "the same bytes as the command line")
    check(len(edit(layers="")[2].get("data", ())) == 0 and len(edit(layers="1")[2]["data"]) == 2, "another number")
    status, _, data = edit(stream="true")
    ends = [json.loads(line[6:])["image_index"] for line in data.decode().splitlines() if line.startswith("data:")]
    check(status == 200 and ends == [0, 1, 2], "a stream has an event for each", ends)
    text = "data:image/png;base64," + base64.b64encode(tall).decode()
    job = s.call("POST", "/api/v1/jobs", {"prompt": "fox", "steps": 1, "images": [text]})[2]
    until("it is made", lambda: s.job(job["id"])["status"] == "completed")
    made = s.job(job["id"])["pictures"]
    check([p["layer"] for p in made] == [0, 1, 2, 3, 4], "the model's own number of layers", made)
    file = s.call("GET", f"/api/v1/pictures/{made[2]['id']}/file")[2]
    check(b"layer\x002 of 4" in file and b'"layers": 4' in file, "what a layer is, is in its file")
    for fields, param in (({"n": "2"}, "n"), ({"output_format": "jpeg"}, "background"), ({"response_format": "file"}, "response_format"), ({"resolution": "700"}, "resolution"),
                          ({"layers": "10"}, "layers")):
        status, _, data = edit(**fields)
        check(status == 400 and data["error"]["param"] == param, "refused", fields, data)
    check(s.call("POST", "/sdapi/v1/txt2img", {"prompt": "fox"})[0] == 422, "not for /sdapi")

    # The worker dies, and a job is cancelled
    long = {"prompt": "fox", "steps": 200, "resolution": 1024, "seed": 1, "layers": 2, "images": [text]}
    job = s.call("POST", "/api/v1/jobs", long)[2]["id"]
    until("it runs", lambda: s.job(job)["step"] > 0)
    os.kill(s.worker(), signal.SIGKILL)
    until("it is made all the same", lambda: s.job(job)["status"] == "completed")
    again = s.call("POST", "/api/v1/jobs", {**long, "seed": 2})[2]["id"]
    until("it runs", lambda: s.job(again)["step"] > 0)
    check(s.call("POST", f"/api/v1/jobs/{again}/cancel")[2]["status"] == "cancelled" and s.job(job)["attempts"] == 2, "cancelled")
    status, _, data = edit(metadata="false")
    check(status == 200 and [base64.b64decode(d["b64_json"]) for d in data["data"]] == alone, "the next one is whole")
    until("nothing is left of the other", lambda: os.listdir(f"{s.state}/spool") == [])
    check(s.stop() == 0, "it ends")
    s = start("layers")
    s.wait()
    check(s.code("POST", "/v1/images/generations", {**SMALL, "layers": 2}) == (400, "unsupported_parameter"), "a model without layers")
    check(s.stop() == 0, "it ends")


def test_models():
    """Several models, of which a few are open."""
    path, names = "/v1/images/generations", ["demo", "B", "K"]
    models = ["-m", "demo", "-m", "tests/data/qwen21/B", "-m", "tests/data/flux2/K"]

    def make(s, name):
        status, _, data = s.call("POST", path, {"prompt": "a fox", "size": "64x64", "seed": 1, "steps": 1, "model": name, "metadata": False})
        check(status == 200, "a picture", name, data)
        return data["data"][0]["b64_json"] if status == 200 else None

    def loaded(s):
        return [m["id"] for m in s.call("GET", "/v1/models")[2]["data"] if m["loaded"]]

    s = start("models1", *models)
    s.wait()
    check(loaded(s) == ["demo"], "the first model stays open", loaded(s))
    alone = {name: make(s, name) for name in names}
    check(loaded(s) == ["K"], "one at a time", loaded(s))
    check(s.metric("lazuli_model_loads_total") == 5, "each change loads a model", s.metric("lazuli_model_loads_total"))
    options = "/sdapi/v1/options"
    check(s.call("POST", options, {"sd_model_checkpoint": "B"})[::2] == (200, None) and loaded(s) == ["B"], "the chosen model is loaded before the answer", loaded(s))
    check(s.call("GET", options)[2]["sd_model_checkpoint"] == "B", "the choice is kept")
    status, _, data = s.call("POST", options, {"sd_model_checkpoint": "none"})
    check(status == 404 and data["detail"].endswith("there are demo, B, K"), "no model", data)
    status, _, data = s.call("POST", "/sdapi/v1/txt2img", {"prompt": "a fox", "width": 64, "height": 64, "steps": 1})
    check(status == 200 and json.loads(data["info"])["sd_model_name"] == "B" and loaded(s) == ["B"], "a picture with it", data)
    check(b"tests/data" not in base64.b64decode(data["images"][0]), "a picture holds no path")
    changes = threading.Thread(target=lambda: [s.call("POST", options, {"sd_model_checkpoint": name}) for name in 2 * names[::-1]])
    changes.start()
    check([make(s, name) == alone[name] for name in 3 * names] == [True] * 9, "the same pictures while models are loaded")
    changes.join()
    check(s.stop() == 0, "it ends")
    kept = [sorted(name.split(".")[0] for name in os.listdir(f"{s.state}/{folder}")) for folder in ("pictures", "thumbs")]
    check(kept[0] == kept[1] and len(kept[0]) == 13, "the small picture of each was written before the end", kept)
    s = start("models2", *models, "--models-loaded", "2")
    s.wait()
    check(loaded(s) == ["demo", "B"], "the first two stay open", loaded(s))
    for name in ("demo", "B", "demo", "B", "demo"):
        check(make(s, name) == alone[name], "the same picture", name)
    check(s.metric("lazuli_model_loads_total") == 3, "both were open", s.metric("lazuli_model_loads_total"))
    plan = s.call("POST", "/api/v1/plan", {"model": "B", "width": 64, "height": 64})
    check(plan[0] == 200 and plan[2]["bytes"] > 0, "a plan with the other model", plan[2])
    check(s.code("POST", "/api/v1/plan", {"model": "K"}) == (503, "not_ready"), "but not with one that is not open")
    check(make(s, "K") == alone["K"] and loaded(s) == ["demo", "K"], "the least recently used one is closed", loaded(s))
    check(s.call("POST", "/api/v1/models/K/unload")[2]["loaded"] is False and loaded(s) == [], "the worker ends")
    check(make(s, "demo") == alone["demo"], "and comes back")
    check(s.stop() == 0, "it ends")

    s = start("models4", *models[:4], env={**os.environ, "LAZULI_KEYS": "ada secret-one\neve secret-two\nroot secret-six admin\n"})
    s.wait()
    for who, name, seen in [("one", "B", ["B", "demo", "demo"]), ("six", "B", ["B", "B", "B"]), ("two", "demo", ["B", "demo", "B"]), ("six", "demo", ["demo"] * 3)]:
        check(s.call("POST", options, {"sd_model_checkpoint": name}, "secret-" + who)[0] == 200, "a choice", who, name)
        chosen = [s.call("GET", options, key="secret-" + key)[2]["sd_model_checkpoint"] for key in ("one", "two", "six")]
        check(chosen == seen, "an administrator chooses for all, others for themselves", who, name, chosen)
    for what in ("unload-checkpoint", "reload-checkpoint"):
        check(s.call("POST", "/sdapi/v1/" + what, key="secret-one")[2]["error"] == "admin_only", "not for all", what)
    check(s.stop() == 0, "it ends")

    snapshot = f"{Place.work}/hub/models--ada--tiny/snapshots/" + "1" * 40
    shutil.copytree("tests/data/qwen21/B", snapshot)
    shutil.copytree("tests/data/qwen21/B", snapshot.replace("tiny", "half"))
    for name in os.listdir(snapshot.replace("tiny", "half") + "/transformer"):
        if name.endswith(".safetensors"):
            os.remove(snapshot.replace("tiny", "half") + "/transformer/" + name)
    for given, wanted in [([], ["demo", "tiny"]), (["-m", "tests/data/flux2/K"], ["K", "demo", "tiny"])]:
        s = start("models3", *given, "--all-models", env={**os.environ, "HF_HUB_CACHE": f"{Place.work}/hub", "XDG_CONFIG_HOME": f"{Place.work}/none"})
        s.wait()
        check([m["id"] for m in s.call("GET", "/v1/models")[2]["data"]] == wanted, "all complete models", s.text())
        check(make(s, "tiny") == alone["B"], "the model of the cache")
        check(s.stop() == 0, "it ends")


def test_loads():
    """Each request that waits for a model is answered, and a model that could not be opened is tried again."""
    folder, options, names = f"{Place.work}/loads-model/B", "/sdapi/v1/options", ["demo", "B", "K"]
    shutil.copytree("tests/data/qwen21/B", folder)
    s = start("loads", "-m", "demo", "-m", folder, "-m", "tests/data/flux2/K")
    s.wait()
    answers = []

    def choose(name):
        try:
            answers.append(s.call("POST", options, {"sd_model_checkpoint": name}, timeout=20)[0])
        except OSError:
            answers.append(None)

    def loaded():
        return [m["id"] for m in s.call("GET", "/v1/models")[2]["data"] if m["loaded"]]
    threads = [threading.Thread(target=choose, args=(name,)) for name in 8 * names]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check(answers == [200] * 24, "each request is answered", answers)
    choose("demo")
    os.rename(f"{folder}/transformer", f"{folder}/away")
    choose("B")
    check(answers[-2:] == [200, 503] and loaded() == [], "a model that is broken", answers[-2:], loaded())
    choose("demo")
    check(answers[-1] == 200 and loaded() == ["demo"], "the others can be used", answers[-1], loaded())
    choose("B")
    check(answers[-1] == 503 and loaded() == ["demo"], "it is not tried again at once", answers[-1], loaded())
    os.rename(f"{folder}/away", f"{folder}/transformer")
    check(s.call("POST", "/api/v1/models/B/load")[0] == 202, "an administrator has repaired it")
    until("it is loaded", lambda: loaded() == ["B"])
    status, _, data = s.call("POST", "/v1/images/generations", {"prompt": "a fox", "size": "64x64", "steps": 1, "model": "B"})
    check(status == 200, "a picture with it", data)
    check(s.stop() == 0, "it ends")


def test_admission():
    """A picture that needs more memory than there is, is refused before it is queued."""
    with open(Place.lazuli, "rb") as file:
        if b"__asan_init" in file.read():
            print("skipped: the address sanitizer needs more memory than any limit")
            return
    s = start("admission", before=["prlimit", f"--data={2 << 30}"])
    s.wait()
    for method, body in [("/v1/images/generations", {"prompt": "a", "size": "2048x2048"}), ("/api/v1/jobs", {"prompt": "a", "width": 2048, "height": 2048}),
                         ("/v1/images/generations", {"prompt": "a", "size": "2048x2048", "stream": True})]:
        begun = time.time()
        status, _, data = s.call("POST", method, body)
        error = data.get("error") or {}
        check(status == 400 and error.get("code") == "picture_too_large", "too large", method, data)
        found = re.search(r"needs (\d+) MiB of memory, and the server has (\d+) MiB; ask for a smaller one", error.get("message", ""))
        check(found and int(found.group(1)) > int(found.group(2)) == 2048, "the sentence", error)
        check(time.time() - begun < 5, "at once", time.time() - begun)
    check(s.call("POST", "/sdapi/v1/txt2img", {"prompt": "a", "width": 2048, "height": 2048})[0] == 422, "the same for /sdapi")
    check(s.call("GET", "/api/v1/jobs")[2]["jobs"] == [], "nothing was queued")
    plan = s.call("POST", "/api/v1/plan", {"width": 2048, "height": 2048})[2]
    check(plan["fits"] is False and plan["needed"] > plan["available"] == 2 << 30, "the plan", plan)
    check(s.call("POST", "/v1/images/generations", SMALL)[0] == 200, "a small picture")
    check(s.stop() == 0, "it ends")
