"""fleet_rules.py LAZULI WORK: the rules of a fleet that fleet.py does not test, for tests/cli/fleet_rules.sh.

Workers are stopped (SIGSTOP) and killed at known moments. A lease that must run out is made old in Redis, so that the
test does not wait for it.
"""
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
from fleet import LONG, SMALL, WORK, Front, Redis, Worker, check, free_port, paints, until

STREAM = "lz:{test}:jobs:demo"
PATIENCE = 300  # seconds for a picture with a sanitizer, on a loaded machine


def join(redis, name, *options):
    worker = Worker(redis, name, *options)
    until("a worker has joined", lambda: worker.joined() and redis.ask("ZSCORE", "lz:{test}:workers", worker.name))
    return worker


def leave(redis, *workers):
    for w in workers:
        check(w.stop() == 0, "a worker ends with 0")


def age(redis, job):
    """The ticket of the job was last renewed 20 seconds ago."""
    redis.ask("XCLAIM", STREAM, "workers", redis.job(job, "worker"), 0, redis.job(job, "entry"), "IDLE", 20000, "JUSTID")


def files(front, job, key="ada"):
    until("the job is done", lambda: front.done(job, key), PATIENCE)
    return [front.call("GET", f"/api/v1/pictures/{p['id']}/file", key=key)[2] for p in front.job(job, key).get("pictures", [])]


def together(redis, front, jobs):
    """With how many pictures each picture of the jobs was made."""
    ids = [p["id"] for job, key in jobs for p in front.job(job, key)["pictures"]]
    return [json.loads(redis.ask("HGET", f"lz:{{test}}:picture:{id}", "data"))["facts"]["together"] for id in ids]


def know(fronts, model):
    """Fronts that know a model accept jobs for it, also if no worker is there."""
    until("the fronts know the model", lambda: all(f'"{model}"' in json.dumps(f.call("GET", "/api/v1/about")[2]) for f in fronts))


def pause(front, paused=True):
    front.call("POST", f"/api/v1/queue/{'pause' if paused else 'resume'}", {}, key="root")


def clean(redis, what):
    until("nothing is pending", lambda: redis.groups()["pending"] == 0 and redis.groups()["lag"] == 0)
    check(redis.ask("HLEN", "lz:{test}:bound") == 0, "no ticket is bound after", what)
    check(int(redis.ask("HGET", "lz:{test}:waiting", "*") or 0) == 0 and redis.ask("ZCARD", "lz:{test}:wait:demo") == 0, "nothing waits after", what)


