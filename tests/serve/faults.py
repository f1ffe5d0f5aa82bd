"""faults.py LAZULI [--jobs N] [--worker-kills N] [--front-kills N] [--fill-disk N] [--overload SECONDS] [--batch N] [--random N]

Clients with three keys make pictures with the demo model, by jobs and by requests that wait. Meanwhile the worker and the
front are killed at random moments (kill -9), the disk is filled and freed (a small tmpfs, if this is root), jobs are
cancelled, and clients leave. At the end every accepted job must be finished exactly once, or have failed with a reason,
every picture (so also the one that is made after a picture was cancelled) must have the bytes that the command line makes,
and no other file may be left. Then, for --overload seconds, ten times as many clients as the queue holds: 429 with
retry-after, and memory that stays. Prints the counts, then a line 'checks: N, failed: M'. tests/cli/serve.sh runs it with
few jobs.
"""
import argparse
import collections
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from server import Counts, NotStarted, Server, check, resident

# The address sanitizer keeps freed memory for a while; memory that grows by that is no leak.
os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1"

KEYS = {"ada": "secret-of-ada", "bob": "secret-of-bob", "eve": "secret-of-eve"}
KINDS = [(seed, side, steps) for seed in (1, 2, 3) for side, steps in ((64, 2), (80, 4), (128, 8))]  # of pictures
REASONS = {"worker_lost", "insufficient_storage", "cancelled", "draining", "queue_timeout", "device_failed", "out_of_memory"}


def has_ended(pid):
    """Is it a process that has ended, and that the front has not noticed yet?"""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "Z"


