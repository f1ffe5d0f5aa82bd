"""serve.py LAZULI WORK: starts `lazuli serve` with the demo model and talks to it, for tests/cli/serve.sh.

Prints a line for each failed check, and the counts at the end. Needs nothing but Python's standard library.
"""
import base64
import ctypes
import http.client
import json
import os
import re
import select
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import traceback
import warnings
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "serve"))
import load
import transcripts

LAZULI, WORK = sys.argv[1:3]
SMALL = {"prompt": "a fox", "size": "64x64", "num_inference_steps": 1, "seed": 7}
LONG = {"prompt": "a fox", "size": "512x512", "num_inference_steps": 200, "seed": 7}
LANDLOCK = 444  # landlock_create_ruleset, on all processors; landlock_restrict_self is 446
checks = failed = 0


def check(good, what, *more):
    global checks, failed
    checks += 1
    if not good:
        failed += 1
        print("FAILED:", what, *more)
    return good


started = []


class Server:
    def __init__(self, state, *options, before=(), **more):
        self.log = open(f"{WORK}/log", "ab")
        self.start = self.log.seek(0, 2)
        self.process = subprocess.Popen([*before, LAZULI, "serve", "--listen", "127.0.0.1:0", "--state", f"{WORK}/{state}", *options],
                                        stderr=self.log, stdout=subprocess.DEVNULL, **more)
        started.append(self.process)
        self.port = None
        until = time.time() + 60
        while not self.port and time.time() < until and self.process.poll() is None:
            found = re.findall(r"listening on https?://[^:]*:(\d+)", self.text())
            self.port = int(found[-1]) if found else time.sleep(0.02)
        self.host = f"127.0.0.1:{self.port}"

    def text(self):
        with open(f"{WORK}/log", "rb") as file:
            file.seek(self.start)
            return file.read().decode(errors="replace")

    def call(self, method, path, body=None, **headers):
        """The status, the headers and the body, from JSON if it is JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        if isinstance(body, dict):
            body = json.dumps(body)
            headers.setdefault("content_type", "application/json")
        connection.request(method, path, body, {name.replace("_", "-"): text for name, text in headers.items()})
        answer = connection.getresponse()
        data, kind = answer.read(), answer.getheader("content-type") or ""
        connection.close()
        return answer.status, answer, json.loads(data) if kind == "application/json" else data

    def code(self, method, path, body=None, **headers):
        """The status and the code of an error."""
        status, _, data = self.call(method, path, body, **headers)
        error = data["error"] if isinstance(data, dict) and data.get("error") else {}
        good = status < 400 or set(error) == {"message", "type", "param", "code"}
        check(good, "the error has four keys", method, path, data)
        return status, error.get("code")

    def raw(self, text, whole=False):
        """The first line of what is answered to these bytes; or everything, until the server closes the connection."""
        s = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        s.sendall(text.encode())
        answer = b""
        try:
            while whole or b"\r\n" not in answer:
                piece = s.recv(4096)
                if not piece:
                    break
                answer += piece
        except OSError:
            pass
        s.close()
        return answer.decode() if whole else answer.split(b"\r\n")[0].decode()

    def leave(self, path, body):
        """A client that sends a request and goes away; returns its socket."""
        data = json.dumps(body).encode()
        s = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        s.sendall(f"POST {path} HTTP/1.1\r\nHost: {self.host}\r\nContent-Type: application/json\r\n"
                  f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
        return s

    def metric(self, name):
        text = self.call("GET", "/metrics")[2].decode()
        return float(re.search("^" + re.escape(name) + r" (\S+)", text, re.M).group(1))

    def until(self, what, test, seconds=60):
        """Waits for a condition; returns the seconds that it took."""
        begun = time.time()
        while time.time() < begun + seconds:
            if test():
                return time.time() - begun
            time.sleep(0.02)
        check(False, what, "not after", seconds, "s")
        return seconds

    def worker(self):
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as file:
            words = file.read().split()
        return int(words[0]) if words else None

    def running(self):
        return self.metric('lazuli_jobs{state="in_progress"}') == 1

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        return self.process.wait(90)


def png_pixels(data):
    """Width, height and unfiltered rows of a PNG in RGB."""
    check(data[:8] == b"\x89PNG\r\n\x1a\n", "it is a PNG")
    at, packed, width, height = 8, b"", 0, 0
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + size]
        if kind == b"IHDR":
            width, height = struct.unpack(">II", body[:8])
        if kind == b"IDAT":
            packed += body
        at += 12 + size
    return width, height, zlib.crc32(zlib.decompress(packed))


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width, height, colour):
    """A PNG in RGB."""
    rows = b"".join(b"\0" + b"".join(bytes(colour(x, y)) for x in range(width)) for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def rgb(data):
    """The rows of a PNG in RGB."""
    at, packed, width, height = 8, b"", 0, 0
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IHDR":
            width, height = struct.unpack(">II", data[at + 8:at + 16])
        if kind == b"IDAT":
            packed += data[at + 8:at + 8 + size]
        at += 12 + size
    raw, rows, above = zlib.decompress(packed), [], bytearray(3 * width)
    for y in range(height):
        kind, row = raw[y * (3 * width + 1)], bytearray(raw[y * (3 * width + 1) + 1:(y + 1) * (3 * width + 1)])
        for i in range(3 * width):
            a, b, c = row[i - 3] if i > 2 else 0, above[i], above[i - 3] if i > 2 else 0
            near = min((abs(b - c), 0, a), (abs(a - c), 1, b), (abs(a + b - 2 * c), 2, c))[2]
            row[i] = (row[i] + [0, a, b, (a + b) // 2, near][kind]) & 255
        rows.append(bytes(row))
        above = row
    return rows


def form(fields, files):
    """The body of a form, and its Content-Type."""
    out = b""
    for name, text in fields.items():
        out += f'--xyz\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n'.encode()
    for name, data in files:
        out += f'--xyz\r\nContent-Disposition: form-data; name="{name}"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n'.encode()
        out += data + b"\r\n"
    return out + b"--xyz--\r\n", "multipart/form-data; boundary=xyz"


def test_openai(s):
    path = "/v1/images/generations"
    status, answer, data = s.call("GET", "/v1/models")
    check(status == 200 and data["data"][0]["id"] == "demo" and isinstance(data["data"][0]["created"], int), "models", data)
    check(s.code("GET", "/v1/models/demo") == (200, None), "a model")
    check(s.code("GET", "/v1/models/none") == (404, "model_not_found"), "no model")

    # The bytes of the command line
    subprocess.run([LAZULI, "a fox", "-S", "7", "-W", "64", "-H", "64", "-s", "1", "-q", "-o", f"{WORK}/fox.png"], check=True)
    fox = open(f"{WORK}/fox.png", "rb").read()
    status, answer, data = s.call("POST", path, {**SMALL, "user": "me", "style": "vivid"})
    check(status == 200, "a picture", data)
    made = base64.b64decode(data["data"][0]["b64_json"])
    check(made == fox, "the same bytes as the command line", len(made), len(fox))
    check(data["size"] == "64x64" and data["data"][0]["seed"] == 7 and data["output_format"] == "png", "facts", data["size"])
    check(data["usage"]["output_tokens"] == 16 and data["usage"]["input_tokens"] > 0, "usage", data["usage"])
    check(answer.getheader("x-lazuli-ignored") == "style", "ignored", answer.getheader("x-lazuli-ignored"))
    check(re.fullmatch("req_[a-z2-7]{26}", answer.getheader("x-request-id")), "an id")
    check(s.call("GET", "/v1/models", x_request_id="mine-1")[1].getheader("x-request-id") == "mine-1", "its own id")

    # Sizes, counts, formats, names of models, the path without /v1
    status, _, data = s.call("POST", "/images/generations/", {**SMALL, "size": "70x90", "n": 2, "model": "gpt-image-1", "output_format": "webp"})
    check(status == 200 and data["size"] == "64x80" and [d["seed"] for d in data["data"]] == [7, 8], "two", data.get("size"))
    check(base64.b64decode(data["data"][1]["b64_json"])[8:12] == b"WEBP", "webp")
    status, answer, data = s.call("POST", path, {**SMALL, "response_format": "file", "output_format": "jpeg"})
    check(status == 200 and data[:2] == b"\xff\xd8" and answer.getheader("content-type") == "image/jpeg", "a file")
    url = s.call("POST", path, {**SMALL, "response_format": "url"})[2]["data"][0]["url"]
    check(url.startswith(f"http://{s.host}/files/") and s.call("GET", url.split(s.host)[1])[2] == fox, "an address", url)
    check(s.code("GET", "/files/abc.png") == (404, "not_found"), "no address")

    # Errors
    for body, wanted in [({}, (400, "missing_required_parameter")), ({"prompt": ""}, (400, "invalid_value")),
                         ({"prompt": 5}, (400, "invalid_type")), ({**SMALL, "n": 11}, (400, "invalid_value")),
                         ({**SMALL, "n": "2"}, (400, "invalid_type")), ({**SMALL, "size": "1000x1"}, (400, "invalid_value")),
                         ({**SMALL, "size": "4096x4096"}, (400, "invalid_value")), ({**SMALL, "size": "99999x64"}, (400, "invalid_value")), ({**SMALL, "size": "big"}, (400, "invalid_value")),
                         ({**SMALL, "output_format": "gif"}, (400, "unsupported_value")),
                         ({**SMALL, "background": "transparent"}, (400, "unsupported_value")),
                         ({**SMALL, "mask": "x"}, (400, "unsupported_parameter")), ({**SMALL, "svg": {}}, (400, "unsupported_parameter")),
                         ({**SMALL, "model": "other"}, (404, "model_not_found")), ({**SMALL, "strength": 0.5}, (400, "invalid_value")),
                         ({**SMALL, "image": "https://example.org/x.png"}, (400, "unsupported_parameter")),
                         ({"prompt": "x" * 32001}, (400, "prompt_too_long"))]:
        check(s.code("POST", path, body) == wanted, "an error", list(body.items())[-1:], wanted)
    for text in ["", "[]", "{", '{"prompt": "a", "prompt": "b"}', "[" * 70 + "]" * 70, '{"seed": 99999999999999999999}']:
        check(s.code("POST", path, text, content_type="application/json") == (400, "invalid_json"), "not JSON", text[:20])
    check(s.code("POST", path, "a=b", content_type="application/x-www-form-urlencoded") == (415, "unsupported_media_type"), "a form")
    check(s.code("POST", path, "{}", content_type="text/plain") == (415, "unsupported_media_type"), "text")
    check(s.code("POST", "/v1/images/variations", {}) == (404, "not_found"), "variations")
    check(s.code("GET", path) == (405, "method_not_allowed") and s.code("GET", "/none") == (404, "not_found"), "paths")

    # Edits
    body, kind = form({"prompt": "a fox", "num_inference_steps": 1, "seed": 3, "strength": 0.9, "n": 1}, [("image", fox)])
    status, _, data = s.call("POST", "/v1/images/edits", body, content_type=kind)
    check(status == 200 and data["size"] == "64x64" and data["usage"]["input_tokens_details"]["image_tokens"] == 16, "an edit", data.get("error"))
    text = "data:image/png;base64," + base64.b64encode(fox).decode()
    same = s.call("POST", "/v1/images/edits", {"prompt": "a fox", "steps": 1, "seed": 3, "strength": 0.9, "images": [{"image_url": text}]})[2]
    check(same["data"] == data["data"], "the same edit as JSON")
    mask = png(64, 64, lambda x, y: (255, 255, 255) if x < 32 else (0, 0, 0))
    body, kind = form({"prompt": "a bird", "steps": 2, "seed": 3, "strength": 1}, [("image", fox), ("mask", mask)])
    status, _, data = s.call("POST", "/v1/images/edits", body, content_type=kind)
    if check(status == 200, "a mask", data.get("error")):
        old, new = rgb(fox), rgb(base64.b64decode(data["data"][0]["b64_json"]))
        same = [sum(a[3 * x:3 * x + 3] == b[3 * x:3 * x + 3] for a, b in zip(old, new)) for x in range(64)]
        check(all(n == 64 for n in same[32:]), "outside of the mask nothing changes", same)
        check(sum(same[:28]) < 28 * 32, "inside it does", same)
    body, kind = form({"prompt": "a"}, [("image", fox), ("mask", b"GIF89a")])
    error = s.call("POST", "/v1/images/edits", body, content_type=kind)[2]["error"]
    check((error["code"], error["param"], error["message"][:5]) == ("invalid_image", "mask", "mask:"), "no mask", error)
    for mask in ("data:image/png;base64,!!!!", "https://example.org/m.png", "upload:none", 5, {"file_id": "x"}):
        error = s.call("POST", "/v1/images/edits", {"prompt": "a", "image": text, "mask": mask})[2]["error"]
        check(error["param"] == "mask" and error["message"][:5] == "mask:", "an error about the mask", error)
    body, kind = form({"prompt": "a", "n": "x"}, [("image", fox)])
    check(s.code("POST", "/v1/images/edits", body, content_type=kind) == (400, "invalid_type"), "a number")
    body, kind = form({"prompt": "a"}, [("image[]", fox)] * 17)
    check(s.code("POST", "/v1/images/edits", body, content_type=kind) == (400, "invalid_value"), "17 images")
    body, kind = form({"prompt": "a"}, [("image", b"GIF89a")])
    check(s.code("POST", "/v1/images/edits", body, content_type=kind) == (400, "invalid_image"), "a GIF")
    bomb = fox[:16] + struct.pack(">II", 60000, 60000) + fox[24:]
    body, kind = form({"prompt": "a"}, [("image", bomb)])
    check(s.code("POST", "/v1/images/edits", body, content_type=kind) == (400, "invalid_image"), "a pixel bomb")
    for url in ["http://127.0.0.1/x.png", "file:///etc/passwd", "data:image/png;base64,!!!!"]:
        status, code = s.code("POST", "/v1/images/edits", {"prompt": "a", "images": [{"image_url": url}]})
        check(status == 400 and code in ("unsupported_value", "invalid_image"), "nothing is fetched", url)

    # Streams
    status, answer, data = s.call("POST", path, {**SMALL, "num_inference_steps": 4, "stream": True, "partial_images": 3})
    events = [e.split("\n") for e in data.decode().split("\n\n") if e.startswith("event:")]
    check(answer.getheader("content-type") == "text/event-stream", "a stream")
    check(events[-1][0] == "event: image_generation.completed", "completed", [e[0] for e in events])
    last = json.loads(events[-1][1][6:])
    check({"type", "b64_json", "created_at", "size", "quality", "background", "output_format", "usage"} <= set(last), "fields", set(last))
    partial = [json.loads(e[1][6:])["partial_image_index"] for e in events[:-1]]
    check(partial == sorted(set(partial)) and all(p < 3 for p in partial), "partial images", partial)
    check("id:" not in data.decode().split("data:")[0], "no ids")


def test_native(s):
    api = "/api/v1"
    check(s.call("GET", api + "/about")[2]["models"][0]["steps"] == 8, "about")
    status, answer, job = s.call("POST", api + "/jobs", {"prompt": "a cat", "seed": [1, 2], "width": 64, "height": 64, "steps": 1}, idempotency_key="k")
    check(status == 202 and answer.getheader("location") == f"{api}/jobs/{job['id']}", "a job", job)
    again = s.call("POST", api + "/jobs", {"prompt": "a cat", "seed": [1, 2], "width": 64, "height": 64, "steps": 1}, idempotency_key="k")[2]
    check(again["id"] == job["id"], "the same key, the same job")
    check(s.code("POST", api + "/jobs", {"prompt": "a dog"}, idempotency_key="k") == (422, "idempotency_mismatch"), "another body")
    events = s.call("GET", f"{api}/jobs/{job['id']}/events")[2].decode()
    check('"status":"completed"' in events, "events end with the job", events[-200:])
    job = s.call("GET", f"{api}/jobs/{job['id']}")[2]
    check(job["status"] == "completed" and [p["seed"] for p in job["pictures"]] == [1, 2] and job["error"] is None, "the job", job)
    picture = job["pictures"][0]["id"]
    status, answer, data = s.call("GET", f"{api}/pictures/{picture}/file")
    check(png_pixels(data)[:2] == (64, 64) and "sandbox" in answer.getheader("content-security-policy"), "its file")
    check(s.call("GET", f"{api}/pictures/{picture}/file", if_none_match=answer.getheader("etag"))[0] == 304, "not again")
    tag = answer.getheader("etag")
    for text, status, first, last in [("bytes=0-99", 206, 0, 99), ("bytes=100-", 206, 100, len(data) - 1), ("bytes=-10", 206, len(data) - 10, len(data) - 1),
                                      ("bytes=10-999999999", 206, 10, len(data) - 1), ("bytes=9-3", 200, 0, 0), ("bytes=0-1,4-5", 200, 0, 0),
                                      ("lines=0-1", 200, 0, 0), ("bytes=x-", 200, 0, 0), ("bytes=-", 200, 0, 0), ("bytes=99999999-", 416, 0, 0), ("bytes=-0", 416, 0, 0)]:
        got, answer, part = s.call("GET", f"{api}/pictures/{picture}/file", range=text)
        check(got == status, "a range", text, got)
        if status == 206:
            check(part == data[first:last + 1] and answer.getheader("content-range") == f"bytes {first}-{last}/{len(data)}", "its bytes", text)
        if status == 200:
            check(part == data and answer.getheader("accept-ranges") == "bytes", "the whole file", text)
        if status == 416:
            check(answer.getheader("content-range") == f"bytes */{len(data)}" and part["error"]["code"] == "invalid_range", "no part", text)
    check([s.call("GET", f"{api}/pictures/{picture}/file", range="bytes=0-1", if_range=t)[0] for t in (tag, '"old"')] == [206, 200], "if-range")
    check(s.call("GET", f"{api}/pictures/{picture}/thumb")[2][8:12] == b"WEBP", "small")
    found = s.call("GET", f"{api}/pictures?q=CAT")[2]["pictures"]
    check(len(found) == 2 and found[1]["settings"]["prompt"] == "a cat" and found[1]["settings"]["seed"] == 1, "search", found)
    pages = [s.call("GET", f"{api}/{what}")[2] for what in ("pictures?q=cat&limit=1&before=", "pictures?q=cat&limit=2", "jobs?state=&limit=&after=", "jobs?limit=1")]
    check([p["more"] for p in pages] == [True, False, False, True] and len(pages[2]["jobs"]) > 1, "whether there are more", pages)
    check([len(p.get("pictures", p.get("jobs"))) for p in pages[:2] + pages[3:]] == [1, 2, 1], "as many as asked for")
    check(s.code("GET", f"{api}/jobs?state=running") == (400, "invalid_value"), "a state that there is not")
    for text in ("abc", "0", "-1", "201", "1e2", "99999999999999999999"):
        check([s.code("GET", f"{api}/{what}?limit={text}") for what in ("jobs", "pictures")] == [(400, "invalid_value")] * 2, "a limit", text)
    check(s.call("GET", f"{api}/pictures?q=dog")[2]["pictures"] == [], "search for another")
    check(s.call("PUT", f"{api}/pictures/{picture}", {"pinned": True})[2]["pinned"], "pinned")
    upload = s.call("POST", api + "/uploads", data, content_type="image/png")
    check(upload[0] == 201 and upload[2]["width"] == 64, "an upload", upload[2])
    body = {"prompt": "a cat", "seed": 1, "steps": 1, "strength": 0.9, "images": ["upload:" + upload[2]["id"]]}
    one = s.call("POST", api + "/jobs", body)[2]
    other = s.call("POST", api + "/jobs", {**body, "images": ["picture:" + picture]})[2]
    for j in (one, other):
        s.until("an edit", lambda j=j: s.call("GET", f"{api}/jobs/{j['id']}")[2]["status"] == "completed")
    files = [s.call("GET", f"{api}/pictures/{s.call('GET', api + '/jobs/' + j['id'])[2]['pictures'][0]['id']}/file")[2] for j in (one, other)]
    check(png_pixels(files[0]) == png_pixels(files[1]), "an upload and a picture")
    retry = s.call("POST", f"{api}/jobs/{one['id']}/retry")
    check(retry[0] == 202 and retry[2]["settings"]["seed"] == 1, "retry", retry[2])
    check(s.call("DELETE", f"{api}/pictures/{picture}")[0] == 200, "delete")
    check(s.code("GET", f"{api}/pictures/{picture}/file") == (410, "gone"), "gone")
    plan = s.call("POST", api + "/plan", {"width": 128, "height": 64})[2]
    check(plan["bytes"] > 0 and plan["operations"] > 0 and plan["width"] == 128 and plan["fits"], "a plan", plan)
    for body, wanted in [({"prompt": "a", "noise": "/etc/passwd"}, "unsupported_parameter"), ({"prompt": "a", "x": 1}, "unknown_parameter"),
                         ({"prompt": "a", "images": ["upload:../../x"]}, "invalid_value"), ({"prompt": "a", "sampler": "x"}, "unsupported_value"),
                         ({"prompt": "a", "seed": -2}, "invalid_value"), ({"prompt": "a", "seed": []}, "invalid_value")]:
        check(s.code("POST", api + "/jobs", body) == (400, wanted), "an error", body)
    check(s.code("GET", api + "/jobs/job_none") == (404, "not_found"), "no job")

    # Cancelling, at once
    job = s.call("POST", api + "/jobs", {"prompt": "a cat", "width": 512, "height": 512, "steps": 200})[2]
    s.until("it runs", s.running)
    begun = time.time()
    check(s.call("POST", f"{api}/jobs/{job['id']}/cancel")[2]["status"] == "cancelled", "cancelled")
    status, _, data = s.call("POST", "/v1/images/generations", SMALL)
    check(time.time() - begun < 15, "the next picture comes soon", time.time() - begun)
    check(base64.b64decode(data["data"][0]["b64_json"]) == open(f"{WORK}/fox.png", "rb").read(), "and is whole")


def test_sdapi(s):
    """What Open WebUI, SillyTavern and LibreChat send to AUTOMATIC1111's API."""
    sd = "/sdapi/v1"
    fox = open(f"{WORK}/fox.png", "rb").read()
    options = s.call("GET", sd + "/options")[2]
    check(options["sd_model_checkpoint"] == "demo", "options", options)
    check(s.call("POST", sd + "/options", options)[::2] == (200, None), "options posted back")
    check(s.call("POST", sd + "/options", {"sd_model_checkpoint": "none"})[0] == 404, "no model")
    check(s.call("GET", sd + "/sd-models")[2][0]["title"] == "demo", "models")
    for name in ("samplers", "schedulers", "upscalers", "latent-upscale-modes", "sd-vae", "loras", "embeddings", "scripts", "cmd-flags"):
        check(s.call("GET", f"{sd}/{name}")[0] == 200, name)
    idle = s.call("GET", sd + "/progress")[2]
    check(idle["progress"] == 0 and idle["state"]["job_count"] == 0 and idle["current_image"] is None, "idle", idle)
    status, answer, data = s.call("POST", sd + "/txt2img", {"prompt": "a fox", "negative_prompt": "", "cfg_scale": 4.5, "steps": 22, "width": 64,
                                                            "height": 64, "seed": 7, "batch_size": 2, "sampler_name": "Euler a", "restore_faces": False})
    info = json.loads(data["info"])
    check(status == 200 and len(data["images"]) == 2 and info["seed"] == 7 and info["all_seeds"] == [7, 8], "txt2img", info)
    check(info["width"] == 64 and info["steps"] == 8 and "Steps: 8" in info["infotexts"][0], "the model's own steps", info)
    check("sampler_name" in answer.getheader("x-lazuli-ignored") and "steps" in answer.getheader("x-lazuli-ignored"), "ignored")
    check(png_pixels(base64.b64decode(data["images"][0]))[:2] == (64, 64) and data["parameters"]["steps"] == 22, "a picture")
    body = {"prompt": "a fox", "seed": 3, "init_images": [base64.b64encode(fox).decode()], "denoising_strength": 0.5}
    status, _, data = s.call("POST", sd + "/img2img", body)
    check(status == 200 and "init_images" not in data["parameters"] and json.loads(data["info"])["denoising_strength"] == 0.5, "img2img", data)
    status, _, data = s.call("POST", sd + "/txt2img", {"prompt": "a", "width": 1})
    check(status == 422 and data["detail"][0]["loc"] == ["body", "width"] and data["error"] == "invalid_value", "validation", data)
    check(s.call("POST", sd + "/img2img", {"prompt": "a"})[0] == 422 and s.call("GET", sd + "/none")[2]["error"] == "not_found", "errors")
    check(s.call("POST", sd + "/img2img", {**body, "init_images": ["!"]})[0] == 422, "not base64")
    read = s.call("POST", sd + "/png-info", {"image": "data:image/png;base64," + base64.b64encode(fox).decode()})[2]
    wanted = {"Prompt": "a fox", "Negative prompt": "", "Steps": "1", "Seed": "7", "Size-1": "64", "Size-2": "64"}
    check(read["info"].startswith("a fox\nSteps: 1, ") and {k: read["parameters"].get(k) for k in wanted} == wanted, "png-info", read)
    check(read["items"]["parameters"] == read["info"] and json.loads(read["items"]["lazuli"])["prompt"] == "a fox", "its items", read)
    bare = s.call("POST", sd + "/png-info", {"image": base64.b64encode(png(2, 2, lambda x, y: (1, 2, 3))).decode()})[2]
    check(bare == {"info": "", "items": {}, "parameters": {}}, "a picture without settings", bare)
    for wrong in ({}, {"image": "!"}, {"image": "R0lGODlh"}, {"image": 5}):
        check(s.call("POST", sd + "/png-info", wrong)[0] == 422, "no picture", wrong)
    done = {}
    thread = threading.Thread(target=lambda: done.update(answer=s.call("POST", sd + "/txt2img", {"prompt": "a fox", "width": 1024, "height": 1024})))
    thread.start()
    s.until("it runs", lambda: s.call("GET", sd + "/progress")[2]["state"]["job_count"] == 1)
    check(s.call("POST", sd + "/interrupt")[2] == {}, "interrupt")
    thread.join()
    check(done["answer"][0] == 200 and done["answer"][2]["images"] == [], "the pictures so far", done["answer"][2])


