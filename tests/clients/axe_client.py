"""axe_client.py LAZULI: the rules of axe-core against the page of `lazuli serve`, in Chromium.

`make test-clients` runs it with the axe.min.js that the newest axe-playwright-python brings. tests/page/page.py has rules of
its own (tests/page/audit.js), which need no package.
"""
import importlib.util
import pathlib
import sys
import time
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/page"), str(ROOT / "tests/serve")]
import browser  # noqa: E402
import server  # noqa: E402
from server import check  # noqa: E402

AXE = (pathlib.Path(importlib.util.find_spec("axe_playwright_python").submodule_search_locations[0]) / "axe.min.js").read_text()
SHOWN = "document.querySelector('#frames .frame:not(.waiting) > img')?.complete && !document.getElementById('bar').hidden"
# Every rule of WCAG 2.2 AA and the best practices of axe.
RUN = """(async () => {
    await Promise.allSettled(document.getAnimations().map((a) => a.finished));
    const found = await axe.run(document, {resultTypes: ['violations']});
    return {passes: found.passes.length, version: axe.version,
            violations: found.violations.map((v) => `${v.id} (${v.impact}): ${v.help}: ` + v.nodes.slice(0, 4).map((n) => n.target.join(' ')).join(', '))};
})()"""


def audit(t, where):
    t.js(AXE + "; 0")
    found = t.js(RUN)
    for violation in found["violations"]:
        check(False, where, violation)
    check(found["passes"] >= 20, where, "axe-core applied its rules", found)
    return found["version"]


def run():
    if not check(browser.find(), "there is no chromium; tools/install-packages page installs it"):
        return
    b = browser.Browser(browser.find())
    s = server.Server(server.Place.lazuli, server.Place.work, "--state", server.Place.work + "/state")
    s.wait()
    try:
        t = browser.Tab(b, s.url)
        print("axe-core", audit(t, "empty"))
        t.js("document.body.append(document.createElement('button'))")
        check(any("button-name" in v for v in t.js(RUN)["violations"]), "axe-core finds a button without a name")
        t.js("document.body.lastChild.remove()")
        t.click("#prompt")
        t.type("a fox")
        for n in (1, 2):
            time.sleep(1)  # two clicks in a moment are one
            t.click("#make")
            check(t.until(f"document.querySelectorAll('.thumb').length === {n} && {SHOWN}", 60), "a picture")
        audit(t, "a picture")
        for what, key, ready in (("details", "i", "document.getElementById('details').open"), ("help", "?", "document.getElementById('help').open"),
                                 ("mask", "m", "!document.getElementById('painter').hidden"),
                                 ("compare", "c", "!document.getElementById('compare').hidden")):
            t.js("document.activeElement.blur()")
            t.key(key)
            if check(t.until(ready, 5), what):
                audit(t, what)
            t.key("Escape")
        t.click("#more-open")
        audit(t, "settings")
        t.close()
        dark = browser.Tab(b, s.url, dark=True)
        dark.until("!!document.querySelector('.thumb')")
        dark.click(".thumb")
        dark.until(SHOWN)
        dark.click("#more-open")
        audit(dark, "dark")
        dark.close()
        phone = browser.Tab(b, s.url, 390, 844)
        phone.size(390, 844, phone=True)
        phone.open(s.url)
        phone.until("!!document.querySelector('.thumb')")
        audit(phone, "phone")
        phone.click(".thumb")
        phone.until(SHOWN)
        phone.click("#do-info")
        phone.until("document.getElementById('details').open")
        audit(phone, "phone, details")
        phone.close()
    finally:
        b.close()
        s.stop()


def main():
    with tempfile.TemporaryDirectory() as work:
        server.Place.lazuli, server.Place.work = sys.argv[1], work
        try:
            server.main(run)
        finally:
            print(f"{server.Counts.checks - server.Counts.failed} passed, {server.Counts.failed} failed")


main()
