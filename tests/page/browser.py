"""browser.py: drives a headless Chromium by the DevTools protocol, over its pipe. Needs Python's standard library only."""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe", "--no-first-run",
         "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio",
         "--hide-scrollbars", "--force-color-profile=srgb", "--font-render-hinting=none", "--disable-features=Translate,MediaRouter"]
# Keys that are not characters: their code and the number of Windows.
KEYS = {"Enter": ("Enter", 13), "Escape": ("Escape", 27), "Tab": ("Tab", 9), "Delete": ("Delete", 46), "ArrowLeft": ("ArrowLeft", 37),
        "ArrowRight": ("ArrowRight", 39), "ArrowUp": ("ArrowUp", 38), "ArrowDown": ("ArrowDown", 40), " ": ("Space", 32), "Home": ("Home", 36),
        "End": ("End", 35)}


def find():
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    def __init__(self, program):
        self.profile = tempfile.mkdtemp()
        to_child, from_us = os.pipe()
        from_child, to_us = os.pipe()

        def move():  # the browser reads from 3 and writes to 4
            a, b = os.dup(to_child), os.dup(to_us)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.process = subprocess.Popen([program, *FLAGS, f"--user-data-dir={self.profile}", "about:blank"], preexec_fn=move, close_fds=False,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_child)
        os.close(to_us)
        self.out, self.input = os.fdopen(from_us, "wb", 0), os.fdopen(from_child, "rb", 0)
        self.answers, self.events, self.changed, self.number = {}, [], threading.Condition(), 0
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        rest = b""
        while True:
            piece = self.input.read(1 << 16)
            if not piece:
                return
            *messages, rest = (rest + piece).split(b"\0")
            with self.changed:
                for text in messages:
                    message = json.loads(text)
                    if "id" in message:
                        self.answers[message["id"]] = message
                    else:
                        self.events.append(message)
                self.changed.notify_all()

    def send(self, method, session=None, seconds=30, **params):
        self.number += 1
        number, message = self.number, {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        self.out.write(json.dumps(message).encode() + b"\0")
        with self.changed:
            if not self.changed.wait_for(lambda: number in self.answers, seconds):
                raise TimeoutError(method)
            answer = self.answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def close(self):
        try:
            self.send("Browser.close", seconds=5)
            self.process.wait(5)
        except Exception:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)


class Tab:
    """A page of the browser, in a context of its own: no cookies and no storage of another."""

    def __init__(self, browser, url, width=1280, height=800, dark=False, reduced=False):
        self.browser = browser
        self.context = browser.send("Target.createBrowserContext")["browserContextId"]
        target = browser.send("Target.createTarget", url="about:blank", browserContextId=self.context)["targetId"]
        self.session = browser.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "DOM", "Accessibility", "Network"):
            self.send(domain + ".enable")
        self.size(width, height)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        if reduced:
            features.append({"name": "prefers-reduced-motion", "value": "reduce"})
        self.send("Emulation.setEmulatedMedia", features=features)
        self.open(url)

    def send(self, method, **params):
        return self.browser.send(method, self.session, **params)

    def size(self, width, height, phone=False):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1, mobile=phone)
        self.send("Emulation.setTouchEmulationEnabled", enabled=phone)

    def open(self, url):
        self.send("Page.navigate", url=url)
        self.until("document.body?.dataset.ready === 'true' || document.getElementById('lock')?.open")

    def js(self, text):
        """The value of an expression; promises are waited for."""
        answer = self.send("Runtime.evaluate", expression=text, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(f"{text}: {details.get('exception', {}).get('description', details['text'])}")
        return answer["result"].get("value")

    def until(self, text, seconds=30):
        """Waits until an expression is true; returns its value, or None."""
        end = time.time() + seconds
        while time.time() < end:
            try:
                value = self.js(text)
                if value:
                    return value
            except RuntimeError:  # the page is being loaded
                pass
            time.sleep(0.03)
        return None

    def place(self, selector):
        """The middle of an element, scrolled into view, once it is there."""
        self.until(f"document.querySelector({json.dumps(selector)})?.checkVisibility()", 10)
        return self.js(f"""(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'nearest'}});
            const b = e.getBoundingClientRect(); return [b.left + b.width / 2, b.top + b.height / 2]; }})()""")

    def mouse(self, kind, x, y, buttons=0):
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left" if kind != "mouseMoved" or buttons else "none", buttons=buttons, clickCount=1)

    def click(self, selector):
        """A click, once the element stands still."""
        x, y = before = self.place(selector)
        for _ in range(20):
            time.sleep(0.02)
            x, y = now = self.place(selector)
            if now == before:
                break
            before = now
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, 1)
        self.mouse("mouseReleased", x, y)

    def type(self, text):
        self.send("Input.insertText", text=text)

    def key(self, key, control=False, shift=False):
        code, number = KEYS.get(key, ("Key" + key.upper() if key.isalpha() else "", ord(key.upper()[0]) if key.isalnum() else 0))
        params = {"key": key, "code": code, "windowsVirtualKeyCode": number, "modifiers": 2 * control + 8 * shift}
        text = "\r" if key == "Enter" else key if len(key) == 1 and not control else ""
        self.send("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **({"text": text} if text else {}), **params)
        self.send("Input.dispatchKeyEvent", type="keyUp", **params)

    def drop(self, path, selector):
        """Drags a file of the disk onto an element."""
        x, y = self.place(selector)
        data = {"items": [], "files": [path], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.send("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)

    def shot(self, path, quality=None):
        kind = "webp" if path.endswith(".webp") else "png"
        more = {"quality": quality} if quality else {}
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.send("Page.captureScreenshot", format=kind, **more)["data"]))

    def names(self):
        """[role, name] of what a screen reader finds."""
        nodes = self.send("Accessibility.getFullAXTree")["nodes"]
        return [[n["role"]["value"], n.get("name", {}).get("value", "")] for n in nodes if not n["ignored"] and "role" in n]

    def errors(self):
        """What scripts and the browser complained of: exceptions, refused resources."""
        found = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            if event["method"] == "Runtime.exceptionThrown":
                details = event["params"]["exceptionDetails"]
                found.append(details.get("exception", {}).get("description", details["text"]))
            elif event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
                found.append(event["params"]["entry"]["text"] + " " + event["params"]["entry"].get("url", ""))
        return found

    def close(self):
        self.browser.send("Target.disposeBrowserContext", browserContextId=self.context)
