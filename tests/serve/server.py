"""server.py: starts `lazuli serve`, talks to it, and counts checks; for all tests of the server."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import traceback


class Place:
    """The program that is tested, and a folder for the files of the test."""
    lazuli = work = None


class Counts:
    checks = failed = 0


def check(good, what, *more):
    Counts.checks += 1
    if not good:
        Counts.failed += 1
        print("FAILED:", what, *more)
    return good


def until(what, test, seconds=120, pause=0.02):
    """Waits for a condition; returns the seconds that it took. The limit is generous, for slow and busy machines."""
    begun = time.time()
    while time.time() < begun + seconds:
        if test():
            return time.time() - begun
        time.sleep(pause)
    check(False, what, "not after", seconds, "s")
    return seconds


class NotStarted(Exception):
    pass


started = []


class Server:
    """A server of its own port. before: words of the command line before the program. more: for subprocess.Popen."""
    def __init__(self, lazuli, work, *options, port=0, log="log", before=(), **more):
        self.log = f"{work}/{log}"
        with open(self.log, "ab") as out:
            self.start = out.seek(0, 2)
            self.process = subprocess.Popen([*before, lazuli, "serve", "--listen", f"127.0.0.1:{port}", *options], stderr=out, stdout=subprocess.DEVNULL, **more)
        started.append(self.process)
        self.port, end = None, time.time() + 60
        while not self.port and time.time() < end and self.process.poll() is None:
            found = re.findall(r"listening on https?://[^:]*:(\d+)", self.text())
            self.port = int(found[-1]) if found else time.sleep(0.02)
        if not self.port:
            raise NotStarted(self.text()[-2000:])
        self.host = f"127.0.0.1:{self.port}"
        self.url = "http://" + self.host

    def text(self):
        """What this server has printed."""
        with open(self.log, "rb") as file:
            file.seek(self.start)
            return file.read().decode(errors="replace")

    def call(self, method, path, body=None, key=None, timeout=120, **headers):
        """The status, the headers and the body, from JSON if it is JSON. In the names of headers _ stands for -."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            if isinstance(body, dict):
                body = json.dumps(body)
                headers.setdefault("content_type", "application/json")
            if key:
                headers["authorization"] = f"Bearer {key}"
            connection.request(method, path, body, {name.replace("_", "-"): text for name, text in headers.items()})
            answer = connection.getresponse()
            data, kind = answer.read(), answer.getheader("content-type") or ""
            return answer.status, answer, json.loads(data) if kind == "application/json" else data
        finally:
            connection.close()

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
        s.sendall(text if isinstance(text, bytes) else text.encode())
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

    def wait(self, seconds=120):
        """Until a model is loaded."""
        return until("it is ready", lambda: self.call("GET", "/readyz")[0] == 200, seconds)

    def job(self, id, **headers):
        return self.call("GET", f"/api/v1/jobs/{id}", **headers)[2]

    def metric(self, name, **headers):
        text = self.call("GET", "/metrics", **headers)[2].decode()
        return float(re.search("^" + re.escape(name) + r" (\S+)", text, re.M).group(1))

    def running(self):
        return self.metric('lazuli_jobs{state="in_progress"}') == 1

    def cpu_seconds(self):
        """The processor time of the front; unlike the time of a clock it does not depend on what else the machine does."""
        with open(f"/proc/{self.process.pid}/stat") as file:
            words = file.read().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def worker(self):
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as file:
            words = file.read().split()
        return int(words[0]) if words else None

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        return self.process.wait(90)


def start(state, *options, **more):
    """A server whose state is in the test's folder."""
    s = Server(Place.lazuli, Place.work, "--state", f"{Place.work}/{state}", *options, **more)
    s.state = f"{Place.work}/{state}"
    return s


def frugal():
    """An environment in which the address sanitizer, if there is one, keeps little of the memory that was freed; for tests that measure it."""
    return {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1"}


def resident(pid):
    """MiB in memory."""
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(r"VmRSS:\s*(\d+)", file.read()).group(1)) / 1024


def main(test):
    """Runs the test, ends what it has started, and prints the counts."""
    begun = time.time()
    try:
        test()
    except Exception:
        check(False, "an exception", traceback.format_exc())
    for process in started:
        if process.poll() is None:
            process.kill()
    if Counts.failed and os.path.exists(f"{Place.work}/log"):
        print(open(f"{Place.work}/log", errors="replace").read()[-3000:])
    print(f"checks: {Counts.checks}, failed: {Counts.failed}, {time.time() - begun:.1f} s")
    sys.exit(Counts.failed > 0)
