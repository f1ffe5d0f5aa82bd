"""fleet_faults.py LAZULI WORK [JOBS]: 500 jobs over 3 keys in a fleet on this machine, whose workers make up to four pictures together,
while workers are killed 50 times, fronts 10 times and Redis 5 times (kill -9, at random moments), the disk is filled and freed (a small
tmpfs, if this is root), jobs are cancelled, and clients that wait for a picture leave. Run by hand; it takes some minutes. docs/fleet.md
has its numbers.

Every accepted job must be completed with each of its pictures once, or have ended with a reason. Every picture, so also the one that is
made after a picture was cancelled, must have the bytes that the command line makes."""
import collections
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(__file__))
import fleet
from fleet import KEYS, LAZULI, WORK, Front, Redis, Worker, check, free_port, until

JOBS = int(sys.argv[3]) if len(sys.argv) > 3 else 500
KILLS = {"worker": JOBS // 10, "front": JOBS // 50, "redis": JOBS // 100}
FILLS = max(1, JOBS // 170)
KINDS = [(seed, side, steps) for seed in (1, 2, 3) for side, steps in ((64, 1), (64, 4), (80, 40))]
REASONS = {"worker_lost", "insufficient_storage", "cancelled"}
PICTURES = f"{WORK}/pictures"
rng = random.Random(7)
accepted, cancelled, fresh = {}, set(), {}
counts, lock, done = collections.Counter(), threading.Lock(), threading.Event()


def count(what):
    with lock:
        counts[what] += 1


def make_fresh():
    """The pictures of the command line; jobs of two pictures have the next seed too."""
    for side, steps in {kind[1:] for kind in KINDS}:
        subprocess.run([LAZULI, "a fox", "-S", "1", "--count", "4", "-W", str(side), "-H", str(side), "-s", str(steps), "-q", "-o", f"{WORK}/fresh.png"],
                       check=True)
        for seed in (1, 2, 3, 4):
            with open(f"{WORK}/fresh-{seed}.png", "rb") as file:
                fresh[seed, side, steps] = file.read()


def call(front, *arguments, **headers):
    """As Front.call; None: the front is not there."""
    try:
        return front.call(*arguments, **headers)
    except (OSError, http.client.HTTPException, ValueError):
        return None


def feed(key, fronts, n):
    """A client: repeats a request, with the same Idempotency-Key, until a front accepts it. Some jobs are cancelled."""
    own = random.Random(key)
    for k in range(n):
        kind = own.choice(KINDS)
        body = {"prompt": "a fox", "seed": kind[0], "width": kind[1], "height": kind[1], "steps": kind[2], "count": own.choice([1, 1, 1, 2])}
        while True:
            answer = call(own.choice(fronts), "POST", "/api/v1/jobs", body, key, idempotency_key=f"{key}-{k}")
            if answer and answer[0] == 202:
                break
            count(f"jobs refused: {answer[2]['error']['code'] if answer else 'no connection'}")
            time.sleep(0.3)
        job = answer[2]["id"]
        with lock:
            accepted[job] = (key, kind, body["count"])
        if own.random() < 0.1:
            time.sleep(own.random())
            answer = call(own.choice(fronts), "POST", f"/api/v1/jobs/{job}/cancel", {}, key)
            if answer and answer[0] == 200 and answer[2]["status"] == "cancelled":
                with lock:
                    cancelled.add(job)


def ask(key, fronts):
    """A client that waits for its pictures, and leaves at times."""
    own = random.Random(key + "waits")
    while not done.is_set():
        kind, leaves = own.choice(KINDS), own.random() < 0.3
        body = {"prompt": "a fox", "seed": kind[0], "size": f"{kind[1]}x{kind[1]}", "steps": kind[2], "response_format": "file"}
        connection = http.client.HTTPConnection("127.0.0.1", own.choice(fronts).port, timeout=120)
        try:
            connection.request("POST", "/v1/images/generations", json.dumps(body), {"authorization": "Bearer " + KEYS[key], "content-type": "application/json"})
            if leaves:
                time.sleep(own.random())
                count("clients that left")
                continue
            answer = connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException):
            count("requests without an answer")
            time.sleep(0.3)
            continue
        finally:
            connection.close()
        if answer.status == 200:
            check(data == fresh[kind], "a picture of a request is not that of the command line", kind)
        count("requests with a picture" if answer.status == 200 else f"requests refused: {json.loads(data)['error']['code']}")
        if answer.status != 200:
            time.sleep(0.3)


def fill_disk():
    for _ in range(FILLS):
        if done.wait(rng.uniform(20, 60)):
            return
        try:
            with open(f"{PICTURES}/filler", "wb", buffering=0) as file:
                while True:
                    file.write(bytes(1 << 16))
        except OSError:
            count("disk filled")
        time.sleep(3)
        os.remove(f"{PICTURES}/filler")


def kill(kind, redis, fronts, workers, ports):
    count(f"{kind} killed")
    if kind == "worker":
        n = rng.randrange(len(workers))
        target = workers[n].child() if rng.random() < 0.3 else None
        if target:
            os.kill(target, signal.SIGKILL)  # the process that paints, only
            return
        workers[n].stop(signal.SIGKILL)
        start_again(workers, n, lambda: Worker(redis, f"worker{n}", "--batch", "4", "--precision", "f32"))
    elif kind == "front":
        n = rng.randrange(2)
        fronts[n].stop(signal.SIGKILL)
        start_again(fronts, n, lambda: Front(redis, f"front{n}", port=ports[n]))
    else:
        redis.process.kill()
        redis.process.wait()
        time.sleep(rng.uniform(0.2, 3))
        redis.start()


def start_again(all_of_them, n, start):
    while True:
        try:
            all_of_them[n] = start()
            return
        except fleet.server.NotStarted:  # the disk is full, or Redis is away
            count("starts refused")
            time.sleep(0.3)


def judge(redis, fronts):
    """Every accepted job has ended once, its pictures are whole, and nothing else is left."""
    for id, (key, kind, n) in accepted.items():
        state, code = redis.job(id, "state"), redis.job(id, "code")
        count({"2": "completed", "3": "failed", "4": "cancelled"}.get(state, "not ended") + (f" ({code})" if code else ""))
        counts["jobs with more than one attempt"] += int(redis.job(id, "attempts")) > 1
        check(state == "2" if not code else state in "34" and code in REASONS, "an end with a reason", id, state, code)
        check(id not in cancelled or state == "4", "a job that was cancelled stays so", id, state)
        pictures = fronts[0].job(id, key)["pictures"]
        check(len({p["id"] for p in pictures}) == len(pictures) and (state != "2" or len(pictures) == n), "each picture once", id, len(pictures))
        for i, p in enumerate(pictures):
            status, _, data = fronts[1].call("GET", f"/api/v1/pictures/{p['id']}/file", key=key)
            check(status == 200 and data == fresh[kind[0] + i, kind[1], kind[2]], "a picture has the bytes of the command line", id, status)
            together = json.loads(redis.ask("HGET", f"lz:{{test}}:picture:{p['id']}", "data"))["facts"]["together"]
            counts["pictures"] += 1
            counts["pictures made together with others"] += together > 1
    check(len(accepted) == JOBS, "all were accepted", len(accepted))
    listed = [id for id in redis.ask("ZRANGE", "lz:{test}:list", 0, -1) if redis.job(id, "source") == "1"]
    check(sorted(listed) == sorted(accepted), "one job for each request", len(listed))
    check(redis.groups()["pending"] == 0 and redis.ask("HLEN", "lz:{test}:bound") == 0, "nothing is pending", redis.groups())
    check(redis.ask("HGETALL", "lz:{test}:waiting")[:2] in ([], ["*", "0"]), "nothing is counted as waiting", redis.ask("HGETALL", "lz:{test}:waiting"))
    half = [n for n in os.listdir(f"{PICTURES}/pictures") if not n.endswith(".png")]
    check(not half, "no half file", half)


def run():
    os.mkdir(PICTURES)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=192m,mode=0700", "tmpfs", PICTURES], stderr=subprocess.DEVNULL).returncode == 0
    if not mounted:
        print("the disk is not filled: that needs root")
    try:
        run_in(mounted)
    finally:
        for p in fleet.started:
            if p.poll() is None:
                p.kill()
                p.wait()
        if mounted:
            subprocess.run(["umount", PICTURES])


def run_in(mounted):
    fleet.write_keys()
    make_fresh()
    redis, begun = Redis(), time.time()
    ports = [free_port(), free_port()]
    fronts = [Front(redis, f"front{n}", port=ports[n]) for n in range(2)]
    workers = [Worker(redis, f"worker{n}", "--batch", "4", "--precision", "f32") for n in range(3)]
    until("ready", lambda: all(f.call("GET", "/readyz")[0] == 200 for f in fronts))
    clients = [threading.Thread(target=feed, args=(key, fronts, JOBS // 3 + (key == "ada") * (JOBS % 3)), daemon=True) for key in KEYS]
    others = [threading.Thread(target=ask, args=(key, fronts), daemon=True) for key in KEYS]
    others += [threading.Thread(target=fill_disk, daemon=True)] if mounted else []
    [c.start() for c in clients + others]
    victims = [kind for kind, n in KILLS.items() for _ in range(n)]
    rng.shuffle(victims)

    def ended():
        return sum(redis.job(id, "state") in ("2", "3", "4") for id in list(accepted))

    for n, kind in enumerate(victims):  # spread over the jobs
        until("enough jobs have ended", lambda: ended() >= n * JOBS * 0.9 / len(victims), 300, 0.2)
        time.sleep(rng.uniform(0, 0.5))
        kill(kind, redis, fronts, workers, ports)
    [c.join() for c in clients]
    done.set()
    [c.join() for c in others]
    until("all have ended", lambda: all(redis.job(id, "state") in ("2", "3", "4") for id in list(accepted)), 600, 0.2)
    until("nothing is pending", lambda: redis.groups()["pending"] == 0 and int(redis.ask("HGET", "lz:{test}:waiting", "*") or 0) == 0, 120, 0.2)
    counts["seconds"] = round(time.time() - begun)
    judge(redis, fronts)
    print(json.dumps(dict(sorted(counts.items())), indent=1))
    for p in fronts + workers:
        p.stop()


fleet.main(run)
