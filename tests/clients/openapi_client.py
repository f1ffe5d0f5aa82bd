"""openapi_client.py LAZULI [EXAMPLES]: schemathesis against `lazuli serve`, with the OpenAPI document that it serves.

The queue is stopped and full, so that no request makes a picture: what is well-formed is answered with 429. Then every path
is asked for without a key, from a server that needs one. `make test-clients` runs it.
"""
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

LAZULI, EXAMPLES = os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "15"
SCHEMATHESIS = os.path.join(os.path.abspath(os.path.dirname(sys.executable)), "schemathesis")
# Well-formed fields may still be refused (an image that is no picture), so positive_data_acceptance is left out.
CHECKS = ["not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance",
          "negative_data_rejection", "unsupported_method"]


def call(url, method, path, body=None, key=None):
    head = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}
    asked = urllib.request.Request(url + path, json.dumps(body).encode() if body is not None else None, head, method=method)
    return json.load(urllib.request.urlopen(asked, timeout=60))


class Server:
    def __init__(self, work, name, *options):
        os.makedirs(f"{work}/{name}")
        with open(f"{work}/{name}/log", "w") as log:
            self.process = subprocess.Popen([LAZULI, "serve", "--listen", "127.0.0.1:0", "--state", f"{work}/{name}/state", "--queue", "1", "-q", *options],
                                            stderr=log)
        self.url, until = None, time.time() + 60
        while not (self.url and self.status("GET", "/readyz") == 200):
            if time.time() > until or self.process.poll() is not None:
                self.stop()
                raise SystemExit(open(f"{work}/{name}/log").read() + "\nthe server ended, or was not ready after 60 s")
            time.sleep(0.1)
            found = re.search(r"listening on (\S+)", open(f"{work}/{name}/log").read())
            self.url = found and found.group(1)

    def status(self, method, path):
        try:
            return urllib.request.urlopen(urllib.request.Request(self.url + path, method=method), timeout=60).status
        except urllib.error.HTTPError as error:
            return error.code

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            print("the server did not end in 30 s after SIGTERM")
            self.process.kill()
        return self.process.wait()


def explore(work):
    """schemathesis finds nothing."""
    server = Server(work, "open")
    try:
        call(server.url, "POST", "/api/v1/queue/pause", {})
        call(server.url, "POST", "/api/v1/jobs", {"prompt": "a fox"})
        document = call(server.url, "GET", "/api/v1/openapi.json")
        print(f"{len(document['paths'])} paths, {sum(len(p) for p in document['paths'].values())} operations")
        described = all(o["summary"] for p in document["paths"].values() for o in p.values())
        words = [SCHEMATHESIS, "run", server.url + "/api/v1/openapi.json", "--checks", ",".join(CHECKS), "--max-examples", EXAMPLES, "--seed", "1",
                 "--phases", "examples,coverage,fuzzing", "--request-timeout", "10", "--suppress-health-check", "all", "--no-color",
                 # these would start the queue, empty it, or never end
                 "--exclude-path-regex", "/queue/|/events$|/(un)?load$", "--exclude-path", "/api/v1/session"]
        code = subprocess.run(words, cwd=work).returncode  # where it keeps a cache
        if code not in (0, 1):  # 1: an answer that differs from the document
            print(f"schemathesis {importlib.metadata.version('schemathesis')} did not run (code {code}): tests/clients/openapi_client.py must be adapted to it")
        return code == 0 and described and server.process.poll() is None
    finally:
        server.stop()


def ask_without_key(work):
    """Paths that need a key, by the document, answer 401 without one; the others do not."""
    server = Server(work, "keyed", "--key-file", f"{work}/keys")
    try:
        document = call(server.url, "GET", "/api/v1/openapi.json", key="secret-one")
        wrong = [(method, path, status) for path, item in document["paths"].items() for method, operation in item.items()
                 for status in [server.status(method.upper(), path.replace("{id}", "x"))] if (status == 401) != ("security" not in operation)]
        print("answers without a key that differ from the document:", wrong)
        return not wrong and document["security"]
    finally:
        server.stop()


with tempfile.TemporaryDirectory() as folder:
    with open(f"{folder}/keys", "w") as file:
        file.write("root secret-one admin\n")
    os.chmod(f"{folder}/keys", 0o600)
    results = [bool(explore(folder)), bool(ask_without_key(folder))]
print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
sys.exit(not all(results))