def test_guard(s):
    head = "GET /v1/models HTTP/1.1\r\n"
    post = f"POST /v1/images/generations HTTP/1.1\r\nHost: {s.host}\r\nContent-Type: application/json\r\n"
    for text, status in [(f"{head}Host: {s.host}\r\n\r\n", 200), (f"{head}Host: localhost:{s.port}\r\n\r\n", 200),
                         (f"{head}Host: evil.example\r\n\r\n", 403), (f"{head}Host: localhost.evil.example\r\n\r\n", 403),
                         (f"{head}\r\n", 400), (f"{head}Host: {s.host}\r\nHost: {s.host}\r\n\r\n", 400),
                         (f"{head}Host: {s.host}\r\nOrigin: http://evil.example\r\n\r\n", 403),
                         (f"{head}Host: {s.host}\r\nOrigin: null\r\n\r\n", 403),
                         (f"{head}Host: {s.host}\r\nOrigin: http://{s.host}\r\n\r\n", 200),
                         (f"{head}Host: {s.host}\r\nOrigin: https://friend.example\r\n\r\n", 200),
                         (f"{head}Host: {s.host}\r\nSec-Fetch-Site: cross-site\r\n\r\n", 403),
                         (f"GET /healthz HTTP/1.1\r\nHost: {s.host}\r\nOrigin: http://evil.example\r\n\r\n", 200),
                         (f"{post}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}", 400),
                         (f"{post}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n", 400),
                         (f"{post}Content-Length: 2\r\nTransfer-Encoding : chunked\r\n\r\n{{}}", 400),
                         (f"{post}Transfer-Encoding: gzip\r\n\r\n{{}}", 400),
                         (f"{head}Host: {s.host}x\r\n\r\n", 403), (f'{head}Host: 127.0.0.1:"\r\n\r\n', 403),
                         (f"OPTIONSX /v1/models HTTP/1.1\r\nHost: {s.host}\r\n\r\n", 405),
                         (f"HEAD /api/v1/events HTTP/1.1\r\nHost: {s.host}\r\n\r\n", 405),
                         (f"{post}Content-Length: 99999999999\r\n\r\n", 413), (f"{post}Content-Length: -1\r\n\r\n", 400),
                         (f"GET /files/../jobs.sqlite HTTP/1.1\r\nHost: {s.host}\r\n\r\n", 400),
                         (f"GET /files/%2e%2e%2fjobs.sqlite HTTP/1.1\r\nHost: {s.host}\r\n\r\n", 400),
                         (f"GET /v1/models/a%00b HTTP/1.1\r\nHost: {s.host}\r\n\r\n", 400),
                         (f"GET /v1/models HTTP/1.1\nHost: {s.host}\n\n", 400), (f"GET /v1/models?a&b=c HTTP/1.1\nHost: {s.host}\n\n", 400),
                         (f"GET /v1/models?a&b=c&=&& HTTP/1.1\r\nHost:{s.host}\r\n\r\n", 200),
                         (f"{head}Host: {s.host}\r\nX-A: {'b' * 16000}\r\n\r\n", 200),
                         (f"{head}Host: {s.host}\r\nX-A: {'b' * 17000}\r\n\r\n", 431),
                         (f"{head}Host: {s.host}\r\nX-A: {'b' * 40000}\r\n\r\n", 431),
                         (f"{head}Host:{s.host}\r\nX-A:b\r\n\r\n", 200)]:
        line = s.raw(text)
        check(f" {status} " in line, "Host, Origin and doubled headers", repr(text[:90]), line)
    answer = s.raw(f"{head}\r\n", True)
    check("application/json" in answer and '"the header host is missing"' in answer, "no Host", answer)
    small = Server("bodies", "--max-body", "4096")
    for size, status in ((4000, 400), (5000, 413), (9000, 413)):
        pieces = "".join(f"{len(p):x}\r\n{p}\r\n" for p in ["x" * 500] * (size // 500))
        line = small.raw(f"POST /v1/images/generations HTTP/1.1\r\nHost: {small.host}\r\nContent-Type: application/json\r\n"
                         f"Transfer-Encoding: chunked\r\n\r\n{pieces}0\r\n\r\n")
        check(f" {status} " in line, "a body in chunks", size, line)
    check(small.stop() == 0, "it ends")
    answer = s.call("OPTIONS", "/v1/images/generations", origin="https://friend.example")
    check(answer[0] == 204 and answer[1].getheader("access-control-allow-origin") == "https://friend.example", "preflight")
    check(s.call("GET", "/v1/models", origin="https://friend.example")[1].getheader("access-control-allow-credentials") is None, "no credentials")
    check(s.call("GET", "/v1/models")[1].getheader("x-content-type-options") == "nosniff", "nosniff")
    check(s.code("POST", "/v1/images/generations", {**SMALL, "output_format": "png jpeg"}) == (400, "unsupported_value"), "two formats")
    check(s.code("POST", "/api/v1/jobs", {"prompt": "a", "\u00e9" * 40: 1}) == (400, "unknown_parameter"), "a name that is cut within a character")
    body, kind = form({"prompt": "a"}, [])
    body = body.replace(b'"prompt"', b'"\xff"')
    check(s.code("POST", "/v1/images/edits", body, content_type=kind) == (400, "invalid_value"), "a part whose name is not UTF-8")
    status, _, data = s.call("GET", "/")
    check(status == 200 and b"<!doctype html>" in data and b"/v1/images/generations" in data, "the page")


def test_keys():
    with open(f"{WORK}/keys", "w") as file:
        file.write("# clients\nada secret-one\nroot secret-two admin\neve secret-three\n")
    os.chmod(f"{WORK}/keys", 0o600)
    s = Server("keyed", "--key-file", f"{WORK}/keys", "--allow-origin", "https://friend.example")
    status, answer, _ = s.call("OPTIONS", "/v1/models", origin="https://friend.example")
    check(status == 204 and answer.getheader("access-control-allow-headers") == "authorization, *", "preflight needs no key")
    check(s.call("OPTIONS", "/v1/models", origin="https://evil.example")[0] == 403, "preflight of another site")
    s.until("it is ready", lambda: s.call("GET", "/readyz")[0] == 200)
    data = s.call("POST", "/v1/images/generations", {**SMALL, "response_format": "url"}, authorization="Bearer secret-one", host='a"b')[2]
    check(data["data"][0]["url"].startswith("http://localhost/files/"), "a Host that is no name", data)
    models = "/v1/models"
    check(s.code("GET", models) == (401, "invalid_api_key"), "no key")
    check(s.code("GET", models, authorization="Bearer wrong-one") == (401, "invalid_api_key"), "a wrong key")
    check(s.code("GET", models, authorization="") == (401, "invalid_api_key"), "an empty key")
    basic = "Basic " + base64.b64encode(b"x:secret-one").decode()
    for headers in [{"authorization": "Bearer secret-one"}, {"authorization": basic}, {"api_key": "secret-one"}, {"x_api_key": "secret-one"},
                    {"authorization": "Bearer secret-one", "host": "any.example"}]:
        check(s.code("GET", models, **headers) == (200, None), "a key", headers)
    check(s.code("GET", "/healthz") == (200, None), "health needs no key")
    cookie = s.call("POST", "/api/v1/session", {"key": "secret-one"})[1].getheader("set-cookie")
    check("HttpOnly" in cookie and "SameSite=Strict" in cookie, "a cookie", cookie)
    check(s.code("GET", models, cookie=cookie.split(";")[0]) == (200, None), "a session")
    check(s.code("GET", models, cookie="lazuli_session=" + "a" * 32) == (401, "invalid_api_key"), "a wrong session")
    check(s.code("POST", "/api/v1/queue/pause", {}, authorization="Bearer secret-one") == (403, "admin_only"), "pause")
    check(s.call("POST", "/api/v1/queue/pause", {}, authorization="Bearer secret-two")[2]["paused"], "pause by an administrator")
    job = s.call("POST", "/api/v1/jobs", {"prompt": "a"}, authorization="Bearer secret-two")[2]["id"]
    check(s.code("GET", f"/api/v1/jobs/{job}", authorization="Bearer secret-one") == (404, "not_found"), "another's job")
    wrong = [s.code("GET", models, authorization=f"Bearer wrong-{n}")[0] for n in range(14)]
    check(wrong[0] == 401 and wrong[-1] == 429, "many wrong keys", wrong)
    s.until("the right key works again", lambda: s.code("GET", models, authorization="Bearer secret-one") == (200, None), 5)
    later = s.call("POST", "/api/v1/jobs", {"prompt": "a"}, authorization="Bearer secret-three")[2]
    check(later["queue_position"] == 2, "a job of another key that came later", later)
    check("secret" not in s.text() and "key:ada" in s.text(), "the log has names, not keys")
    admin = s.call("POST", "/api/v1/session", {"key": "secret-two"})[1].getheader("set-cookie").split(";")[0]
    with open(f"{WORK}/keys", "w") as file:
        file.write("ada secret-one\n")
    s.process.send_signal(signal.SIGHUP)
    s.until("the session of a removed key ends", lambda: s.call("GET", models, cookie=admin)[0] == 401, 10)
    check(s.code("GET", models, cookie=cookie.split(";")[0]) == (200, None), "the other session stays")
    check(s.stop() == 0, "it ends")


def test_places():
    """Paths that are not the server's own."""
    def refused(listen, state):
        done = subprocess.run([LAZULI, "serve", "--listen", listen, "--state", state], capture_output=True, text=True, timeout=60)
        return done.returncode == 1 and done.stderr

    file, shared, left = f"{WORK}/file", f"{WORK}/shared", f"{WORK}/left"
    with open(file, "w") as out:
        out.write("kept")
    check("cannot be listened on" in (refused("unix:" + file, f"{WORK}/places") or ""), "a file is no socket")
    check(open(file).read() == "kept", "the file is kept")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = refused(f"127.0.0.1:{taken.getsockname()[1]}", f"{WORK}/places") or ""
        check("another server runs there" in said, "a port that is taken", said)
    os.mkdir(shared)
    os.chmod(shared, 0o1777)
    check("everybody may write" in (refused("127.0.0.1:0", shared) or ""), "a folder that everybody may write to")
    check(os.stat(shared).st_mode & 0o7777 == 0o1777, "its mode is kept")
    os.makedirs(left + "/spool")
    open(left + "/spool/pic_half.png", "w").close()
    s = Server("left")
    check(not os.listdir(left + "/spool") and os.stat(left).st_mode & 0o777 == 0o700, "half a picture is removed")
    half = socket.create_connection(("127.0.0.1", s.port))
    half.sendall(f"POST /api/v1/jobs HTTP/1.1\r\nHost: {s.host}\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{{".encode())
    s.call("GET", "/healthz")
    begun = time.time()
    check(s.stop() == 0 and time.time() - begun < 20, "half a request does not delay the end")


def test_queue(s):
    """Cancelling by leaving, a full queue, fair turns."""
    path = "/v1/images/generations"
    client = 'lazuli_cancelled_total{why="client"}'
    before = s.metric(client)
    gone = s.leave(path, LONG)
    s.until("it runs", s.running)
    gone.close()
    check(s.until("it is cancelled", lambda: s.metric(client) == before + 1) < 1.5, "within a second")
    gone = s.leave(path, {**LONG, "stream": True})
    s.until("the stream runs", s.running)
    gone.close()
    check(s.until("the stream is cancelled", lambda: s.metric(client) == before + 2) < 1.5, "within a second")

    running = s.leave(path, LONG)
    s.until("it runs", s.running)
    waiting = [s.leave(path, SMALL) for _ in range(3)]
    s.until("three wait", lambda: s.metric('lazuli_jobs{state="queued"}') == 3)
    status, answer, data = s.call("POST", path, SMALL)
    check((status, data["error"]["code"]) == (429, "queue_full"), "a full queue", data)
    check(1 <= int(answer.getheader("retry-after")) <= 120, "when to come again")
    begun = time.time()
    check(s.call("GET", "/healthz")[0] == 200 and time.time() - begun < 1, "health meanwhile")
    jobs = s.call("GET", "/api/v1/jobs?state=queued")[2]["jobs"]
    check(sorted(j["queue_position"] for j in jobs) == [1, 2, 3], "positions", [j["queue_position"] for j in jobs])
    order = [j["id"] for j in sorted(jobs, key=lambda j: j["queue_position"])]
    for id, wanted in [(order[2], [order[2], order[0], order[1]]), (order[2], [order[2], order[0], order[1]]), (order[0], order[:1] + [order[2], order[1]])]:
        moved = s.call("POST", f"/api/v1/jobs/{id}/first")[2]
        jobs = s.call("GET", "/api/v1/jobs?state=queued")[2]["jobs"]
        check(moved["queue_position"] == 1 and [j["id"] for j in sorted(jobs, key=lambda j: j["queue_position"])] == wanted, "a job moves to the front", moved)
    running.close()
    for w in waiting:
        check(w.recv(12) == b"HTTP/1.1 200", "those who waited are answered")
        w.close()


def test_deaths(s, state):
    """kill -9 of the worker and of the front."""
    done = {}

    def ask():
        done["answer"] = s.call("POST", "/v1/images/generations", {**LONG, "size": "128x128", "num_inference_steps": 30})

    thread = threading.Thread(target=ask)
    thread.start()
    s.until("it runs", s.running)
    os.kill(s.worker(), signal.SIGKILL)
    thread.join()
    check(done["answer"][0] == 200 and s.metric("lazuli_worker_restarts_total") == 1, "a picture in spite of a dead worker", done["answer"][2])
    long = s.call("POST", "/api/v1/jobs", {"prompt": "a cat", "width": 128, "height": 128, "steps": 40, "seed": 5})[2]["id"]
    short = s.call("POST", "/api/v1/jobs", {"prompt": "a cat", "width": 64, "height": 64, "steps": 1})[2]["id"]
    s.until("it runs", s.running)
    worker = s.worker()
    s.stop(signal.SIGKILL)
    s = Server(state)
    s.until("the old worker is gone", lambda: not os.path.exists(f"/proc/{worker}") or open(f"/proc/{worker}/stat").read().split()[2] == "Z")
    s.until("both are done", lambda: all(s.call("GET", f"/api/v1/jobs/{j}")[2]["status"] == "completed" for j in (long, short)), 120)
    check(s.call("GET", f"/api/v1/jobs/{long}")[2]["attempts"] == 2, "the second attempt")

    # Three deaths fail the job, not the server
    job = s.call("POST", "/api/v1/jobs", {"prompt": "a cat", "width": 512, "height": 512, "steps": 200})[2]["id"]
    for n in range(3):
        s.until("it runs", lambda n=n: s.call("GET", f"/api/v1/jobs/{job}")[2]["attempts"] == n + 1 and s.running()
                and s.worker() and s.call("GET", f"/api/v1/jobs/{job}")[2]["stage"])
        os.kill(s.worker(), signal.SIGKILL)
        s.until("it is gone", lambda n=n: s.metric("lazuli_worker_restarts_total") == n + 1)
    error = s.call("GET", f"/api/v1/jobs/{job}")[2]["error"]
    check(error and error["code"] == "worker_lost", "three deaths", error)
    check(s.stop() == 0, "it ends without a worker")
    return Server(state)


def test_drain(s):
    path = "/v1/images/generations"
    s.until("ready", lambda: s.call("GET", "/readyz")[0] == 200)
    running = s.leave(path, {**SMALL, "size": "128x128", "num_inference_steps": 20})
    s.until("it runs", s.running)
    waiting = s.leave(path, SMALL)
    job = s.call("POST", "/api/v1/jobs", {"prompt": "later", "width": 64, "height": 64, "steps": 1})[2]["id"]
    check(s.stop() == 0, "it ends with 0")
    check(running.recv(12) == b"HTTP/1.1 200", "the running picture is finished")
    check(waiting.recv(12) == b"HTTP/1.1 503", "those who wait are told")
    check("a fox" not in s.text() and "later" not in s.text(), "no prompt is in the log")
    return job


def test_operator():
    """--strict, --pin, --max-input-pixels, --log, --log-prompts, $LAZULI_KEYS."""
    s = Server("strict", "--strict", "--pin", "steps,size", "--max-input-pixels", "5000", "--log", "json", "--log-prompts", "--previews", "off",
               env={**os.environ, "LAZULI_KEYS": "ada secret-one\nroot secret-two admin\n"})
    key = {"authorization": "Bearer secret-one"}
    path = "/v1/images/generations"
    s.until("it is ready", lambda: s.call("GET", "/readyz")[0] == 200)
    check(s.code("GET", "/v1/models") == (401, "invalid_api_key") and s.code("GET", "/v1/models", **key) == (200, None), "keys of the environment")
    check(s.code("POST", path, {**SMALL, "colour": "red"}, **key) == (400, "unknown_parameter"), "an unknown field")
    status, _, data = s.call("POST", "/sdapi/v1/txt2img", {"prompt": "a", "sampler_name": "Euler"}, **key)
    check(status == 422 and data["error"] == "unknown_parameter", "the same for /sdapi", data)
    check(s.code("POST", path, {**SMALL, "model": "gpt-image-1"}, **key) == (404, "model_not_found"), "a name of another model")
    status, answer, data = s.call("POST", path, {"prompt": "the fox of the log", "size": "64x64", "steps": 1, "model": "demo"}, **key)
    check(status == 200 and data["size"] == "256x256" and answer.getheader("x-lazuli-ignored") == "steps, width, height", "pinned", data.get("size"),
          answer.getheader("x-lazuli-ignored"))
    large = png(80, 80, lambda x, y: (x, y, 0))
    body, kind = form({"prompt": "a"}, [("image", large)])
    status, _, data = s.call("POST", "/v1/images/edits", body, content_type=kind, **key)
    check(status == 400 and "the most is 5000 pixels" in data["error"]["message"], "too many pixels", data)
    lines = [json.loads(line) for line in s.text().splitlines() if line.startswith("{")]
    asked = [line for line in lines if line.get("path") == path and line["status"] == 200]
    check(len(asked) == 1 and asked[0]["who"] == "key:ada" and asked[0]["method"] == "POST" and asked[0]["seconds"] > 0, "a line of JSON", asked)
    check(any("the fox of the log" in line.get("message", "") for line in lines), "a prompt in the log")
    check("secret" not in s.text(), "no key is in the log")
    check(s.stop() == 0, "it ends")


def test_idle():
    """The worker ends when nothing is to do, and comes back for the next picture."""
    s = Server("idle", "--idle-unload", "1")
    s.until("it is ready", lambda: s.call("GET", "/readyz")[0] == 200)
    s.until("the worker ends", lambda: not s.worker(), 20)
    check(s.call("GET", "/readyz")[0] == 200 and not s.call("GET", "/v1/models/demo")[2]["loaded"], "it is still ready")
    status, _, data = s.call("POST", "/v1/images/generations", SMALL)
    check(status == 200 and base64.b64decode(data["data"][0]["b64_json"]) == open(f"{WORK}/fox.png", "rb").read(), "a picture wakes it")
    check(s.metric("lazuli_worker_restarts_total") == 0, "which is no failure")
    check(s.call("POST", "/api/v1/models/demo/unload")[2]["loaded"] is False and not s.worker(), "unloaded by hand")
    check(s.call("POST", "/api/v1/models/demo/load")[0] == 202, "loaded by hand")
    s.until("it is loaded", lambda: s.call("GET", "/v1/models/demo")[2]["loaded"], 20)
    check(s.code("POST", "/api/v1/models/none/load") == (404, "model_not_found"), "no model")
    check(s.stop() == 0, "it ends")


def test_tls():
    """https, and a certificate that is replaced while the server runs."""
    def certificate(name):
        return subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                               "-addext", "subjectAltName=DNS:localhost", "-keyout", f"{WORK}/key.pem", "-out", f"{WORK}/cert.pem"],
                              stderr=subprocess.DEVNULL).returncode == 0

    def shown(port, version=None):
        """The certificate that the server shows, in DER. version: the client offers this version of TLS and no other."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if version:
            context.minimum_version = context.maximum_version = version
            context.set_ciphers("ALL:@SECLEVEL=0")  # OpenSSL offers no TLS below 1.2 at its usual level
        with socket.create_connection(("127.0.0.1", port), timeout=20) as plain, context.wrap_socket(plain) as s:
            return s.getpeercert(True)

    def other_server():
        """The port of a server for one connection, with any version of TLS."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.load_cert_chain(f"{WORK}/other-cert.pem", f"{WORK}/other-key.pem")
        listening = socket.create_server(("127.0.0.1", 0))
        listening.settimeout(20)

        def serve():
            with listening, listening.accept()[0] as plain, context.wrap_socket(plain, server_side=True) as s:
                s.recv(1)
        threading.Thread(target=serve, daemon=True).start()
        return listening.getsockname()[1]

    if not certificate("one"):
        print("skipped: openssl is missing")
        return
    s = Server("tls", "--cert", f"{WORK}/cert.pem", "--cert-key", f"{WORK}/key.pem")
    context = ssl.create_default_context(cafile=f"{WORK}/cert.pem")
    held = http.client.HTTPSConnection("localhost", s.port, timeout=60, context=context)

    def ask(method, path, body=None):
        held.request(method, path, json.dumps(body) if body else None, {"content-type": "application/json"})
        answer = held.getresponse()
        return answer.status, json.loads(answer.read())

    s.until("it is ready", lambda: ask("GET", "/readyz")[0] == 200)
    status, data = ask("POST", "/v1/images/generations", {**SMALL, "response_format": "url"})
    check(status == 200 and data["data"][0]["url"].startswith("https://localhost:"), "a picture by https", data)
    begun = ask("POST", "/v1/images/generations", SMALL)[1]
    check(base64.b64decode(begun["data"][0]["b64_json"]) == open(f"{WORK}/fox.png", "rb").read(), "the same bytes")
    first = shown(s.port)
    for name in ("cert", "key"):
        shutil.copy(f"{WORK}/{name}.pem", f"{WORK}/other-{name}.pem")
    certificate("two")
    s.process.send_signal(signal.SIGHUP)
    s.until("the certificate is new", lambda: shown(s.port) != first, 10)
    check(ask("GET", "/healthz")[0] == 200, "the old connection stays")
    with open(f"{WORK}/cert.pem", "w") as file:
        file.write("no certificate")
    second = shown(s.port)
    s.process.send_signal(signal.SIGHUP)
    s.until("it is said", lambda: "the certificate stays as it was" in s.text(), 10)
    check(shown(s.port) == second, "a wrong certificate changes nothing")
    check(shown(s.port, ssl.TLSVersion.TLSv1_2) == second, "TLS 1.2 is not refused")
    warnings.filterwarnings("ignore", "ssl.TLSVersion", DeprecationWarning)
    for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
        check(shown(other_server(), version), "this client can use the old version", version)
        try:
            shown(s.port, version)
            check(False, "an old version of TLS is refused", version)
        except OSError as error:  # the server closes the connection, or sends an alert before
            check(isinstance(error, ConnectionError) or getattr(error, "reason", "") in ("UNEXPECTED_EOF_WHILE_READING", "TLSV1_ALERT_PROTOCOL_VERSION"),
                  "the server refuses, not this client", version, repr(error))
    held.close()
    check(s.stop() == 0, "it ends")
    refused = subprocess.run([LAZULI, "serve", "--listen", "127.0.0.1:0", "--state", f"{WORK}/none", "--cert", f"{WORK}/cert.pem", "--cert-key", f"{WORK}/key.pem"],
                             capture_output=True, text=True, timeout=60)
    check(refused.returncode == 1 and "are not a certificate and its key" in refused.stderr, "no certificate", refused.stderr)


