"""openapi_client.py LAZULI [EXAMPLES]: schemathesis against `lazuli serve`, with the OpenAPI document that it serves.

The queue is stopped and full, so that no request makes a picture: what is well-formed is answered with 429. Then every path
is asked for without a key, from a server that needs one. `make test-clients` runs it.
"""
import importlib.metadata
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "serve"))
from server import Server

LAZULI, EXAMPLES = os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "15"
SCHEMATHESIS = os.path.join(os.path.abspath(os.path.dirname(sys.executable)), "schemathesis")
# Well-formed fields may still be refused (an image that is no picture), so positive_data_acceptance is left out.
CHECKS = ["not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance",
          "negative_data_rejection", "unsupported_method"]


def start(work, name, *options):
    s = Server(LAZULI, work, "--state", f"{work}/{name}", "--queue", "1", "-q", *options)
    s.wait()
    return s


def explore(work):
    """schemathesis finds nothing."""
    s = start(work, "open")
    try:
        s.call("POST", "/api/v1/queue/pause", {})
        s.call("POST", "/api/v1/jobs", {"prompt": "a fox"})
        document = s.call("GET", "/api/v1/openapi.json")[2]
        print(f"{len(document['paths'])} paths, {sum(len(p) for p in document['paths'].values())} operations")
        described = all(o["summary"] for p in document["paths"].values() for o in p.values())
        words = [SCHEMATHESIS, "run", s.url + "/api/v1/openapi.json", "--checks", ",".join(CHECKS), "--max-examples", EXAMPLES, "--seed", "1",
                 "--phases", "examples,coverage,fuzzing", "--request-timeout", "10", "--suppress-health-check", "all", "--no-color",
                 # these would start the queue, empty it, or never end
                 "--exclude-path-regex", "/queue/|/events$|/(un)?load$|/(un|re)load-checkpoint$", "--exclude-path", "/api/v1/session"]
        code = subprocess.run(words, cwd=work).returncode  # where it keeps a cache
        if code not in (0, 1):  # 1: an answer that differs from the document
            print(f"schemathesis {importlib.metadata.version('schemathesis')} did not run (code {code}): tests/clients/openapi_client.py must be adapted to it")
        return code == 0 and described and s.process.poll() is None
    finally:
        s.stop()


def ask_without_key(work):
    """Paths that need a key, by the document, answer 401 without one; the others do not."""
    s = start(work, "keyed", "--key-file", f"{work}/keys")
    try:
        document = s.call("GET", "/api/v1/openapi.json", key="secret-one")[2]
        wrong = [(method, path, status) for path, item in document["paths"].items() for method, operation in item.items()
                 for status in [s.call(method.upper(), path.replace("{id}", "x"))[0]] if (status == 401) != ("security" not in operation)]
        print("answers without a key that differ from the document:", wrong)
        return not wrong and document["security"]
    finally:
        s.stop()


with tempfile.TemporaryDirectory() as folder:
    with open(f"{folder}/keys", "w") as file:
        file.write("root secret-one admin\n")
    os.chmod(f"{folder}/keys", 0o600)
    results = [bool(explore(folder)), bool(ask_without_key(folder))]
print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
sys.exit(not all(results))