def test_together(redis, fronts):
    """Pictures of several jobs, keys and fronts in the same passes have the bytes of pictures that are made alone."""
    a, b = fronts
    worker = join(redis, "together0", "--batch", "4", "--precision", "f32")
    two = {**SMALL, "steps": 2}
    alone = {seed: files(a, a.post({**two, "seed": seed}))[0] for seed in (1, 2, 3, 4, 5)}
    wide = files(a, a.post({**two, "width": 80}))[0]
    check(len({*alone.values(), wide}) == 6, "each is another picture")
    pause(a)
    three, four = a.post({**two, "seed": [1, 2, 3]}), b.post({**two, "seed": 4}, key="bob")
    wider, five = a.post({**two, "width": 80}), b.post({**two, "seed": 5}, key="bob")
    pause(b, False)
    check(files(b, three) == [alone[1], alone[2], alone[3]], "three pictures of a job")
    check(files(a, four, "bob") == [alone[4]] and files(a, five, "bob") == [alone[5]], "jobs of another key that joined")
    check(files(b, wider) == [wide], "a job that cannot join")
    shared = together(redis, a, [(three, "ada"), (four, "bob"), (five, "bob")])
    check(max(shared) == 4 and len(shared) - shared.count(4) <= 2, "four of these five were made together", shared)
    check(together(redis, a, [(wider, "ada")]) == [1], "the other alone")
    check(all(redis.job(id, "attempts") == "1" for id in (three, four, wider, five)), "each at the first attempt")
    clean(redis, "pictures that were made together")

    # Keys take turns also if the jobs of one of them fill a pass.
    eight = {**SMALL, "steps": 8}
    files(a, a.post(eight))
    pause(a)
    ada = [fronts[n % 2].post({**eight, "seed": n}) for n in range(7)]
    bob, root = b.post({**eight, "width": 80}, key="bob"), a.post({**eight, "seed": 9}, key="root")
    pause(a, False)
    until("all are done", lambda: all(redis.job(id, "state") == "2" for id in [*ada, bob, root]), PATIENCE)
    ends = {id: float(redis.job(id, "completed")) for id in [*ada, bob, root]}
    check(ends[root] < ends[ada[3]] and ends[bob] < ends[ada[3]], "jobs of other keys come before the fourth of a key",
          sorted(ends.values()), [ends[id] for id in (root, bob)])
    check(together(redis, a, [(id, "ada") for id in ada] + [(root, "root"), (bob, "bob")]).count(4) >= 4, "in spite of shared passes")

    # One of four is cancelled; then the process that paints is killed, and each job has lost an attempt.
    slow = {**SMALL, "width": 128, "height": 128, "steps": 24}
    expected = [files(a, a.post({**slow, "seed": seed}))[0] for seed in (1, 2, 3, 4)]
    for deed in ("cancel", "kill the child", "kill the worker"):
        pause(a)
        jobs = [fronts[seed % 2].post({**slow, "seed": seed}) for seed in (1, 2, 3, 4)]
        pause(a, False)
        until("all are being made", lambda: all(a.job(id)["step"] > 0 for id in jobs))
        check({redis.job(id, "worker") for id in jobs} == {worker.name}, "one worker has four jobs")
        if deed == "cancel":
            check(b.call("POST", f"/api/v1/jobs/{jobs[3]}/cancel", {})[2]["status"] == "cancelled", "it is cancelled")
            check(all(a.job(id)["status"] == "in_progress" for id in jobs[:3]), "the others go on")
        elif deed == "kill the child":
            os.kill(worker.child(), signal.SIGKILL)
        else:
            worker.stop(signal.SIGKILL)
            [age(redis, id) for id in jobs]
            worker = join(redis, "together1", "--batch", "4", "--precision", "f32")
        left = jobs[:3] if deed == "cancel" else jobs
        check([files(b, id)[0] for id in left] == expected[:len(left)], "the same bytes in spite of it", deed)
        if deed == "cancel":
            check(together(redis, a, [(id, "ada") for id in jobs[:3]]) == [4, 4, 4], "in one pass")
            check(not a.job(jobs[3])["pictures"], "no picture of a cancelled job")
        else:
            check([redis.job(id, "attempts") for id in jobs] == ["2"] * 4, "attempts", deed, [redis.job(id, "attempts") for id in jobs])
            check(together(redis, a, [(id, "ada") for id in jobs]) == [1] * 4, "then each is made alone", deed)
        clean(redis, deed)
    leave(redis, worker)


def test_apart(redis, fronts):
    """A job that only the process that paints can tell from the others waits again, in its place, and is made later."""
    model = ["-m", "tests/data/zimage/B", "--precision", "f32"]
    one = {"model": "B", "prompt": "a red fox", "width": 160, "height": 160, "steps": 200, "seed": 1}
    other, long = {**one, "seed": 2}, {**one, "prompt": "a very long story of a red fox"}
    worker = join(redis, "apart", *model, "--batch", "4")
    know(fronts, "B")
    alone = [files(fronts[0], fronts[0].post(body))[0] for body in (one, long, other)]
    pause(fronts[0])
    jobs = [fronts[n % 2].post(body) for n, body in enumerate((one, long, other))]
    pause(fronts[0], False)
    until("two are being made", lambda: all(fronts[0].job(id)["step"] > 0 for id in (jobs[0], jobs[2])))
    check(redis.job(jobs[1], "state") == "0" and not redis.job(jobs[1], "worker") and redis.job(jobs[1], "attempts") == "0", "the third waits",
          redis.job(jobs[1], "state"), redis.job(jobs[1], "attempts"))
    check(redis.ask("ZCARD", "lz:{test}:wait:B") == 1 and redis.ask("HGET", "lz:{test}:waiting", "*") == "1", "and is counted")
    check([files(fronts[1], id)[0] for id in jobs] == alone, "the same bytes")
    check(together(redis, fronts[0], [(id, "ada") for id in jobs]) == [2, 1, 2], "two together, one alone")
    check(all(redis.job(id, "attempts") == "1" for id in jobs), "each at the first attempt")
    leave(redis, worker)