def test_load():
    """Clients that only listen are all served, and delay nobody. 1,000 of them: tests/serve/load.py."""
    s = Server("load")
    s.until("it is ready", lambda: s.call("GET", "/readyz")[0] == 200)
    counts = load.run(s.port, 100, 4, 1.5)
    check(counts["answered"] == 100 and counts["lost"] == 0 and counts["missed"] == 0, "idle clients", counts)
    check(counts["pictures"] > 0 and counts["refused"] == 0, "active clients", counts)
    check(counts["median_ms"] < 1000, "health meanwhile", counts)
    s.until("the connections are counted down again", lambda: s.metric("lazuli_http_connections") < 5, 10)
    check(s.stop() == 0, "it ends")


def test_limits():
    """A process that may open few files refuses connections before it runs out of descriptors."""
    s = Server("limits", before=["prlimit", "--nofile=330:330"])
    s.until("it is ready", lambda: s.call("GET", "/readyz")[0] == 200)
    held = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(75)]
    s.until("they are accepted", lambda: s.metric("lazuli_http_connections") > 74)
    check(s.call("GET", "/v1/models")[2]["error"]["code"] == "too_many_connections", "only health is answered")
    check(s.call("GET", "/healthz")[0] == 200, "health is")
    held += [socket.create_connection(("127.0.0.1", s.port)) for _ in range(40)]
    s.until("the last one is closed", lambda: select.select(held[-1:], [], [], 0)[0], 20)
    closed = select.select(held[:75], [], [], 0.3)[0]  # nothing was asked, so only an end can be read
    check(not closed, "those that were there stay", len(closed))
    try:
        last = held[-1].recv(1) if select.select(held[-1:], [], [], 0)[0] else None
    except ConnectionResetError:
        last = b""
    check(last == b"", "the end of the last one can be read", last)
    for h in held:
        h.close()
    def served():
        try:
            return s.call("GET", "/v1/models")[0] == 200
        except (OSError, http.client.HTTPException):  # closed at once, because the others are not gone yet
            return False
    s.until("they are gone", served, 10)
    check(s.stop() == 0, "it ends")


