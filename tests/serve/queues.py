"""queues.py: the queue: cancelling, deaths of processes, the end, load, a slow disk, a broken disk."""
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time

import load
from pictures import LONG, SMALL, png
from server import Place, check, start, until


def test_queue(s):
    """Cancelling by leaving, a full queue, fair turns."""
    path = "/v1/images/generations"
    client = 'lazuli_cancelled_total{why="client"}'
    before = s.metric(client)
    gone = s.leave(path, LONG)
    until("it runs", s.running)
    gone.close()
    until("it is cancelled", lambda: s.metric(client) == before + 1)
    gone = s.leave(path, {**LONG, "stream": True})
    until("the stream runs", s.running)
    gone.close()
    until("the stream is cancelled", lambda: s.metric(client) == before + 2)

    running = s.leave(path, LONG)
    until("it runs", s.running)
    waiting = [s.leave(path, SMALL) for _ in range(3)]
    until("three wait", lambda: s.metric('lazuli_jobs{state="queued"}') == 3)
    status, answer, data = s.call("POST", path, SMALL)
    check((status, data["error"]["code"]) == (429, "queue_full"), "a full queue", data)
    check(1 <= int(answer.getheader("retry-after")) <= 120, "when to come again")
    check(s.call("GET", "/healthz")[0] == 200 and s.running(), "health meanwhile")
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


def test_patience(s):
    """A client that would give up first is told so; one that asks again joins the job that it has left."""
    path = "/v1/images/generations"
    for seconds, wanted in (("1", 429), ("0", 200), ("x", 200), ("600", 200)):
        body = LONG if wanted == 429 else SMALL
        status, answer, data = s.call("POST", path, body, x_stainless_read_timeout=seconds)
        check(status == wanted, "patience", seconds, status, data)
        if wanted == 429:
            check(data["error"]["code"] == "would_wait_too_long" and answer.getheader("retry-after"), "at once", data)
    name = 'lazuli_jobs_total{source="openai",outcome="completed"}'
    body = {**SMALL, "size": "128x128", "num_inference_steps": 20}
    for headers, jobs in (({"x_stainless_retry_count": "1"}, 1), ({"x_stainless_retry_count": "0"}, 2), ({}, 2)):
        before, first, answers = s.metric(name), s.leave(path, body), []
        until("it runs", s.running)
        answers.append(s.call("POST", path, body, **headers)[2]["data"])
        first.settimeout(60)
        got = b""
        while b"total_tokens" not in got:
            got += first.recv(1 << 16)
        first.close()
        check(json.loads(got.split(b"\r\n\r\n", 1)[1])["data"] == answers[0], "the same picture", headers)
        check(s.metric(name) == before + jobs, "jobs", headers, s.metric(name) - before)


def test_again():
    """Repeating a request: what was to be tried again is made, and a stream that is joined has all pictures."""
    s = start("again")
    s.wait()
    path = "/v1/images/generations"
    running, answers = s.leave(path, LONG), []
    until("it runs", s.running)
    thread = threading.Thread(target=lambda: answers.append(s.call("POST", path, SMALL, idempotency_key="twice")))
    thread.start()
    until("it waits", lambda: s.metric('lazuli_jobs{state="queued"}') == 1)
    running.close()
    s.process.send_signal(signal.SIGTERM)
    thread.join()
    check(answers[0][0] in (200, 503), "the server ends meanwhile", answers[0][2])
    s.process.wait(60)
    s = start("again")
    s.wait()
    for _ in range(2):
        check(s.call("POST", path, SMALL, idempotency_key="twice")[0] == 200, "and makes it after all")
    check(len(s.call("GET", "/api/v1/pictures")[2]["pictures"]) == 1, "once")

    body = {**SMALL, "n": 3, "stream": True, "num_inference_steps": 60}

    connections = []

    def stream():
        connection = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
        connections.append(connection)
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json", "idempotency-key": "joined"})
        return connection.getresponse()

    def pictures(lines):
        return [json.loads(line[6:]) for line in lines if line.startswith(b"data: ")]
    first = stream()
    seen = []
    while not pictures(seen):
        seen.append(first.readline())
    second = pictures(stream().readlines())
    first = pictures(seen + first.readlines())
    check([p.get("image_index") for p in second] == [0, 1, 2], "a stream that is joined has all pictures", [p.get("image_index", p) for p in second])
    check([p["b64_json"] for p in first] == [p["b64_json"] for p in second], "the same ones")
    check(s.stop() == 0, "it ends")