def test_two_finish(redis, fronts):
    """Two workers make the same picture. The file and the record of the first one stay."""
    first = join(redis, "slow")
    job = fronts[0].post({**SMALL, "width": 192, "height": 192, "steps": 60})
    # A worker that is stopped before its child has the job would never make the picture; the first step tells that it has it.
    until("its child is at work", lambda: fronts[0].job(job)["step"] > 0)
    first.process.send_signal(signal.SIGSTOP)  # its child goes on, and nobody renews the lease
    check(redis.job(job, "state") == "1", "the worker is stopped before the picture is made")
    spool = f"{WORK}/pictures/spool/{first.name}"
    until("the child of the first has made it", lambda: any(name.endswith(".thumb.webp") for name in os.listdir(spool)), PATIENCE)
    age(redis, job)
    second = join(redis, "fast")
    made = files(fronts[1], job)
    path = f"{WORK}/pictures/pictures/{fronts[1].job(job)['pictures'][0]['id']}.png"
    before, pictures, data = os.stat(path), redis.ask("ZCARD", "lz:{test}:pictures"), redis.job(job, "picture0")
    check(redis.job(job, "worker") == second.name and redis.job(job, "attempts") == "2", "the second worker has made it")
    first.process.send_signal(signal.SIGCONT)
    until("the first has put its files away", lambda: not os.listdir(spool))
    after = os.stat(path)
    check((before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns), "the file of the first writer stays")
    check(files(fronts[0], job) == made and redis.job(job, "picture0") == data and redis.job(job, "made") == "1", "one picture, recorded once")
    check(redis.ask("ZCARD", "lz:{test}:pictures") == pictures, "no other picture is listed")
    again = [fronts[0].post({**SMALL, "seed": seed}) for seed in range(4)]
    until("both go on", lambda: all(fronts[1].done(id) for id in again))
    clean(redis, "two workers with one job")
    leave(redis, first, second)


def test_own_ticket(redis, fronts):
    """A worker whose lease has run out, while its picture is decoded and it looks for more work, does not take over its own job."""
    w = join(redis, "own")
    job = fronts[0].post({**SMALL, "width": 768, "height": 768})
    paints(redis, [w], job)
    while redis.job(job, "state") == "1":
        age(redis, job)
        time.sleep(0.02)
    check(fronts[1].done(job) and redis.job(job, "attempts") == "1", "one attempt", redis.job(job, "attempts"))
    clean(redis, "a lease that ran out")
    leave(redis, w)


def test_dead_letters(redis, fronts):
    """A job whose worker is lost three times is not tried a fourth time."""
    job = fronts[0].post(LONG)
    for n in range(3):
        w = join(redis, f"mortal{n}")
        until("it has the job", lambda w=w: redis.job(job, "worker") == w.name and redis.job(job, "state") == "1")
        check(redis.job(job, "attempts") == str(n + 1), "an attempt", n)
        w.stop(signal.SIGKILL)
        age(redis, job)
    check(job not in str(redis.ask("XRANGE", "lz:{test}:dead", "-", "+")), "it is not among the dead before")
    w = join(redis, "mortal3")
    until("it failed", lambda: fronts[1].job(job)["status"] == "failed")
    check(fronts[1].job(job)["error"]["code"] == "worker_lost", "the reason", fronts[1].job(job)["error"])
    check(job in str(redis.ask("XRANGE", "lz:{test}:dead", "-", "+")), "it is among the dead")
    check("(signal" not in open(f"{WORK}/{w.log}").read(), "the fourth worker lives")
    clean(redis, "a dead letter")
    w.stop(signal.SIGKILL)