def test_addresses():
    """Several addresses, and sockets that are open already, as from systemd."""
    given = socket.socket()
    given.bind(("127.0.0.1", 0))
    given.listen(16)
    script = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid())); os.execv(sys.argv[2], sys.argv[2:])"
    s = Server("addresses", "--listen", f"unix:{WORK}/socket", before=[sys.executable, "-c", script, str(given.fileno())], pass_fds=[given.fileno()])
    port = given.getsockname()[1]
    given.close()
    for address in (s.port, port):
        c = http.client.HTTPConnection("127.0.0.1", address)
        c.request("GET", "/healthz")
        check(c.getresponse().status == 200, "an address", address)
    c = http.client.HTTPConnection("localhost")
    c.sock = socket.socket(socket.AF_UNIX)
    c.sock.connect(f"{WORK}/socket")
    c.request("GET", "/v1/models")
    check(c.getresponse().status == 200, "a socket in a folder")
    check(s.text().count("listening on") == 3, "each address is said", s.text())
    check(s.stop() == 0 and not os.path.exists(f"{WORK}/socket"), "the socket is removed")


def test_start():
    """Wrong options are one sentence and a code, and change nothing."""
    with open(f"{WORK}/notes", "w") as file:
        file.write("notes")
    for code, sentence, *options in [
            (2, "with a port up to 65535", "--listen", "127.0.0.1:99999"), (2, "--listen takes", "--listen", "7860"),
            (2, "--listen takes", "--listen", "127.0.0.1:http"), (2, "did you mean --listen?", "--port", "7860"),
            (2, "--public-url takes", "--public-url", "foo"), (2, "--public-url takes", "--public-url", "http://"),
            (2, "--allow-origin takes", "--allow-origin", "https://friend.example/"),
            (2, "--allow-origin takes", "--allow-origin", "*"),
            (2, "--pin takes auto", "--pin", "seed"), (2, "--log takes text or json", "--log", "xml"),
            (2, "--previews takes small, full or off", "--previews", "on"), (2, "are given together", "--cert", "a.pem"),
            (1, "cannot be read", "--cert", f"{WORK}/none", "--cert-key", f"{WORK}/none", "--listen", "127.0.0.1:0"),
            (1, "a key is needed", "--listen", "0.0.0.0:0")]:
        refused = subprocess.run([LAZULI, "serve", "--state", f"{WORK}/refused", *options], capture_output=True, text=True, timeout=60)
        check(refused.returncode == code and sentence in refused.stderr and refused.stderr.count("\n") == 1, "wrong options", options,
              refused.returncode, refused.stderr)
    check(not os.path.exists(f"{WORK}/refused"), "a server that does not start makes no state folder")
    refused = subprocess.run([LAZULI, "serve", "--listen", "127.0.0.1:0", "--state", f"{WORK}/refused", "-m", f"{WORK}/notes"],
                             capture_output=True, text=True, timeout=60)
    check(refused.returncode == 1 and "no model can be opened" in refused.stderr, "a model that cannot be opened", refused.stderr)
    server = Server("quick")
    check(server.port and server.stop() == 0 and "ending\n" in server.text(), "it ends without a picture", server.text())


