"""together.py: pictures that `lazuli serve --batch 4` makes in the same passes; for tests/cli/serve.py.

Jobs wait while the queue is paused, and begin together when it goes on. The same jobs, each alone, must give the same
bytes.
"""
import os
import re
import signal

from server import Place, check, start, until

KEYS = {"ada": "secret-of-ada", "bob": "secret-of-bob", "eve": "secret-of-eve"}


class Jobs:
    """Jobs of the server, by name."""
    def __init__(self, server):
        self.s = server

    def call(self, method, path, body=None, key="ada"):
        return self.s.call(method, path, body, KEYS[key])

    def add(self, seed, side=64, steps=2, key="ada", **more):
        body = {"prompt": "a fox", "seed": seed, "width": side, "height": side, "steps": steps, **more}
        status, _, data = self.call("POST", "/api/v1/jobs", body, key)
        return data["id"] if check(status == 202, "the job is accepted", data) else ""

    def look(self, id):
        return self.call("GET", f"/api/v1/jobs/{id}")[2]

    def files(self, id):
        until("the job is done", lambda: self.look(id)["status"] not in ("queued", "in_progress"))
        job = self.look(id)
        check(job["status"] == "completed", "the job is completed", job)
        return [self.call("GET", f"/api/v1/pictures/{p['id']}/file")[2] for p in job["pictures"]]

    def pause(self):
        self.call("POST", "/api/v1/queue/pause", {})

    def resume(self):
        self.call("POST", "/api/v1/queue/resume", {})

    def passes(self):
        """The number of passes so far, and of the pictures in them."""
        text = self.call("GET", "/metrics")[2].decode()
        return [int(float(re.search(rf"^lazuli_pictures_together_{name} (\S+)", text, re.M).group(1))) for name in ("count", "sum")]

    def since(self, before):
        return [now - then for now, then in zip(self.passes(), before)]

    def at_work(self, ids):
        """Waits until all of them are in a step."""
        until("all are being made", lambda: all(self.look(id)["step"] > 0 for id in ids))


def same_bytes(j):
    alone = {}
    for seed in (1, 2, 3, 4, 5):
        alone[seed] = j.files(j.add(seed))[0]
    alone["wide"] = j.files(j.add(6, side=80))[0]
    alone["long"] = j.files(j.add(7, prompt="a small red fox on a green hill"))[0]
    check(len(set(alone.values())) == 7, "each is another picture")

    # A job of three pictures, and one that fits; two of another size; one whose prompt has another length
    before = j.passes()
    j.pause()
    three, wide, one = j.add([1, 2, 3]), j.add(6, side=80), j.add(4)
    long, wide_too, last = j.add(7, prompt="a small red fox on a green hill"), j.add(6, side=80), j.add(5)
    j.resume()
    check(j.files(three) == [alone[1], alone[2], alone[3]], "three pictures of a job")
    check(j.files(one) == [alone[4]] and j.files(last) == [alone[5]], "jobs that joined it")
    check(j.files(wide) == [alone["wide"]] == j.files(wide_too), "jobs of another size")
    check(j.files(long) == [alone["long"]], "a prompt of another length")
    passes, pictures = j.since(before)
    check(pictures == 8 and 3 <= passes <= 4, "few passes, and sizes are not mixed", passes, pictures)


def one_leaves(j):
    """Of four pictures in a pass one is cancelled; the others do not notice."""
    before = j.passes()
    j.pause()
    ids = [j.add(seed, side=128, steps=16) for seed in (1, 2, 3, 4)]
    j.resume()
    j.at_work(ids)
    status, _, job = j.call("POST", f"/api/v1/jobs/{ids[1]}/cancel", {})
    check(status == 200 and job["status"] == "cancelled", "it is cancelled", job)
    check(all(j.look(id)["status"] == "in_progress" for id in (ids[0], ids[2], ids[3])), "the others go on")
    made = [j.files(id) for id in (ids[0], ids[2], ids[3])]
    check(j.since(before) == [1, 4], "one pass", j.since(before))
    check(not j.look(ids[1])["pictures"], "no picture of a cancelled job")
    return made


def worker_dies(j, made):
    """A worker that dies costs each job of the pass an attempt. Then each is made alone."""
    before, restarts = j.passes(), j.s.metric("lazuli_worker_restarts_total")
    j.pause()
    ids = [j.add(seed, side=128, steps=16) for seed in (1, 3, 4)]
    later = j.add(5)
    j.resume()
    j.at_work(ids)
    os.kill(j.s.worker(), signal.SIGKILL)
    check([j.files(id) for id in ids] == made, "the same pictures in spite of a dead worker")
    j.files(later)
    check([j.look(id)["attempts"] for id in (*ids, later)] == [2, 2, 2, 1], "attempts", [j.look(id)["attempts"] for id in (*ids, later)])
    check(j.since(before) == [5, 7], "a pass of three, then four of one", j.since(before))
    check(j.s.metric("lazuli_worker_restarts_total") == restarts + 1, "one death")


def fair_turns(j):
    """Keys that were served less come first, whoever joins them; ada has had many pictures by now."""
    j.pause()
    ada = [j.add(seed, steps=8) for seed in range(1, 8)]
    bob = j.add(8, side=80, steps=8, key="bob")  # alike to none
    eve = j.add(9, steps=8, key="eve")
    j.resume()
    order, names = [], {**{id: f"ada{i}" for i, id in enumerate(ada)}, bob: "bob", eve: "eve"}

    def all_done():
        for id in names:
            if id not in order and j.look(id)["status"] == "completed":
                order.append(id)
        return len(order) == len(names)
    until("all are done", all_done)
    told = [names[id] for id in order]
    where = told.index
    check(where("eve") < where("ada3"), "a job of another key comes before the fourth", told)
    check(where("bob") < where("ada3"), "a job that is alike to none has its turn", told)


def test_together():
    with open(f"{Place.work}/three-keys", "w") as file:
        file.writelines(f"{name} {key}{' admin' if name == 'ada' else ''}\n" for name, key in KEYS.items())
    os.chmod(f"{Place.work}/three-keys", 0o600)
    s = start("together", "--key-file", f"{Place.work}/three-keys", "--batch", "4", "--precision", "f32")
    s.wait()
    j = Jobs(s)
    same_bytes(j)
    worker_dies(j, one_leaves(j))
    fair_turns(j)
    check(s.stop() == 0, "it ends")