class Trial:
    def __init__(self, lazuli, work, asked):
        self.lazuli, self.work, self.asked = lazuli, work, asked
        self.random = random.Random(asked.random)
        self.lock, self.done = threading.Lock(), threading.Event()
        self.accepted = {}  # id -> kind, of POST /jobs
        self.cancels = set()
        self.counts = collections.Counter()
        self.fresh = {}
        self.kinds = KINDS[:asked.kinds]
        for kind in self.kinds:
            seed, side, steps = kind
            subprocess.run([lazuli, "a fox", "-S", str(seed), "-W", str(side), "-H", str(side), "-s", str(steps), "-q", "-o", f"{work}/fresh.png"], check=True)
            with open(f"{work}/fresh.png", "rb") as file:
                self.fresh[kind] = file.read()
            os.remove(f"{work}/fresh.png")
        with open(f"{work}/keys", "w") as file:
            file.writelines(f"{name} {key}{' admin' if name == 'ada' else ''}\n" for name, key in KEYS.items())
        os.chmod(f"{work}/keys", 0o600)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.start()

    def start(self):
        self.server = Server(self.lazuli, self.work, "--state", f"{self.work}/state", "--key-file", f"{self.work}/keys", "-q", "--queue", "64",
                             "--queue-per-key", "24", "--queue-timeout", "3600", "--batch", self.asked.batch, port=self.port)

    def call(self, *arguments, **more):
        """As Server.call; None while the front is not there."""
        try:
            return self.server.call(*arguments, **more)
        except (OSError, http.client.HTTPException, ValueError):
            return None

    # ---- clients

    def submit(self, key, seed):
        """Jobs that are queued; some are cancelled."""
        choose = random.Random(seed)
        while not self.done.is_set():
            with self.lock:
                if len(self.accepted) >= self.asked.jobs:
                    return
            kind = choose.choice(self.kinds)
            answer = self.call("POST", "/api/v1/jobs", {"prompt": "a fox", "seed": kind[0], "width": kind[1], "height": kind[1], "steps": kind[2]}, key)
            if answer and answer[0] == 202:
                with self.lock:
                    self.accepted[answer[2]["id"]] = kind
                if choose.random() < 0.1:
                    time.sleep(choose.random() * 0.2)
                    cancelled = self.call("POST", f"/api/v1/jobs/{answer[2]['id']}/cancel", {}, key)
                    if cancelled and cancelled[0] == 200 and cancelled[2]["status"] == "cancelled":
                        self.cancels.add(answer[2]["id"])
            else:
                self.counts[f"jobs refused: {answer[2]['error']['code'] if answer else 'no connection'}"] += 1
                time.sleep(0.1)

    def ask(self, key, seed):
        """Requests that wait for their picture; some clients leave."""
        choose = random.Random(seed)
        while not self.done.is_set():
            kind = choose.choice(self.kinds)
            body = {"prompt": "a fox", "seed": kind[0], "size": f"{kind[1]}x{kind[1]}", "steps": kind[2], "response_format": "file"}
            leaves = choose.random() < 0.3
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
                connection.request("POST", "/v1/images/generations", json.dumps(body), {"authorization": f"Bearer {key}", "content-type": "application/json"})
                if leaves:
                    time.sleep(choose.random() * 0.3)
                    connection.close()
                    self.counts["clients that left"] += 1
                    continue
                answer = connection.getresponse()
                data = answer.read()
                connection.close()
            except (OSError, http.client.HTTPException):
                self.counts["requests without an answer"] += 1
                time.sleep(0.1)
                continue
            if answer.status == 200:
                check(data == self.fresh[kind], "a picture of a request is not that of the command line", kind)
                self.counts["requests with a picture"] += 1
            else:
                self.counts[f"requests refused: {json.loads(data)['error']['code']}"] += 1
                time.sleep(0.1)

    # ---- faults

    def kill_workers(self):
        while self.counts["workers killed"] < self.asked.worker_kills:
            if self.done.wait(self.random.uniform(0.05, 1.5)):
                return
            try:
                pid = self.server.worker()
                if pid and not has_ended(pid):
                    os.kill(pid, signal.SIGKILL)
                    self.counts["workers killed"] += 1
            except (OSError, ValueError):
                pass  # the front was killed, or starts another worker

    def kill_fronts(self):
        span = max(2.0, self.asked.worker_kills * 0.9 / max(1, self.asked.front_kills))
        for _ in range(self.asked.front_kills):
            if self.done.wait(self.random.uniform(0.3 * span, span)):
                return
            self.server.process.kill()
            self.server.process.wait()
            self.counts["fronts killed"] += 1
            while True:
                try:
                    self.start()
                    break
                except NotStarted:  # the disk is full just now
                    self.counts["starts refused"] += 1
                    time.sleep(0.3)

    def fill_disk(self):
        path = f"{self.work}/state/filler"
        for _ in range(self.asked.fill_disk):
            if self.done.wait(self.random.uniform(1, 6)):
                return
            try:
                with open(path, "wb", buffering=0) as file:
                    while True:
                        file.write(bytes(1 << 16))
            except OSError:
                self.counts["disk filled"] += 1
            self.done.wait(self.random.uniform(0.5, 2))
            os.remove(path)

    # ---- the end

    def judge(self):
        """Every accepted job is done once, or failed with a reason; pictures are whole; nothing else is left."""
        outcomes, pictures = collections.Counter(), set()
        key = KEYS["ada"]
        for job, kind in self.accepted.items():
            status, _, data = self.server.call("GET", f"/api/v1/jobs/{job}", key=key)
            if not check(status == 200, "an accepted job is lost", job, status):
                continue
            outcomes[data["status"]] += 1
            ids = [p["id"] for p in data["pictures"]]
            if data["status"] == "completed":
                check(len(ids) == 1 and data["error"] is None, "a completed job has one picture", data)
            else:
                code = (data["error"] or {}).get("code")
                outcomes[f"reason: {code}"] += 1
                check(data["status"] in ("failed", "cancelled") and code in REASONS, "a job that is not completed has a reason", data)
            if job in self.cancels:
                check(data["status"] == "cancelled", "a job that was cancelled stays so", data["status"])
            for picture in ids:
                check(picture not in pictures, "a picture of two jobs", picture)
                pictures.add(picture)
                status, _, data = self.server.call("GET", f"/api/v1/pictures/{picture}/file", key=key)
                check(status == 200 and data == self.fresh[kind], "a picture is not that of the command line", job, picture, status)
        state = f"{self.work}/state"
        listed, before, more = set(), "", True
        while more:
            page = self.server.call("GET", f"/api/v1/pictures?limit=200&before={before}", key=key)[2]
            listed |= {p["id"] for p in page["pictures"]}
            more, before = page["more"], page["pictures"][-1]["id"] if page["pictures"] else ""
        check(pictures <= listed, "every picture is in the gallery", len(pictures - listed))
        files = {name.split(".")[0] for name in os.listdir(f"{state}/pictures")}
        check(listed <= files, "every picture of the gallery has a file", len(listed - files))
        self.counts["files without a row, removed after a day"] = len(files - listed)
        check(not os.listdir(f"{state}/spool"), "nothing half-written is left", os.listdir(f"{state}/spool"))
        self.counts.update(outcomes)

    def run(self):
        threads = [threading.Thread(target=work, args=arguments) for work, arguments in
                   [(self.submit, (key, i)) for i, key in enumerate(KEYS.values())] + [(self.ask, (key, 10 + i)) for i, key in enumerate(KEYS.values())]]
        faults = [threading.Thread(target=work) for work in (self.kill_workers, self.kill_fronts, self.fill_disk)]
        begun = time.time()
        for t in threads + faults:
            t.start()
        for t in threads[:3] + faults:
            t.join()
        self.done.set()
        for t in threads:
            t.join()
        until = time.time() + 300

        def busy():
            answer = self.call("GET", "/api/v1/jobs?state=queued&limit=1", key=KEYS["ada"]), self.call("GET", "/api/v1/jobs?state=in_progress&limit=1", key=KEYS["ada"])
            return not all(answer) or any(a[2]["jobs"] for a in answer)
        while busy() and time.time() < until:
            time.sleep(0.1)
        check(not busy(), "the queue empties")
        self.judge()
        self.counts["seconds"] = round(time.time() - begun)