def test_password():
    """The password of Redis is not in the list of processes, and none is ignored."""
    long = {**os.environ, "LAZULI_STORE_PASSWORD": "secret" * 22}
    for sentence, address, environment in [("set $LAZULI_STORE_PASSWORD", "redis://ada:secret@127.0.0.1:1", None),
                                           ("set $LAZULI_STORE_PASSWORD", "redis://:secret@127.0.0.1:1", None),
                                           ("$LAZULI_STORE_PASSWORD has more than 127 bytes", "redis://ada@127.0.0.1:1", long)]:
        refused = subprocess.run([LAZULI, "worker", "--store", address, "--pictures", f"{WORK}/refused"], capture_output=True, text=True, timeout=60,
                                 env=environment)
        if "built without hiredis" in refused.stderr:
            print("skipped: hiredis is missing")
            return
        check(refused.returncode == 1 and sentence in refused.stderr and refused.stderr.count("\n") == 1 and "secret" not in refused.stderr,
              "a password", address, refused.returncode, refused.stderr)


def test_confined():
    """The worker is confined even if a folder cannot be opened; where the kernel refuses, this is said."""
    if ctypes.CDLL(None).syscall(LANDLOCK, None, ctypes.c_size_t(0), 1) < 1:
        print("skipped: the kernel has no Landlock")
        return
    said = "Landlock does not confine this worker"
    with open(f"{WORK}/file", "w") as file:
        file.write("not a folder")
    # 16 sets of rules can lie on a process, so there is no room for that of the worker. These forbid block devices only.
    full = f"""
import ctypes, os, sys
call, rights = ctypes.CDLL(None).syscall, ctypes.c_uint64(1 << 11)
assert ctypes.CDLL(None).prctl(38, 1, 0, 0, 0) == 0
while call({LANDLOCK + 2}, call({LANDLOCK}, ctypes.byref(rights), ctypes.c_size_t(8), 0), 0) == 0: pass
os.execv(sys.argv[1], sys.argv[1:])"""
    for confined, before in [(True, []), (False, [sys.executable, "-c", full])]:
        s = Server(f"confined{confined}", before=before, env={**os.environ, "LAZULI_CACHE": f"{WORK}/file/cache"})
        s.until("it is ready", lambda s=s: s.call("GET", "/readyz")[0] == 200)
        check((said in s.text()) != confined, "what is said", confined, s.text())
        if confined:  # with the other sets of rules the front cannot move a picture to another folder
            check(s.call("POST", "/v1/images/generations", SMALL)[0] == 200, "a picture")
        check(s.stop() == 0, "it ends")


