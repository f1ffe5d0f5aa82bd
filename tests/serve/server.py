"""server.py: starts `lazuli serve` for the programs of this folder."""
import http.client
import json
import re
import subprocess
import time


class Server:
    def __init__(self, lazuli, work, *options, port=0):
        self.log = f"{work}/log"
        with open(self.log, "ab") as log:
            start = log.seek(0, 2)
            self.process = subprocess.Popen([lazuli, "serve", "--listen", f"127.0.0.1:{port}", *options], stderr=log, stdout=subprocess.DEVNULL)
        self.port = None
        while not self.port and self.process.poll() is None:
            time.sleep(0.01)
            with open(self.log, "rb") as file:
                file.seek(start)
                found = re.search(rb"listening on http://[^:]*:(\d+)", file.read())
            self.port = int(found.group(1)) if found else None
        if not self.port:
            raise SystemExit(open(self.log).read()[-2000:])

    def call(self, method, path, body=None, key=None, timeout=120):
        """The status, the headers and the body, from JSON if it is JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            head = {"authorization": f"Bearer {key}"} if key else {}
            if body is not None:
                head["content-type"] = "application/json"
            connection.request(method, path, json.dumps(body) if body is not None else None, head)
            answer = connection.getresponse()
            data, kind = answer.read(), answer.getheader("content-type") or ""
            return answer.status, answer.headers, json.loads(data) if kind == "application/json" else data
        finally:
            connection.close()

    def wait(self, seconds=60):
        """Until a model is loaded."""
        until = time.time() + seconds
        while time.time() < until and self.call("GET", "/readyz")[0] != 200:
            time.sleep(0.02)

    def worker(self):
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as file:
            words = file.read().split()
        return int(words[0]) if words else None

    def metric(self, name, key=None):
        text = self.call("GET", "/metrics", key=key)[2].decode()
        return float(re.search("^" + re.escape(name) + r" (\S+)", text, re.M).group(1))

    def stop(self):
        self.process.terminate()
        return self.process.wait(90)


def resident(pid):
    """MiB in memory."""
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(r"VmRSS:\s*(\d+)", file.read()).group(1)) / 1024