def overload(lazuli, work, seconds):
    """Ten times as many clients as the queue holds."""
    server, counts, done = Server(lazuli, work, "--state", f"{work}/overload", "-q", "--queue", "16", "--queue-per-key", "16"), collections.Counter(), threading.Event()
    server.wait()
    before = resident(server.process.pid)

    def ask():
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        body = json.dumps({"prompt": "a fox", "seed": 1, "size": "64x64", "steps": 2})
        while not done.is_set():
            connection.request("POST", "/v1/images/generations", body, {"content-type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            counts[answer.status] += 1
            if answer.status == 429 and not 1 <= int(answer.getheader("retry-after") or 0) <= 120:
                counts["429 without retry-after"] += 1
            if answer.status == 429:
                time.sleep(0.05)
    threads = [threading.Thread(target=ask) for _ in range(160)]
    for t in threads:
        t.start()
    time.sleep(seconds / 4)
    early = resident(server.process.pid)
    time.sleep(seconds * 3 / 4)
    late = resident(server.process.pid)
    slowest = 0
    for _ in range(20):
        begun = time.time()
        check(server.call("GET", "/healthz")[0] == 200, "health")
        slowest = max(slowest, time.time() - begun)
    done.set()
    for t in threads:
        t.join()
    check(counts[200] > 0 and counts[429] > 0, "some are served, the others refused", counts)
    check(set(counts) <= {200, 429}, "nothing else is answered", counts)
    check(late < 1.1 * early + 4, "memory stays", before, early, late)
    check(server.stop() == 0, "it ends")
    print("overload:", dict(counts), f"front {before:.1f} MiB idle, {early:.1f} early, {late:.1f} late; healthz at most {1e3 * slowest:.0f} ms")


def main():
    options = argparse.ArgumentParser()
    options.add_argument("lazuli")
    options.add_argument("--jobs", type=int, default=500)
    options.add_argument("--worker-kills", type=int, default=50)
    options.add_argument("--front-kills", type=int, default=10)
    options.add_argument("--fill-disk", type=int, default=3)
    options.add_argument("--overload", type=float, default=20)
    options.add_argument("--kinds", type=int, default=len(KINDS))
    options.add_argument("--batch", default="auto")
    options.add_argument("--random", type=int, default=1)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as work:
        mounted = False
        if asked.fill_disk:
            os.mkdir(f"{work}/state")
            mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m,mode=0700", "tmpfs", f"{work}/state"], stderr=subprocess.DEVNULL).returncode == 0
            if not mounted:
                print("the disk is not filled: that needs root")
                asked.fill_disk = 0
        trial = Trial(asked.lazuli, work, asked)
        try:
            trial.run()
            trial.server.stop()
            print("faults:", json.dumps(dict(sorted(trial.counts.items())), indent=1))
            if asked.overload:
                overload(asked.lazuli, work, asked.overload)
        finally:
            if trial.server.process.poll() is None:
                trial.server.process.kill()
                trial.server.process.wait()
            if Counts.failed:
                print(open(f"{work}/log", errors="replace").read()[-3000:])
            if mounted:
                time.sleep(0.2)
                subprocess.run(["umount", f"{work}/state"])
    print(f"checks: {Counts.checks}, failed: {Counts.failed}")
    sys.exit(Counts.failed > 0)


if __name__ == "__main__":
    main()