def test_transparent():
    """A model whose pictures have opacity."""
    s = Server("transparent", "-m", "tests/data/qwen21/B")
    s.until("it is ready", lambda: s.call("GET", "/readyz")[0] == 200)
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
    s.until("it is made", lambda: s.call("GET", f"/api/v1/jobs/{job['id']}")[2]["status"] == "completed")
    job = s.call("GET", f"/api/v1/jobs/{job['id']}")[2]
    check(s.call("GET", f"/api/v1/pictures/{job['pictures'][0]['id']}/file")[2][25] == 2, "the native field", job)
    kept = s.call("GET", "/api/v1/pictures?limit=10")[2]["pictures"]
    check(len(kept) == 7, "all are kept", kept)
    for p in kept:
        status, _, thumb = s.call("GET", f"/api/v1/pictures/{p['id']}/thumb")
        check(status == 200 and thumb[:4] == b"RIFF" and thumb[8:12] == b"WEBP", "a small picture", p, status)
    check(s.stop() == 0, "it ends")


def test_all():
    server = Server("state", "--queue", "3", "--queue-timeout", "86400", "--allow-origin", "https://friend.example")
    if not check(server.port, "the server listens", server.text()):
        return
    server.until("it is ready", lambda: server.call("GET", "/readyz")[0] == 200)
    test_openai(server)
    test_native(server)
    test_sdapi(server)
    transcripts.replay(server, form, check, open(f"{WORK}/fox.png", "rb").read())
    test_guard(server)
    test_queue(server)
    server = test_deaths(server, "state")
    later = test_drain(server)
    server = Server("state")
    server.until("the job that waited", lambda: server.call("GET", f"/api/v1/jobs/{later}")[2]["status"] == "completed")
    check(server.stop() == 0, "it ends again")
    test_transparent()
    test_keys()
    test_places()
    test_start()
    test_password()
    test_confined()
    test_operator()
    test_idle()
    test_tls()
    test_load()
    test_limits()
    test_addresses()


begun = time.time()
try:
    test_all()
except Exception:
    check(False, "an exception", traceback.format_exc())
for process in started:
    if process.poll() is None:
        process.kill()
if failed:
    print(open(f"{WORK}/log").read()[-3000:])
print(f"checks: {checks}, failed: {failed}, {time.time() - begun:.1f} s")
sys.exit(failed > 0)
