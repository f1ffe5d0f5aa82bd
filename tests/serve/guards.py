"""guards.py: who may ask, and what is refused: Host, Origin, keys, smuggled requests, TLS, too many connections."""
import base64
import http.client
import json
import os
import re
import select
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import threading
import time
import warnings

from pictures import SMALL, form, fox
from server import Place, check, frugal, resident, start, until


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
                         (f"{head}Host: {s.host}\r\nSec-Fetch-Site: same-site\r\n\r\n", 403),
                         (f"{head}Host: {s.host}\r\nSec-Fetch-Site: same-origin\r\n\r\n", 200),
                         (f"GET /metrics HTTP/1.1\r\nHost: {s.host}\r\nOrigin: http://evil.example\r\n\r\n", 403),
                         (f"GET /metrics HTTP/1.1\r\nHost: {s.host}\r\n\r\n", 200),
                         (f"GET / HTTP/1.1\r\nHost: {s.host}\r\nSec-Fetch-Site: cross-site\r\n\r\n", 200),
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
    # Two readers of these may not agree on where a line ends.
    plain, host = head.encode(), f"Host: {s.host}\r\n".encode()
    for text, status in [(plain + host + b"X-A: b\r\n\r\n", 200), (b"\r\n" + plain + host + b"\r\n", 200), (plain + host + b"X-A:\t b \r\nX-B:\r\n\r\n", 200),
                         (plain.replace(b"\r", b"") + host + b"\r\n", 400), (plain + host.replace(b"\r", b"") + b"X-A: b\r\n\r\n", 400),
                         (plain + host + b"X-A: b\n\r\n", 400), (plain + host + b"\n", 400), (plain + host + b"X-A: b\rX-B: c\r\n\r\n", 400),
                         (plain + host + b"X-A: b\0c\r\n\r\n", 400), (plain + host + b"X-A: b\0\r\n\r\n", 400), (plain + host + b"X-A: \0b\r\nX-B: c\r\n\r\n", 400),
                         (plain + host + b"X\0A: b\r\n\r\n", 400), (plain + host.replace(b":", b"\0:", 1) + b"\r\n", 400),
                         (plain + host + b"Content-Length: 0\0\r\n\r\n", 400), (plain + host + b"X-A: b\r\n c\r\n\r\n", 400), (plain + host + b"X-A: b\x01\r\n\r\n", 400),
                         (plain + host + b"X(A): b\r\n\r\n", 400), (plain + host + b"X-A\r\n\r\n", 400), (plain + host + b": b\r\n\r\n", 400),
                         (b"GET /v1/models\0x HTTP/1.1\r\n" + host + b"\r\n", 400), (b"GET /v1/models?a=b\0x HTTP/1.1\r\n" + host + b"\r\n", 400),
                         (b"GET  /v1/models  HTTP/1.1\r\n" + host + b"\r\n", 400), (b"GET /v1/models x HTTP/1.1\r\n" + host + b"\r\n", 400),
                         (b"GET /v1/models\x01 HTTP/1.1\r\n" + host + b"\r\n", 400), (b"GET /v1/models? HTTP/1.1\r\n" + host + b"\r\n", 200),
                         (post.encode().replace(b"HTTP/1.1", b"HTTP/1.0") + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 400),
                         (post.encode() + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", 400),
                         (post.encode() + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", 400), (post.encode() + b"Content-Length: +2\r\n\r\n{}", 400),
                         (post.encode() + b"Content-Length: 2, 2\r\n\r\n{}", 400), (post.encode() + b"Content-Length: 0x2\r\n\r\n{}", 400)]:
        line = s.raw(text)
        check(f" {status} " in line, "ends of lines, and zeros", text[-60:], line)
    keep = s.raw(plain + host + b"\r\n" + plain + host + b"Connection: close\r\n\r\n", True)
    check(keep.count("HTTP/1.1 200") == 2, "two requests at once are two", keep[:60])
    answer = s.raw(f"{head}\r\n", True)
    check("application/json" in answer and '"the header host is missing"' in answer, "no Host", answer)
    small = start("bodies", "--max-body", "4096")
    for size, status in ((4000, 400), (5000, 413), (9000, 413)):
        pieces = "".join(f"{len(p):x}\r\n{p}\r\n" for p in ["x" * 500] * (size // 500))
        line = small.raw(f"POST /v1/images/generations HTTP/1.1\r\nHost: {small.host}\r\nContent-Type: application/json\r\n"
                         f"Transfer-Encoding: chunked\r\n\r\n{pieces}0\r\n\r\n")
        check(f" {status} " in line, "a body in chunks", size, line)
    check(small.stop() == 0, "it ends")
    answer = s.call("OPTIONS", "/v1/images/generations", origin="https://friend.example")
    check(answer[0] == 204 and answer[1].getheader("access-control-allow-origin") == "https://friend.example", "preflight")
    check(s.call("GET", "/v1/models", origin="https://friend.example")[1].getheader("access-control-allow-credentials") is None, "no credentials")
    answer = s.call("GET", "/v1/models")[1]
    heads = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer", "cross-origin-resource-policy": "same-origin", "cache-control": "no-store"}
    check({name: answer.getheader(name) for name in heads} == heads, "headers of every answer", answer.getheaders())
    check(s.call("DELETE", "/api/v1/pictures/x/file")[1].getheader("allow") == "GET" and s.call("PUT", "/v1/images/edits")[1].getheader("allow") == "POST", "what a path takes")
    for given in ("a b", "x" * 65, "\u00e9".encode().decode("latin-1")):
        check(s.call("GET", "/v1/models", x_request_id=given)[1].getheader("x-request-id").startswith("req_"), "an id that is not taken", given)
    check(s.code("POST", "/v1/images/generations", {**SMALL, "output_format": "png jpeg"}) == (400, "unsupported_value"), "two formats")
    check(s.code("POST", "/api/v1/jobs", {"prompt": "a", "\u00e9" * 40: 1}) == (400, "unknown_parameter"), "a name that is cut within a character")
    body, kind = form({"prompt": "a"}, [])
    body = body.replace(b'"prompt"', b'"\xff"')
    check(s.code("POST", "/v1/images/edits", body, content_type=kind) == (400, "invalid_value"), "a part whose name is not UTF-8")
    status, _, data = s.call("GET", "/")
    check(status == 200 and b"<!doctype html>" in data and b"/v1/images/generations" in data, "the page")


def test_keys():
    with open(f"{Place.work}/keys", "w") as file:
        file.write("# clients\nada secret-one\nroot secret-two admin\neve secret-three\n")
    os.chmod(f"{Place.work}/keys", 0o600)
    s = start("keyed", "--key-file", f"{Place.work}/keys", "--allow-origin", "https://friend.example")
    status, answer, _ = s.call("OPTIONS", "/v1/models", origin="https://friend.example")
    check(status == 204 and answer.getheader("access-control-allow-headers") == "authorization, *", "preflight needs no key")
    check(s.call("OPTIONS", "/v1/models", origin="https://evil.example")[0] == 403, "preflight of another site")
    s.wait()
    data = s.call("POST", "/v1/images/generations", {**SMALL, "response_format": "url"}, authorization="Bearer secret-one", host='a"b')[2]
    check(data["data"][0]["url"].startswith("http://localhost/files/"), "a Host that is no name", data)
    models = "/v1/models"
    check(s.code("GET", models) == (401, "invalid_api_key"), "no key")
    asks = [s.call("GET", path)[1].getheader("www-authenticate") for path in (models, "/api/v1/about", "/sdapi/v1/options")]
    check(asks == ["Bearer", "Bearer", 'Basic realm="lazuli"'], "how a key is sent", asks)
    check(s.code("GET", models, authorization="Bearer wrong-one") == (401, "invalid_api_key"), "a wrong key")
    check(s.code("GET", models, authorization="") == (401, "invalid_api_key"), "an empty key")
    basic = "Basic " + base64.b64encode(b"x:secret-one").decode()
    for headers in [{"authorization": "Bearer secret-one"}, {"authorization": basic}, {"api_key": "secret-one"}, {"x_api_key": "secret-one"}, {"api_key": "", "x_api_key": "secret-one"},
                    {"authorization": "Bearer secret-one", "host": "any.example"}]:
        check(s.code("GET", models, **headers) == (200, None), "a key", headers)
    check(s.code("GET", "/healthz") == (200, None), "health needs no key")
    cookie = s.call("POST", "/api/v1/session", {"key": "secret-one"})[1].getheader("set-cookie")
    check(re.fullmatch("lazuli_session=[a-z2-7]{32}; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict", cookie), "a cookie", cookie)
    check(s.code("GET", models, cookie=cookie.split(";")[0]) == (200, None), "a session")
    check(s.code("GET", models, cookie="lazuli_session=" + "a" * 32) == (401, "invalid_api_key"), "a wrong session")
    check(s.code("POST", "/api/v1/queue/pause", {}, authorization="Bearer secret-one") == (403, "admin_only"), "pause")
    heard = socket.create_connection(("127.0.0.1", s.port), timeout=60)
    heard.sendall(f"GET /api/v1/events HTTP/1.1\r\nHost: {s.host}\r\nAuthorization: Bearer secret-one\r\n\r\n".encode())
    check(heard.recv(12) == b"HTTP/1.1 200", "events of another key")
    check(s.call("POST", "/api/v1/queue/pause", {}, authorization="Bearer secret-two")[2]["paused"], "pause by an administrator")
    text = b""
    while b'event: queue\ndata: {"paused":true}\n\n' not in text:
        piece = heard.recv(4096)
        text += piece
        if not check(piece, "everybody is told of the pause", text):
            break
    heard.close()
    job = s.call("POST", "/api/v1/jobs", {"prompt": "a"}, authorization="Bearer secret-two")[2]["id"]
    check(s.code("GET", f"/api/v1/jobs/{job}", authorization="Bearer secret-one") == (404, "not_found"), "another's job")
    wrong = [s.code("GET", models, authorization=f"Bearer wrong-{n}")[0] for n in range(14)]
    check(wrong[0] == 401 and wrong[-1] == 429, "many wrong keys", wrong)
    status, answer, data = s.call("POST", "/api/v1/session", {"key": "wrong-one"})
    check((status, data["error"]["code"], answer.getheader("retry-after")) == (429, "too_many_failures", "1"), "a further wrong key", data)
    check(s.code("GET", models, authorization="Bearer secret-one") == (200, None), "a right key of the same address is taken")
    check(s.call("POST", "/api/v1/session", {"key": "secret-one"})[0] == 200, "and opens a session")
    until("a wrong key is called wrong again", lambda: s.code("GET", models, key="wrong-one") == (401, "invalid_api_key"))
    later = s.call("POST", "/api/v1/jobs", {"prompt": "a"}, authorization="Bearer secret-three")[2]
    check(later["eta_seconds"] is None, "nobody knows when a queue goes on", later["eta_seconds"])
    check(later["queue_position"] == 2 and later["steps"] == 4, "a job of another key that came later", later)
    urgent = s.call("POST", "/api/v1/jobs", {"prompt": "a", "priority": 1}, key="secret-two")[2]["id"]
    check([s.job(id, key="secret-two")["queue_position"] for id in (urgent, later["id"], job)] == [1, 2, 3], "the urgent job of a key is its first")
    check(s.code("POST", "/api/v1/jobs", {"prompt": "a", "priority": 1}, key="secret-one") == (403, "admin_only"), "only an administrator's is urgent")
    for path, body in (("/v1/images/generations", SMALL), ("/v1/images/generations", {**SMALL, "stream": True})):
        status, answer, data = s.call("POST", path, body, key="secret-one")
        check((status, data["error"]["code"]) == (503, "paused") and 1 <= int(answer.getheader("retry-after")) <= 120, "nobody waits for a queue that is stopped", data)
    check("secret" not in s.text() and "key:ada" in s.text(), "the log has names, not keys")
    admin = s.call("POST", "/api/v1/session", {"key": "secret-two"})[1].getheader("set-cookie").split(";")[0]
    with open(f"{Place.work}/keys", "w") as file:
        file.write("ada secret-one\n")
    s.process.send_signal(signal.SIGHUP)
    until("the session of a removed key ends", lambda: s.call("GET", models, cookie=admin)[0] == 401)
    check(s.code("GET", models, cookie=cookie.split(";")[0]) == (200, None), "the other session stays")
    check(s.stop() == 0, "it ends")


def test_tls():
    """https, and a certificate that is replaced while the server runs."""
    def certificate(name):
        return subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                               "-addext", "subjectAltName=DNS:localhost", "-keyout", f"{Place.work}/key.pem", "-out", f"{Place.work}/cert.pem"],
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
        context.load_cert_chain(f"{Place.work}/other-cert.pem", f"{Place.work}/other-key.pem")
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
    s = start("tls", "--cert", f"{Place.work}/cert.pem", "--cert-key", f"{Place.work}/key.pem")
    context = ssl.create_default_context(cafile=f"{Place.work}/cert.pem")
    held = http.client.HTTPSConnection("localhost", s.port, timeout=60, context=context)

    def ask(method, path, body=None):
        held.request(method, path, json.dumps(body) if body else None, {"content-type": "application/json"})
        answer = held.getresponse()
        return answer.status, json.loads(answer.read())

    until("it is ready", lambda: ask("GET", "/readyz")[0] == 200)
    status, data = ask("POST", "/v1/images/generations", {**SMALL, "response_format": "url"})
    check(status == 200 and data["data"][0]["url"].startswith("https://localhost:"), "a picture by https", data)
    begun = ask("POST", "/v1/images/generations", SMALL)[1]
    check(base64.b64decode(begun["data"][0]["b64_json"]) == fox(), "the same bytes")
    first = shown(s.port)
    for name in ("cert", "key"):
        shutil.copy(f"{Place.work}/{name}.pem", f"{Place.work}/other-{name}.pem")
    certificate("two")
    s.process.send_signal(signal.SIGHUP)
    until("the certificate is new", lambda: shown(s.port) != first)
    check(ask("GET", "/healthz")[0] == 200, "the old connection stays")
    with open(f"{Place.work}/cert.pem", "w") as file:
        file.write("no certificate")
    second = shown(s.port)
    s.process.send_signal(signal.SIGHUP)
    until("it is said", lambda: "the certificate stays as it was" in s.text())
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
    refused = subprocess.run([Place.lazuli, "serve", "--listen", "127.0.0.1:0", "--state", f"{Place.work}/none", "--cert", f"{Place.work}/cert.pem", "--cert-key", f"{Place.work}/key.pem"],
                             capture_output=True, text=True, timeout=60)
    check(refused.returncode == 1 and "are not a certificate and its key" in refused.stderr, "no certificate", refused.stderr)


class Slow:
    """Clients whose requests never come whole: the head, the body, nothing at all. They are closed after 30 seconds. And a stream
    that waits as long, because the worker is stopped."""
    def __init__(self):
        self.s = start("slow")
        self.s.wait()
        worker = self.s.worker()
        os.kill(worker, signal.SIGSTOP)
        threading.Timer(32, os.kill, (worker, signal.SIGCONT)).start()  # after 60 seconds the server would replace it
        self.stream = self.s.leave("/v1/images/generations", {**SMALL, "stream": True})
        self.begun = time.time()
        head = f"POST /api/v1/jobs HTTP/1.1\r\nHost: {self.s.host}\r\nContent-Type: application/json\r\nX-Request-Id: mine\r\nContent-Length: 9\r\n"
        self.clients = [socket.create_connection(("127.0.0.1", self.s.port), timeout=60) for _ in range(3)]
        self.clients[0].sendall(head.encode())
        self.clients[1].sendall(head.encode() + b"\r\n{")
        self.large = socket.create_connection(("127.0.0.1", self.s.port), timeout=60)
        self.large.sendall(head.replace("Length: 9", f"Length: {32 << 20}").encode() + b"\r\n" + bytes(16 << 20))
        self.plans = [self.s.leave("/api/v1/plan", {"prompt": "a"}) for _ in range(33)]
        until("some are refused", lambda: select.select(self.plans, [], [], 0)[0])
        refused = [p for p in self.plans if select.select([p], [], [], 0.2)[0]]
        check(1 <= len(refused) <= 2 and refused[0].recv(12) == b"HTTP/1.1 429", "32 plans are waited for", len(refused))  # one may be the stream's
        self.plans = [p for p in self.plans if p not in refused]
        self.plans.pop().close()
        until("a place is free when a client has left", self.plan_waits)
        self.drip = threading.Thread(target=self.send_little, daemon=True)
        self.drip.start()

    def plan_waits(self):
        plan = self.s.leave("/api/v1/plan", {"prompt": "a"})
        if select.select([plan], [], [], 0.5)[0]:
            plan.close()
            return False
        self.plans.append(plan)
        return True

    def send_little(self):
        """Of half a large body there is a byte a second more, so that the connection is never idle."""
        try:
            while True:
                time.sleep(1)
                self.large.sendall(b" ")
        except OSError:
            self.closed = time.time()

    def end(self):
        answers = [b"", b"", b""]
        for i, c in enumerate(self.clients):
            while piece := c.recv(4096):
                answers[i] += piece
            c.close()
        check(29 < time.time() - self.begun, "they have 30 seconds", time.time() - self.begun)
        check(answers[0] == answers[2] == b"", "no request, no answer", answers)
        head, _, body = answers[1].decode().partition("\r\n\r\n")
        check(head.startswith("HTTP/1.1 408 ") and "x-request-id: mine" in head and json.loads(body)["error"]["code"] == "request_timeout", "half a request", answers[1])
        for plan in self.plans:
            answer = plan.recv(4096)
            check(answer.startswith(b"HTTP/1.1 503 ") and b"within 20 seconds" in answer and b"retry-after" in answer.lower(), "a plan that does not come", answer)
            plan.close()
        check(self.s.call("POST", "/api/v1/plan", {"prompt": "a"})[0] == 200, "a plan, once the worker goes on")
        self.drip.join(20)
        check(not self.drip.is_alive() and 29 < self.closed - self.begun < 60, "what has been sent early gives no time for later", self.drip.is_alive())
        check(self.s.metric('lazuli_http_requests_total{path="/api/v1/jobs",code="4xx"}') == 2, "they are counted")
        text = b""
        while b"completed" not in text and (piece := self.stream.recv(1 << 16)):
            text += piece
        self.stream.close()
        comments = re.findall(rb"\r\n: 0 before you[^\n]*\n\n", text)
        check(len(comments) >= 3 and b"event: image_generation.completed" in text, "a comment every ten seconds", text[:900])
        check(self.s.stop() == 0, "it ends")


def test_bodies():
    """Bodies of requests have 256 MiB together."""
    s, size = start("bodies2"), 63 << 20
    head = f"POST /api/v1/jobs HTTP/1.1\r\nHost: {s.host}\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n".encode()
    held = [socket.create_connection(("127.0.0.1", s.port), timeout=60) for _ in range(4)]
    for h in held:
        h.sendall(head + bytes(size - 1))
    until("all have come", lambda: s.raw(head).startswith("HTTP/1.1 429"))
    check(s.call("GET", "/v1/models")[0] == 200, "requests without a body are answered")
    for h in held:
        h.close()
    until("they are forgotten", lambda: s.code("POST", "/api/v1/jobs", {}) == (400, "missing_required_parameter"))
    check(s.stop() == 0, "it ends")


def test_answers():
    """Answers that their clients do not read have 512 MiB together."""
    s, path = start("answers"), "/v1/images/generations"
    s.wait()
    check(s.call("POST", path, SMALL, idempotency_key="large")[0] == 200, "a picture")
    check(s.stop() == 0, "it ends")
    with sqlite3.connect(s.state + "/jobs.sqlite") as db:  # the picture becomes a large one
        name, size = db.execute("SELECT id FROM pictures").fetchone()[0], 90 << 20
        db.execute("UPDATE pictures SET bytes=?", (size,))
    db.close()
    os.truncate(f"{s.state}/pictures/{name}.png", size)
    s = start("answers")
    s.wait()
    body = json.dumps(SMALL)
    text = f"POST {path} HTTP/1.1\r\nHost: {s.host}\r\nContent-Type: application/json\r\nIdempotency-Key: large\r\nContent-Length: {len(body)}\r\n\r\n{body}"

    def begin():
        c = socket.create_connection(("127.0.0.1", s.port), timeout=60)
        c.sendall(text.encode())
        return c, c.recv(12)
    held = [begin() for _ in range(4)]
    check(all(line == b"HTTP/1.1 200" for _, line in held), "four large answers", [line for _, line in held])
    last, line = begin()
    answer = line + last.recv(4096)
    check(b" 429 " in answer and b"retry-after: " in answer.lower() and b"queue_full" in answer, "the fifth has no room", answer)
    check(s.call("GET", "/v1/models")[0] == 200, "small answers are sent")
    for c, _ in held + [(last, b"")]:
        c.close()

    def fits():
        c, line = begin()
        c.close()
        return line == b"HTTP/1.1 200"
    until("there is room when they have gone", fits, 10, 0.2)
    check(s.stop() == 0, "it ends")


def test_unread():
    """Events that their readers do not take fill no memory and keep nobody from pictures; a reader that comes back gets the rest."""
    s = start("unread", "--queue", "200", "--queue-per-key", "200", env=frugal())
    s.wait()
    held = []
    for _ in range(16):
        c = socket.socket()
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.connect(("127.0.0.1", s.port))
        c.sendall(f"GET /api/v1/events HTTP/1.1\r\nHost: {s.host}\r\n\r\n".encode())
        held.append(c)
    until("they are there", lambda: s.metric("lazuli_http_connections") >= 16)
    before = resident(s.process.pid)
    s.call("POST", "/api/v1/queue/pause", {})
    body = {"prompt": "\1" * 32000, "width": 64, "height": 64, "steps": 1}
    for _ in range(40):  # each has 200 KB of events or more
        id = s.call("POST", "/api/v1/jobs", body)[2]["id"]
        check(s.call("POST", f"/api/v1/jobs/{id}/cancel", {})[0] == 200, "cancelled")
    s.call("POST", "/api/v1/queue/resume", {})
    more = resident(s.process.pid) - before
    check(more < 16 * 2 + 64, "the front has not kept them", more)
    check(s.call("POST", "/v1/images/generations", SMALL)[0] == 200, "a picture for somebody else")
    held[0].settimeout(20)
    text = b""
    while not text.endswith(b"\r\n0\r\n\r\n") and (piece := held[0].recv(1 << 16)):
        text += piece
    ids = re.findall(rb"\nid: (\d+)\n", text)
    check(text.endswith(b"0\r\n\r\n") and len(ids) > 1 and len(text) < 8 << 20, "the stream ended after what it had", len(text), text[-40:])
    rest = http.client.HTTPConnection("127.0.0.1", s.port, timeout=20)
    rest.request("GET", "/api/v1/events", headers={"last-event-id": ids[-1].decode()})
    line = next(line for line in rest.getresponse() if line.startswith(b"id: "))
    check(line == b"id: %d\n" % (int(ids[-1]) + 1), "and its client gets the rest", line, ids[-1])
    rest.close()
    for c in held:
        c.close()
    check(s.stop() == 0, "it ends")


def test_fields():
    """A route has no longer body than it can use, and a body has no more values than a request can need."""
    with open(f"{Place.work}/few-keys", "w") as file:
        file.write("ada secret-one admin\n")
    os.chmod(f"{Place.work}/few-keys", 0o600)
    s = start("fields", "--key-file", f"{Place.work}/few-keys", env=frugal())
    s.wait()
    front = s.process.pid
    many = '{"key":[' + "{}," * 5_000_000 + "{}]}"
    kind = {"content_type": "application/json"}
    before = resident(front)
    head = f"HTTP/1.1\r\nHost: {s.host}\r\nContent-Type: application/json\r\n"
    line = s.raw(f"POST /api/v1/session {head}Content-Length: {len(many)}\r\n\r\n")
    check(" 413 " in line, "a long body of a route without a key is refused by its head", line)
    line = s.raw(f"POST /api/v1/session {head}Transfer-Encoding: chunked\r\n\r\n1388\r\n{' ' * 5000}\r\n0\r\n\r\n")
    check(" 413 " in line, "and in chunks", line)
    line = s.raw(f"GET /healthz {head}Content-Length: 5000\r\n\r\n")
    check(" 413 " in line, "a body that nobody looks at", line)
    for path in ("/v1/images/generations", "/api/v1/uploads"):
        line = s.raw(f"POST {path} {head}Content-Length: 60000000\r\n\r\n")
        check(" 401 " in line, "without a key no body is waited for", path, line)
    for method, path in (("PUT", "/api/v1/pictures/pic_x"), ("POST", "/sdapi/v1/options"), ("POST", "/api/v1/queue/resume")):
        status, _, data = s.call(method, path, '{"a": "' + "b" * (64 << 10) + '"}', key="secret-one", **kind)
        check(status == 413 and "request_too_large" in str(data), "a route without images", path, data)
    check(s.call("POST", "/sdapi/v1/options", {"a": "b" * 60000}, key="secret-one")[0] == 200, "up to 64 KiB")
    for body in (many, '{"prompt": "a", "x": [' + "1," * 100_000 + "1]}", '{"prompt": "a", ' + ", ".join(f'"k{n}": 1' for n in range(100_001)) + "}"):
        for path in ("/v1/images/generations", "/api/v1/jobs", "/sdapi/v1/txt2img"):
            status, _, data = s.call("POST", path, body, key="secret-one", **kind)
            check(status == 400 and "more than 100000 values" in str(data), "a body with very many values", path, data)
    check(s.call("POST", "/v1/images/generations", {**SMALL, "user": "{[," * 40}, key="secret-one")[0] == 200, "signs within a text are no values")
    check(resident(front) < before + 200, "they were not built", before, resident(front))
    check(s.stop() == 0, "it ends")


def test_limits():
    """A process that may open few files refuses connections before it runs out of descriptors."""
    s = start("limits", before=["prlimit", "--nofile=330:330"])
    s.wait()
    held = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(75)]
    until("they are accepted", lambda: s.metric("lazuli_http_connections") > 74)
    check(s.call("GET", "/v1/models")[2]["error"]["code"] == "too_many_connections", "only health is answered")
    check(s.call("GET", "/healthz")[0] == 200, "health is")
    held += [socket.create_connection(("127.0.0.1", s.port)) for _ in range(40)]
    until("the last one is closed", lambda: select.select(held[-1:], [], [], 0)[0])
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
    until("they are gone", served)
    check(s.stop() == 0, "it ends")