def test_cancelled(redis, fronts):
    """Tickets of cancelled jobs are acknowledged without work: of jobs that wait, and of a job that a dead worker had."""
    a, b = fronts
    w = join(redis, "gone")
    running = a.post(LONG)
    paints(redis, [w], running)
    w.stop(signal.SIGKILL)
    check(redis.groups()["pending"] == 1, "the ticket is the dead worker's")
    check(b.call("POST", f"/api/v1/jobs/{running}/cancel", {})[2]["status"] == "cancelled", "cancelled without its worker")
    check(redis.groups()["pending"] == 0, "its ticket is acknowledged at once")
    jobs = [a.post({**SMALL, "seed": seed}) for seed in (1, 2, 3)]
    for id in jobs[:2]:
        check(b.call("POST", f"/api/v1/jobs/{id}/cancel", {})[2]["status"] == "cancelled", "cancelled while it waits")
    check(redis.groups()["lag"] == 3, "three tickets", redis.groups())
    w = join(redis, "next")
    until("the other is made", lambda: b.done(jobs[2]))
    clean(redis, "cancelled jobs")
    for id in [running] + jobs[:2]:
        check(redis.job(id, "state") == "4" and redis.job(id, "made") == "0", "no picture of a cancelled job")
    check(not any(redis.job(id, "started") for id in jobs[:2]), "they were not begun")
    leave(redis, w)


def test_limits(redis, fronts):
    """--queue and --queue-per-key hold for all fronts together."""
    a, b = fronts
    jobs = [(a.post(SMALL), "ada"), (a.post(SMALL), "ada"), (b.post(SMALL), "ada")]
    for f in fronts:
        status, answer, data = f.call("POST", "/api/v1/jobs", SMALL)
        check(status == 429 and data["error"]["code"] == "key_queue_full" and int(answer.getheader("retry-after")) > 0, "more than a key may have", status, data)
    jobs += [(fronts[n % 2].post(SMALL, key="bob"), "bob") for n in range(3)] + [(fronts[n % 2].post(SMALL, key="root"), "root") for n in range(2)]
    for f in fronts:
        check(f.call("POST", "/api/v1/jobs", SMALL, key="root")[0] == 429, "more than all may have")
    check(a.call("POST", f"/api/v1/jobs/{jobs[0][0]}/cancel", {})[0] == 200 and b.post(SMALL), "a place is free at the other front")
    for id, key in jobs[1:] + [(b.call("GET", "/api/v1/jobs?limit=1")[2]["jobs"][0]["id"], "ada")]:
        b.call("POST", f"/api/v1/jobs/{id}/cancel", {}, key=key)
    w = join(redis, "after")
    clean(redis, "a full queue")
    leave(redis, w)


