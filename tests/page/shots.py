"""shots.py: the pictures of docs/server.md. `python3 tests/page/page.py build/lazuli FOLDER docs` makes them again."""
import json
import os

PROMPTS = ["a rocket in flat style", "two red apples", "a cup of coffee", "a castle", "a pizza in line style", "a blue dog",
           "a whale in 3d style on a blue background", "a tree in flat style", "five balloons", "a star", "a banana on pink",
           "a fox in 3d style on a blue background"]
LOADED = "[...document.images].every((i) => i.complete)"


def take(b, Server, Tab, make, folder):
    s = Server("shots")
    t = Tab(b, s.url, 1440, 900)
    t.shot(os.path.join(folder, "page-empty.png"))
    for seed, prompt in enumerate(PROMPTS):
        t.js(f"(() => {{ const e = document.getElementById('seed'); e.value = '{seed + 1}'; e.dispatchEvent(new Event('input')); }})()")
        make(t, prompt)
    t.js("document.getElementById('seed-mode').click()")
    t.key("Escape")
    t.js("document.activeElement.blur()")
    t.key("p")
    t.until(LOADED)
    t.until("document.querySelectorAll('.toast').length === 0", 12)
    t.mouse("mouseMoved", 700, 500)
    t.shot(os.path.join(folder, "page.webp"), 82)
    t.key("i")
    t.click("#more-open")
    t.until("document.getElementById('details').open")
    t.shot(os.path.join(folder, "page-details.png"))
    t.key("Escape")
    t.key("m")
    t.until("!document.getElementById('painter').hidden")
    t.shot(os.path.join(folder, "page-mask.png"))
    t.key("Escape")
    t.key("c")
    t.until(LOADED)
    t.shot(os.path.join(folder, "page-compare.png"))
    t.close()
    dark = Tab(b, s.url, 1280, 800, dark=True)
    dark.until("!!document.querySelector('.thumb')")
    dark.js("(() => { const e = document.getElementById('steps'); e.value = '120'; e.dispatchEvent(new Event('input')); })()")
    dark.click("#prompt")
    dark.type("a cat in 3d style")
    dark.click("#make")
    dark.until("/step (4\\d)/i.test(document.getElementById('stage-text').textContent)")
    for prompt in ("a robot in 3d style", "a ship in flat style"):
        dark.js(f"(() => {{ const e = document.getElementById('prompt'); e.value = {json.dumps(prompt)}; e.dispatchEvent(new Event('input')); }})()")
        dark.js("document.activeElement.blur()")
        dark.key("Enter", control=True)
    dark.until("document.querySelectorAll('#queue-list li').length === 3")
    dark.js("document.querySelector('#queue-list .job-open').click()")
    dark.until("!!document.querySelector('.forming')?.src && /step/i.test(document.getElementById('stage-text').textContent)")
    dark.shot(os.path.join(folder, "page-dark.webp"), 82)
    dark.click("#queue-clear")
    dark.click("#cancel")
    dark.close()
    phone = Tab(b, s.url, 390, 844)
    phone.size(390, 844, phone=True)
    phone.open(s.url)
    phone.until("!!document.querySelector('.thumb')")
    phone.shot(os.path.join(folder, "page-phone-empty.png"))
    phone.js("document.querySelector('.thumb').click()")
    phone.until("!document.getElementById('bar').hidden && " + LOADED)
    phone.js("window.scrollTo(0, 0)")
    phone.shot(os.path.join(folder, "page-phone.webp"), 82)
    phone.close()
    s.stop()