def test_streak():
    """The model that is loaded is used for eight further pictures, then comes the one whose turn it is."""
    s = start("streak", "-m", "demo", "-m", "tests/data/qwen21/B")
    s.wait()
    s.call("POST", "/api/v1/queue/pause", {})
    body = {"prompt": "a fox", "width": 64, "height": 64, "steps": 1}
    jobs = [s.call("POST", "/api/v1/jobs", {**body, "model": m})[2]["id"] for m in ["B"] + 11 * ["demo"]]
    events = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
    events.request("GET", "/api/v1/events")
    answer, order = events.getresponse(), []
    s.call("POST", "/api/v1/queue/resume", {})
    kind = b""
    while len(order) < len(jobs):
        line = answer.fp.readline()
        kind = line[7:].strip() if line.startswith(b"event: ") else kind
        if line.startswith(b"data: ") and kind == b"picture":
            order.append(jobs.index(json.loads(line[6:])["id"]))
    events.close()
    check(order == [1, 2, 3, 4, 5, 6, 7, 8, 0, 9, 10, 11], "eight pictures, then the other model", order)
    check(s.metric("lazuli_model_loads_total") == 4, "the models change twice", s.metric("lazuli_model_loads_total"))
    check(s.stop() == 0, "it ends")


def test_deaths(s, state):
    """kill -9 of the worker and of the front."""
    done = {}

    def ask():
        done["answer"] = s.call("POST", "/v1/images/generations", {**LONG, "size": "128x128", "num_inference_steps": 30})

    thread = threading.Thread(target=ask)
    thread.start()
    until("it runs", s.running)
    os.kill(s.worker(), signal.SIGKILL)
    thread.join()
    check(done["answer"][0] == 200 and s.metric("lazuli_worker_restarts_total") == 1, "a picture in spite of a dead worker", done["answer"][2])
    long = s.call("POST", "/api/v1/jobs", {"prompt": "a cat", "width": 128, "height": 128, "steps": 40, "seed": 5})[2]["id"]
    short = s.call("POST", "/api/v1/jobs", {"prompt": "a cat", "width": 64, "height": 64, "steps": 1})[2]["id"]
    until("it runs", s.running)
    worker = s.worker()
    s.stop(signal.SIGKILL)
    s = start(state)
    until("the old worker is gone", lambda: not os.path.exists(f"/proc/{worker}") or open(f"/proc/{worker}/stat").read().split()[2] == "Z")
    until("both are done", lambda: all(s.call("GET", f"/api/v1/jobs/{j}")[2]["status"] == "completed" for j in (long, short)))
    check(s.call("GET", f"/api/v1/jobs/{long}")[2]["attempts"] == 2, "the second attempt")

    # Three deaths fail the job, not the server
    job = s.call("POST", "/api/v1/jobs", {"prompt": "a cat", "width": 512, "height": 512, "steps": 200})[2]["id"]
    for n in range(3):
        until("it runs", lambda n=n: s.call("GET", f"/api/v1/jobs/{job}")[2]["attempts"] == n + 1 and s.running()
                and s.worker() and s.call("GET", f"/api/v1/jobs/{job}")[2]["stage"])
        os.kill(s.worker(), signal.SIGKILL)
        until("it is gone", lambda n=n: s.metric("lazuli_worker_restarts_total") == n + 1)
    error = s.call("GET", f"/api/v1/jobs/{job}")[2]["error"]
    check(error and error["code"] == "worker_lost", "three deaths", error)
    check(s.stop() == 0, "it ends without a worker")
    return start(state)


def test_drain(s):
    path = "/v1/images/generations"
    until("ready", lambda: s.call("GET", "/readyz")[0] == 200)
    running = s.leave(path, {**SMALL, "size": "128x128", "num_inference_steps": 20})
    until("it runs", s.running)
    waiting = s.leave(path, SMALL)
    job = s.call("POST", "/api/v1/jobs", {"prompt": "later", "width": 64, "height": 64, "steps": 1})[2]["id"]
    check(s.stop() == 0, "it ends with 0")
    check(running.recv(12) == b"HTTP/1.1 200", "the running picture is finished")
    check(waiting.recv(12) == b"HTTP/1.1 503", "those who wait are told")
    check("a fox" not in s.text() and "later" not in s.text(), "no prompt is in the log")
    return job


