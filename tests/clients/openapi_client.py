"""openapi_client.py LAZULI [EXAMPLES]: schemathesis against `lazuli serve`, with the OpenAPI document that it serves.

The queue is stopped and full, so that no request makes a picture: what is well-formed is answered with 429. A second run
with keys checks that every path needs one. `make test-clients` runs it.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

LAZULI, EXAMPLES = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "15"
SCHEMATHESIS = os.path.join(os.path.dirname(sys.executable), "schemathesis")
# Well-formed fields may still be refused (an image that is no picture), so positive_data_acceptance is left out.
CHECKS = ["not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance",
          "negative_data_rejection", "unsupported_method", "ignored_auth"]


def call(url, method, path, body=None, key=None):
    head = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}
    asked = urllib.request.Request(url + path, json.dumps(body).encode() if body is not None else None, head, method=method)
    return json.load(urllib.request.urlopen(asked))


def run(work, name, *options, key=None):
    os.makedirs(f"{work}/{name}")
    with open(f"{work}/{name}/log", "w") as log:
        server = subprocess.Popen([LAZULI, "serve", "--listen", "127.0.0.1:0", "--state", f"{work}/{name}/state", "--queue", "1", "-q", *options], stderr=log)
    try:
        found = None
        while not found and server.poll() is None:
            time.sleep(0.05)
            found = re.search(r"listening on (\S+)", open(f"{work}/{name}/log").read())
        if not found:
            raise SystemExit(open(f"{work}/{name}/log").read())
        url = found.group(1)
        ready = False
        while not ready:
            try:
                ready = urllib.request.urlopen(url + "/readyz").status == 200
            except OSError:
                time.sleep(0.1)
        call(url, "POST", "/api/v1/queue/pause", {}, key)
        call(url, "POST", "/api/v1/jobs", {"prompt": "a fox"}, key)
        document = call(url, "GET", "/api/v1/openapi.json", key=key)
        print(f"{len(document['paths'])} paths, {sum(len(p) for p in document['paths'].values())} operations")
        words = [SCHEMATHESIS, "run", url + "/api/v1/openapi.json", "--checks", ",".join(CHECKS), "--max-examples", EXAMPLES, "--seed", "1",
                 "--phases", "examples,coverage,fuzzing", "--request-timeout", "10", "--suppress-health-check", "all", "--no-color",
                 # these would start the queue, empty it, or never end
                 "--exclude-path-regex", "/queue/|/events$", "--exclude-path", "/api/v1/session"]
        if key:
            words += ["-H", f"Authorization: Bearer {key}"]
        code = subprocess.run(words).returncode
        alive = server.poll() is None
        return code == 0 and alive
    finally:
        server.terminate()
        server.wait()


with tempfile.TemporaryDirectory() as folder:
    with open(f"{folder}/keys", "w") as file:
        file.write("root secret-one admin\n")
    os.chmod(f"{folder}/keys", 0o600)
    results = [run(folder, "open"), run(folder, "keyed", "--key-file", f"{folder}/keys", key="secret-one")]
print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
sys.exit(not all(results))