def test_rolling(redis, ports, fronts):
    """Workers and fronts are replaced one after another, under load. No job is lost, and none is begun twice."""
    workers, accepted, done = [join(redis, f"old{n}") for n in range(2)], {}, threading.Event()

    def feed():
        choose, k = random.Random(1), 0
        while not done.is_set() or k < 40:
            body = {**SMALL, "seed": k, "steps": choose.choice([1, 8]), "count": choose.choice([1, 2])}
            try:
                status, _, data = choose.choice(fronts).call("POST", "/api/v1/jobs", body, idempotency_key=f"rolling-{k}")
            except (OSError, http.client.HTTPException, json.JSONDecodeError):
                status = 0
            if status == 202:
                accepted[data["id"]] = body["count"]
                k += 1
            time.sleep(0.02)

    client = threading.Thread(target=feed, daemon=True)
    client.start()
    until("some are made", lambda: len(accepted) > 5)
    for n in range(2):
        new = join(redis, f"new{n}")
        leave(redis, workers[n])
        workers[n] = new
    for n in range(2):
        check(fronts[n].stop() == 0, "a front ends with 0")
        fronts[n] = Front(redis, f"later{n}", "--queue", "8", "--queue-per-key", "3", port=ports[n])
        until("it is ready", lambda n=n: fronts[n].call("GET", "/readyz")[0] == 200)
    done.set()
    client.join()
    for id, count in accepted.items():
        until("its pictures are made", lambda id=id: redis.job(id, "state") == "2")
        check(redis.job(id, "made") == str(count) and redis.job(id, "attempts") == "1", "each once, at the first attempt", redis.job(id, "attempts"))
        check(len(files(fronts[0], id)) == count, "their files")
    check(redis.ask("ZCARD", "lz:{test}:pictures") >= sum(accepted.values()), "all are listed")
    clean(redis, "a rolling restart")
    leave(redis, *workers)


def make_ghosts(redis):
    """Two consumers that nobody hears of again; one of them owns a ticket."""
    stream = "lz:{ghosts}:jobs:demo"
    redis.ask("XGROUP", "CREATE", stream, "workers", "0", "MKSTREAM")
    redis.ask("XGROUP", "CREATECONSUMER", stream, "workers", "worker_idle")
    redis.ask("XADD", stream, "*", "ticket", "1")
    redis.ask("XREADGROUP", "GROUP", "workers", "worker_owner", "COUNT", "1", "STREAMS", stream, ">")
    return time.time()


def test_ghosts(redis, born):
    """Consumers that were silent for a minute are deleted when they own nothing."""
    def names():
        return {consumer[1] for consumer in redis.ask("XINFO", "CONSUMERS", "lz:{ghosts}:jobs:demo", "workers")}
    early = Worker(redis, "early", name_of_fleet="ghosts") if time.time() < born + 45 else None
    if early:
        until("it has joined", lambda: early.joined() and redis.ask("ZSCORE", "lz:{ghosts}:workers", early.name))
        check({"worker_idle", "worker_owner"} <= names(), "not before a minute has passed", names())
        early.stop(signal.SIGKILL)
        redis.ask("XGROUP", "DELCONSUMER", "lz:{ghosts}:jobs:demo", "workers", early.name)
    time.sleep(max(0.0, born + 61 - time.time()))
    late = Worker(redis, "late", name_of_fleet="ghosts")
    until("the idle consumer is deleted", lambda: "worker_idle" not in names())
    if not early:  # which may have taken the ticket over
        check("worker_owner" in names(), "not one that owned a ticket", names())
    check(late.stop() == 0, "it ends")


def run():
    fleet.write_keys()
    redis = Redis()
    born = make_ghosts(redis)
    ports = [free_port(), free_port()]
    fronts = [Front(redis, f"front{n}", "--queue", "8", "--queue-per-key", "3", port=ports[n]) for n in range(2)]
    first = join(redis, "first")
    know(fronts, "demo")
    leave(redis, first)
    test_limits(redis, fronts)
    test_cancelled(redis, fronts)
    test_two_finish(redis, fronts)
    test_own_ticket(redis, fronts)
    test_dead_letters(redis, fronts)
    test_rolling(redis, ports, fronts)
    for n in range(2):
        fronts[n].stop()
        fronts[n] = Front(redis, f"last{n}", port=ports[n])
    know(fronts, "demo")
    test_together(redis, fronts)
    test_apart(redis, fronts)
    test_ghosts(redis, born)
    for f in fronts:
        check(f.stop() == 0, "a front ends")


if __name__ == "__main__":
    fleet.main(run)