def test_attempts():
    """Attempts are counted for each picture of a job, and a server that is ended by a signal does not take one."""
    s = start("attempts")
    s.wait()
    job = s.call("POST", "/api/v1/jobs", {"prompt": "a cat", "width": 128, "height": 128, "steps": 30, "count": 10, "seed": 5})[2]["id"]
    for made in range(1, 5):
        until("a picture is made", lambda made=made: len(s.job(job)["pictures"]) >= made)
        check(s.stop() == 0, "it ends")
        s = start("attempts")
        s.wait()
        state = s.job(job)
        check(state["attempts"] == 1 and state["status"] in ("queued", "in_progress"), "no attempt is lost", state["attempts"], state["error"])
    for deaths in range(1, 5):
        made = len(s.job(job)["pictures"])
        until("the next picture is begun", lambda made=made: len(s.job(job)["pictures"]) > made and s.job(job)["step"] > 0 and s.worker())
        os.kill(s.worker(), signal.SIGKILL)
        until("the worker is gone", lambda deaths=deaths: s.metric("lazuli_worker_restarts_total") == deaths)
    until("it is made in spite of four deaths", lambda: s.job(job)["status"] in ("completed", "failed"))
    state = s.job(job)
    check(state["status"] == "completed" and len(state["pictures"]) == 10, "all pictures", state["error"])
    check(s.stop() == 0, "it ends")


def test_load():
    """Clients that only listen are all served, and delay nobody. 1,000 of them: tests/serve/load.py."""
    s = start("load")
    s.wait()
    counts = load.run(s.port, 100, 4, 1.5)
    check(counts["answered"] == 100 and counts["lost"] == 0 and counts["missed"] == 0, "idle clients", counts)
    check(counts["pictures"] > 0 and counts["refused"] == 0, "active clients", counts)
    check(counts["median_ms"] < 1000, "health meanwhile", counts)
    until("the connections are counted down again", lambda: s.metric("lazuli_http_connections") < 5)
    check(s.stop() == 0, "it ends")


def test_flush():
    """A slow disk delays what a client is told, and nothing else."""
    if not shutil.which("strace"):
        print("skipped: strace is missing")
        return
    trace = f"{Place.work}/flush.trace"
    slow = ["strace", "-f", "-qq", "-y", "-o", trace, "-e", "trace=fdatasync,fsync", "-e", "inject=fdatasync:delay_enter=600000"]
    s = start("flush", before=slow, env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})  # its leak check cannot run under strace
    s.wait()
    answers = []

    def ask():
        begun = time.time()
        status = s.call("POST", "/api/v1/jobs", {"prompt": "a fox", "width": 64, "height": 64, "steps": 1})[0]
        answers.append((status, time.time() - begun))
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for t in threads:
        t.start()
    times = []
    while any(t.is_alive() for t in threads):
        begun = time.time()
        check(s.call("GET", "/healthz")[0] == 200, "health")
        times.append(time.time() - begun)
    waited = sum(t for t in times if t > 0.3)  # a flush takes 0.6 s
    check(len(times) > 5 and waited < 0.3 * sum(times), "health does not wait for the disk", len(times), waited, sum(times))
    check(all(status == 202 and seconds > 0.5 for status, seconds in answers), "an accepted job is on the disk", answers)
    check(s.call("POST", "/api/v1/uploads", png(8, 8, lambda x, y: (x, y, 0)), content_type="image/png")[0] < 300, "an upload")
    until("a picture is made", lambda: s.call("GET", "/api/v1/pictures")[2]["pictures"])
    os.kill(s.worker(), signal.SIGTERM)  # of strace the server is the child
    check(s.process.wait(90) == 0, "it ends")
    with open(trace, errors="replace") as file:
        calls = file.read()
    for folder in ("", "/pictures", "/uploads"):
        check(re.search(rf"fsync\(\d+<[^>]*/flush{folder}>\)", calls), "the folder of a file is flushed, too", folder)


def test_broken():
    """A job that the disk did not keep is not accepted."""
    if not shutil.which("cc"):
        print("skipped: cc is missing")
        return
    broken, library = f"{Place.work}/broken.flag", f"{Place.work}/broken.so"
    with open(f"{Place.work}/broken.c", "w") as file:
        file.write("#include <errno.h>\n#include <unistd.h>\n"
                   f'int fdatasync(int file) {{ if (access("{broken}", F_OK) != 0) return fsync(file); errno = EIO; return -1; }}\n')
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, f"{Place.work}/broken.c"], check=True)
    s = start("broken", env={**os.environ, "LD_PRELOAD": library, "ASAN_OPTIONS": "verify_asan_link_order=0"})
    s.wait()
    job = {"prompt": "a fox", "width": 64, "height": 64, "steps": 1}
    check(s.call("POST", "/api/v1/jobs", job)[0] == 202, "a disk that works")
    open(broken, "w").close()
    try:
        status = s.call("POST", "/api/v1/jobs", job)[0]
    except (http.client.HTTPException, OSError):
        status = None
    check(status is None or status >= 500, "a job that the disk did not keep is not accepted", status)
    check(s.process.wait(90) == 1 and "cannot be flushed" in s.text(), "the server ends, and says why")
