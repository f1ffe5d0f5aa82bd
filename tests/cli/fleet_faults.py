"""fleet_faults.py LAZULI WORK [JOBS]: 500 jobs over 3 keys in a fleet on this machine, while workers are killed 50 times, fronts
10 times and Redis 5 times (kill -9, at random moments). Run by hand; it takes some minutes. docs/fleet.md has its numbers.

Every accepted job must be completed with each of its pictures once, or failed with a reason."""
import http.client
import json
import os
import random
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(__file__))
import fleet
from fleet import WORK, Front, Redis, Worker, check, free_port, until

JOBS = int(sys.argv[3]) if len(sys.argv) > 3 else 500
KILLS = {"worker": JOBS // 10, "front": JOBS // 50, "redis": JOBS // 100}
rng = random.Random(7)
accepted, refused, lock = {}, {}, threading.Lock()


def feed(key, fronts, n):
    """A client: repeats a request, with the same Idempotency-Key, until a front accepts it."""
    own = random.Random(key)
    for k in range(n):
        body = {"prompt": f"a fox {k}", "width": 64, "height": 64, "steps": own.choice([1, 4, 40]), "count": own.choice([1, 1, 1, 2]), "seed": k}
        while True:
            try:
                status, _, data = own.choice(fronts).call("POST", "/api/v1/jobs", body, key, idempotency_key=f"{key}-{k}")
            except (OSError, http.client.HTTPException, json.JSONDecodeError):
                status, data = "broken", {}
            if status == 202:
                with lock:
                    accepted[data["id"]] = (key, body["count"])
                break
            with lock:
                code = data.get("error", {}).get("code", "")
                refused[f"{status} {code}"] = refused.get(f"{status} {code}", 0) + 1
            time.sleep(0.3)


def run():
    fleet.write_keys()
    redis = Redis()
    ports = [free_port(), free_port()]
    fronts = [Front(redis, f"front{n}", port=ports[n]) for n in range(2)]
    workers = [Worker(redis, f"worker{n}") for n in range(3)]
    until("ready", lambda: all(f.call("GET", "/readyz")[0] == 200 for f in fronts))
    clients = [threading.Thread(target=feed, args=(key, fronts, JOBS // 3 + (key == "ada") * (JOBS % 3))) for key in fleet.KEYS]
    [c.start() for c in clients]
    victims = [kind for kind, n in KILLS.items() for _ in range(n)]
    rng.shuffle(victims)
    killed = dict.fromkeys(KILLS, 0)

    def ended():
        live = int(redis.ask("HGET", "lz:{test}:waiting", "*") or 0) + redis.groups()["pending"]
        return (redis.ask("ZCARD", "lz:{test}:list") or 0) - live

    for n, kind in enumerate(victims):  # spread over the jobs
        until("enough jobs have ended", lambda: ended() >= n * JOBS * 0.9 / len(victims), 300)
        time.sleep(rng.uniform(0, 0.5))
        killed[kind] += 1
        if kind == "worker":
            n = rng.randrange(len(workers))
            target = workers[n].child() if rng.random() < 0.3 else None
            if target:
                os.kill(target, signal.SIGKILL)  # the process that paints, only
            else:
                workers[n].stop(signal.SIGKILL)
                workers[n] = Worker(redis, f"worker{n}")
        elif kind == "front":
            n = rng.randrange(2)
            fronts[n].stop(signal.SIGKILL)
            fronts[n].__init__(redis, f"front{n}", port=ports[n])
        else:
            redis.process.kill()
            redis.process.wait()
            time.sleep(rng.uniform(0.2, 3))
            redis.start()
    [c.join() for c in clients]
    until("all have ended", lambda: all(redis.job(id, "state") in ("2", "3", "4") for id in list(accepted)), 600)

    states, codes, again, pictures = {}, {}, 0, 0
    for id, (key, count) in accepted.items():
        state = redis.job(id, "state")
        states[state] = states.get(state, 0) + 1
        again += int(redis.job(id, "attempts")) > 1
        if state == "2":
            job = fronts[0].job(id, key)
            pictures += len(job["pictures"])
            check(len(job["pictures"]) == count and len({p["id"] for p in job["pictures"]}) == count, "each picture once", id)
            for p in job["pictures"]:
                status, _, data = fronts[1].call("GET", f"/api/v1/pictures/{p['id']}/file", key=key)
                check(status == 200 and data[:4] == b"\x89PNG" and data[-8:-4] == b"IEND", "a whole file", id, status)
        else:
            code = redis.job(id, "code")
            codes[code] = codes.get(code, 0) + 1
            check(code, "a reason", id)
    check(len(accepted) == JOBS, "all were accepted", len(accepted))
    check(redis.ask("ZCARD", "lz:{test}:list") == JOBS, "one job for each request", redis.ask("ZCARD", "lz:{test}:list"))
    check(redis.groups()["pending"] == 0 and redis.ask("HLEN", "lz:{test}:bound") == 0, "nothing is pending")
    half = [n for n in os.listdir(f"{WORK}/pictures/pictures") if not n.endswith(".png")]
    check(not half, "no half file", half)
    print(f"{len(accepted)} jobs accepted, {states.get('2', 0)} completed with {pictures} pictures, {states.get('3', 0)} failed {codes}; "
          f"{again} needed more than one attempt; killed {killed}; answers before acceptance: {refused}")
    for p in fronts + workers:
        p.stop()


fleet.main(run)
