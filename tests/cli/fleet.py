"""fleet.py LAZULI WORK: a fleet on this machine, for tests/cli/fleet.sh: redis-server, two fronts, three workers.

Prints a line for each failed check, and the counts at the end. Needs Python's standard library and redis-server.
"""
import base64
import calendar
import hashlib
import hmac
import http.client
import http.server
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "serve"))
import server
from server import Counts, check, started, until

LAZULI, WORK = sys.argv[1:3]
KEYS = {"ada": "secret-one", "bob": "secret-two", "root": "secret-six"}
SMALL = {"prompt": "a fox", "width": 64, "height": 64, "steps": 1, "seed": 7}
LONG = {"prompt": "a fox", "width": 512, "height": 512, "steps": 200, "seed": 7}
ENDLESS = {**LONG, "width": 1024, "height": 1024}  # takes longer than until() waits


def start(words, log):
    process = subprocess.Popen(words, stderr=open(f"{WORK}/{log}", "ab"), stdout=subprocess.DEVNULL)
    started.append(process)
    return process


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Redis:
    def __init__(self):
        self.port = free_port()
        os.mkdir(f"{WORK}/redis")
        self.start()

    def start(self):
        self.process = start(["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", f"{WORK}/redis", "--save", "",
                              "--appendonly", "yes", "--appendfsync", "always", "--logfile", f"{WORK}/redis.log"], "redis.out")
        until("Redis answers", lambda: self.alive())

    def alive(self):
        try:
            return self.ask("PING") == "PONG"
        except OSError:
            return False

    def ask(self, *words):
        """Sends a command, and returns its reply."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as s:
            s.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in
                      [w if isinstance(w, bytes) else str(w).encode() for w in words]))
            return self.reply(s.makefile("rb"))

    def reply(self, f):
        line = f.readline().decode().rstrip()
        kind, rest = line[:1], line[1:]
        if kind == "*":
            return None if rest == "-1" else [self.reply(f) for _ in range(int(rest))]
        if kind == "$":
            return None if rest == "-1" else f.read(int(rest) + 2)[:-2].decode(errors="replace")
        return int(rest) if kind == ":" else rest

    def job(self, id, field):
        return self.ask("HGET", f"lz:{{test}}:job:{id}", field)

    def holds(self, entry):
        """Does a worker have this ticket?"""
        return bool(self.ask("XPENDING", "lz:{test}:jobs:demo", "workers", entry, entry, "1"))

    def groups(self):
        reply = self.ask("XINFO", "GROUPS", "lz:{test}:jobs:demo")[0]
        return dict(zip(reply[::2], reply[1::2]))


class Bucket(http.server.BaseHTTPRequestHandler):
    """A store that speaks S3: PUT (with If-None-Match), GET, HEAD and DELETE, with signatures of version 4 that are checked."""
    objects, refused, requests, conflicts = {}, [], [], set()
    token = "t" * 3000  # longer than a buffer of 2 KiB
    slow = 0  # seconds that a PUT of a picture takes
    away = False  # connections are closed without an answer
    raw = b""  # bytes that are sent in place of an answer
    lasting = ""  # "stored", "lost": each PUT of a picture is answered with 409, though another has stored the object, or has not

    def sign(self, body):
        """The signature that the request should have, by Amazon's description; None: something is wrong before that."""
        found = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, *SignedHeaders=([^,]+), *Signature=([0-9a-f]{64})",
                             self.headers.get("authorization", ""))
        when, digest = self.headers.get("x-amz-date", ""), self.headers.get("x-amz-content-sha256")
        if not found or found[1] != "test-key" or found[3] != "eu-test-1" or digest != hashlib.sha256(body).hexdigest() or when[:8] != found[2]:
            return None
        names = found[4].split(";")
        if names != sorted(names) or not {"host", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token"} <= set(names):
            return None
        if self.headers["x-amz-security-token"] != self.token:
            return None
        if abs(calendar.timegm(time.strptime(when, "%Y%m%dT%H%M%SZ")) - time.time()) > 900:
            return None
        canonical = "\n".join([self.command, self.path, "", *(f"{n}:{self.headers[n].strip()}" for n in names), "", found[4], digest])
        text = "\n".join(["AWS4-HMAC-SHA256", when, f"{found[2]}/{found[3]}/s3/aws4_request", hashlib.sha256(canonical.encode()).hexdigest()])
        key = b"AWS4test-secret"
        for part in (found[2], found[3], "s3", "aws4_request"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        return hmac.new(key, text.encode(), hashlib.sha256).hexdigest() == found[5]

    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.requests.append((self.command, self.path))
        status, answer = 200, b""
        if self.away:
            self.close_connection = True
            return
        if self.raw:
            self.wfile.write(self.raw)
            self.close_connection = True
            return
        if not self.sign(body) or not self.path.startswith("/bucket/some/prefix/"):
            self.refused.append((self.command, self.path, dict(self.headers)))
            status = 403
        elif self.command == "PUT" and "/pictures/" in self.path and self.lasting:
            if self.lasting == "stored":
                self.objects[self.path] = body
            status = 409
        elif len(self.requests) % 7 == 3:
            status = 503  # passes
        elif self.command == "PUT" and "/thumbs/" in self.path and self.path not in self.conflicts:
            self.conflicts.add(self.path)
            status = 409  # another writes it now
        elif self.command == "PUT" and self.path in self.objects and self.headers.get("if-none-match") == "*":
            status = 412
        elif self.command == "PUT":
            time.sleep(self.slow if "/pictures/" in self.path else 0)
            self.objects[self.path] = body
        elif self.command == "DELETE":
            status = 204 if self.objects.pop(self.path, None) else 404
        else:
            answer = self.objects.get(self.path)
            status, answer = (200, answer) if answer is not None else (404, b"")
        self.send_response(status)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    do_GET = do_HEAD = do_PUT = do_DELETE = handle_any
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass


class Front(server.Server):
    def __init__(self, redis, name, *options, port=0, pictures=None, name_of_fleet="test"):
        super().__init__(LAZULI, WORK, "--store", f"redis://127.0.0.1:{redis.port}/0", "--fleet", name_of_fleet, "--pictures",
                         pictures or f"{WORK}/pictures", "--key-file", f"{WORK}/keys", "--queue-timeout", "86400", *options, port=port, log=f"{name}.log")

    def call(self, method, path, body=None, key="ada", **headers):
        return super().call(method, path, body, KEYS[key], 60, **headers)

    def post(self, body, key="ada", **headers):
        status, _, data = self.call("POST", "/api/v1/jobs", body, key, **headers)
        check(status == 202, "a job is accepted", status, data)
        return data.get("id")

    def job(self, id, key="ada"):
        return self.call("GET", f"/api/v1/jobs/{id}", key=key)[2]

    def done(self, id, key="ada"):
        return self.job(id, key).get("status") == "completed"


class Worker:
    def __init__(self, redis, name, *options, pictures=None, name_of_fleet="test"):
        self.log = f"{name}.log"
        self.process = start([LAZULI, "worker", "--store", f"redis://127.0.0.1:{redis.port}/0", "--fleet", name_of_fleet,
                              "--pictures", pictures or f"{WORK}/pictures", "--threads", "1", *options], self.log)
        self.name = None

    def joined(self):
        found = re.findall(r"(worker_[a-z2-7]+) of the fleet", open(f"{WORK}/{self.log}").read())
        self.name = found[-1] if found else None
        return self.name

    def child(self):
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as file:
            words = file.read().split()
        return int(words[0]) if words else None

    def rests(self):
        """Does the process that makes pictures take no processor time for half a second?"""
        def used():
            with open(f"/proc/{self.child()}/stat") as file:
                return file.read().rpartition(")")[2].split()[11:13]
        before = used()
        time.sleep(0.5)
        return used() == before

    def sockets_of_child(self):
        folder = f"/proc/{self.child()}/fd"
        try:
            return sum(os.readlink(f"{folder}/{name}").startswith("socket:") for name in os.listdir(folder))
        except OSError:
            return 0  # it is starting

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        return self.process.wait(60)


def paints(redis, workers, job):
    """The worker that makes a picture of the job, once it has begun."""
    until("it is begun", lambda: redis.job(job, "state") == "1" and redis.job(job, "worker"))
    return [w for w in workers if w.name == redis.job(job, "worker")][0]


def newest(front, key):
    """The id of the newest job of the key."""
    jobs = front.call("GET", "/api/v1/jobs?limit=1", key=key)[2]["jobs"]
    return jobs[0]["id"] if jobs else None


def test_pictures(redis, fronts):
    a, b = fronts
    subprocess.run([LAZULI, "a fox", "-S", "7", "-W", "64", "-H", "64", "-s", "1", "-q", "-o", f"{WORK}/fox.png"], check=True)
    fox = open(f"{WORK}/fox.png", "rb").read()
    asked = {"prompt": "a fox", "size": "64x64", "num_inference_steps": 1, "seed": 7}
    for f in fronts:
        status, _, data = f.call("POST", "/v1/images/generations", asked)
        check(status == 200 and base64.b64decode(data["data"][0]["b64_json"]) == fox, "the bytes of the command line", status)
    job = a.post({**SMALL, "count": 3})
    until("the other front sees it", lambda: b.done(job))
    pictures = b.job(job)["pictures"]
    check([p["seed"] for p in pictures] == [7, 8, 9], "three pictures", pictures)
    for f in fronts:
        check(f.call("GET", f"/api/v1/pictures/{pictures[0]['id']}/file")[2] == fox, "the file by each front")
    check(b.call("GET", f"/api/v1/pictures/{pictures[0]['id']}/thumb")[2][8:12] == b"WEBP", "the small picture")
    check(b.call("GET", f"/api/v1/jobs/{job}", key="bob")[0] == 404, "another's job")
    check(b.call("GET", "/api/v1/jobs?limit=1")[2]["jobs"][0]["id"] == job, "the newest job first")
    check(len(b.call("GET", "/api/v1/pictures?q=FOX&limit=2")[2]["pictures"]) == 2, "pictures by words")
    check(not b.call("GET", "/api/v1/pictures?q=horse")[2]["pictures"], "no picture by words")
    check(b.call("PUT", f"/api/v1/pictures/{pictures[1]['id']}", {"rating": 3})[2]["rating"] == 3, "a rating")
    check([p["id"] for p in a.call("GET", "/api/v1/pictures?rating=3")[2]["pictures"]] == [pictures[1]["id"]] and
          not a.call("GET", "/api/v1/pictures?rating=4")[2]["pictures"], "pictures by rating, by the other front")
    status, _, plan = a.call("POST", "/api/v1/plan", SMALL)
    check(status == 200 and plan["bytes"] > 0, "a plan", plan)
    image = "data:image/png;base64," + base64.b64encode(fox).decode()
    edit = a.call("POST", "/v1/images/edits", {"prompt": "a cat", "steps": 1, "strength": 0.5, "images": [{"image_url": image}]})
    check(edit[0] == 200, "an edit", edit[2])
    picture = f"/api/v1/pictures/{pictures[2]['id']}"
    check(b.call("DELETE", picture)[0] == 200 and a.call("GET", picture)[0] == 410, "a removed picture is gone everywhere")
    stream = [json.loads(line[6:])["type"] for line in
              b.call("POST", "/v1/images/generations", {**asked, "stream": True, "num_inference_steps": 4, "size": "128x128"})[2].decode().split("\n")
              if line.startswith("data: {")]
    check(stream and stream[-1] == "image_generation.completed", "a stream", stream)


def test_uploads(redis, fronts):
    """The same image sent to both fronts at once; and an upload that a job names is kept."""
    data = open(f"{WORK}/fox.png", "rb").read() + bytes(4 << 20)
    answers = []

    def send(f):
        connection = http.client.HTTPConnection("127.0.0.1", f.port, timeout=60)
        connection.request("POST", "/api/v1/uploads", data, {"authorization": "Bearer " + KEYS["ada"], "content-type": "image/png"})
        answers.append(connection.getresponse().status)

    threads = [threading.Thread(target=send, args=(f,)) for _ in range(3) for f in fronts]
    [t.start() for t in threads]
    [t.join() for t in threads]
    name = hashlib.sha256(data).hexdigest()
    check(answers == [201] * 6, "each is accepted", answers)
    with open(f"{WORK}/pictures/uploads/{name}", "rb") as file:
        check(file.read() == data, "the file is whole")
    check(not [n for n in os.listdir(f"{WORK}/pictures/uploads") if n.endswith(".part")], "no part is left")
    asked = {**SMALL, "images": [f"upload:{name}"], "strength": 0.5}
    redis.ask("ZADD", "lz:{test}:uploads", int(time.time()) - 86000, name)
    job = fronts[0].post(asked)
    check(float(redis.ask("ZSCORE", "lz:{test}:uploads", name)) > time.time() - 60, "a job renews its upload")
    until("it is done", lambda: fronts[1].done(job))
    redis.ask("ZADD", "lz:{test}:uploads", int(time.time()) - 86500, name)
    check(fronts[0].call("POST", "/api/v1/jobs", asked)[0] == 400, "an upload is accepted for a day")


def add_old_pictures(redis):
    """More than two pages of pinned pictures and of ids without a picture, then an old picture."""
    def picture(id, **more):
        return json.dumps({"id": id, "job": "job_old", "owner": "key:ada", "index": 0, "seed": 1, "width": 64, "height": 64, "bytes": 1, "format": "png",
                           "created": time.time() - 90 * 86400, "facts": {}, **more})
    for n in range(130):
        if n % 3:
            redis.ask("HSET", f"lz:{{test}}:picture:pic_pinned{n}", "data", picture(f"pic_pinned{n}"), "job", "job_old", "pinned", 1, "removed", 0)
        redis.ask("ZADD", "lz:{test}:pictures", -1000 + n, f"pic_pinned{n}")
    redis.ask("HSET", "lz:{test}:picture:pic_aged", "data", picture("pic_aged"), "job", "job_old", "pinned", 0, "removed", 0)
    redis.ask("ZADD", "lz:{test}:pictures", -1, "pic_aged")


def test_old_pictures(redis):
    until("the old picture is removed", lambda: redis.ask("ZSCORE", "lz:{test}:pictures", "pic_aged") is None)
    check(redis.ask("ZSCORE", "lz:{test}:pictures", "pic_pinned0") is None, "an id without a picture is removed")
    check(redis.ask("ZSCORE", "lz:{test}:pictures", "pic_pinned128") is not None, "a pinned picture stays")
    check(redis.ask("ZCOUNT", "lz:{test}:pictures", 0, "+inf") > 5, "young pictures stay")


def test_search(redis, front):
    """A search of many pictures is answered in pieces."""
    redis.ask("EVAL", "for i = 1, 1200 do local id = 'pic_many'..i "
              "redis.call('HSET', KEYS[1]..'picture:'..id, 'data', cjson.encode({id=id, job=i == 1 and 'job_zebra' or 'job_many', owner='key:bob', index=0, "
              "seed=1, width=64, height=64, bytes=1, format='png', created=1, facts={x=1}}), 'job', i == 1 and 'job_zebra' or 'job_many', 'pinned', 1, "
              "'removed', 0) redis.call('ZADD', KEYS[1]..'pictures:key:bob', -2000 + i, id) end", "1", "lz:{test}:")
    redis.ask("HSET", "lz:{test}:job:job_zebra", "settings", '{"prompt": "a Zebra"}')
    found, before, calls = [], "", 0
    while calls < 10:
        answer = front.call("GET", f"/api/v1/pictures?q=zebra&limit=10&before={before}", key="bob")[2]
        calls, before = calls + 1, answer.get("next")
        found += [p["id"] for p in answer["pictures"]]
        check(answer["more"] == bool(before), "more, and where", answer)
        if not before:
            break
    check(found == ["pic_many1"] and calls == 3, "found in the third piece", found, calls)


def test_stolen(redis, front, workers):
    """A worker whose ticket is another's now changes nothing of the job."""
    job = front.post(LONG)
    w = paints(redis, workers, job)
    until("it has steps", lambda: front.job(job)["step"] > 1)
    redis.ask("XCLAIM", "lz:{test}:jobs:demo", "workers", "thief", "0", redis.job(job, "entry"))
    os.kill(w.child(), signal.SIGKILL)
    until("its worker has noticed", lambda: "(signal 9)" in open(f"{WORK}/{w.log}").read())
    time.sleep(1)
    check(redis.job(job, "attempts") == "1", "an attempt that is not counted", redis.job(job, "attempts"))
    check(front.call("POST", f"/api/v1/jobs/{job}/cancel", {})[2]["status"] == "cancelled", "a front cancels it")


def test_repeats(fronts):
    """One job for each Idempotency-Key, also if both fronts get it at once."""
    a, b = fronts
    job = a.post(SMALL, idempotency_key="once")
    check(b.post(SMALL, idempotency_key="once") == job, "the same job")
    check(b.call("POST", "/api/v1/jobs", {**SMALL, "seed": 8}, idempotency_key="once")[0] == 422, "another body")
    check(b.post(SMALL, key="bob", idempotency_key="once") != job, "another key's repeat")
    answers = []

    def ask(f, k):
        status, _, data = f.call("POST", "/api/v1/jobs", SMALL, idempotency_key=f"race-{k}")
        answers.append((k, status, data.get("id")))

    threads = [threading.Thread(target=ask, args=(f, k)) for k in range(4) for f in fronts]
    [t.start() for t in threads]
    [t.join() for t in threads]
    for k in range(4):
        mine = [(status, id) for n, status, id in answers if n == k]
        ids = {id for status, id in mine if status == 202}
        check(len(ids) == 1 and all(status in (202, 503) for status, _ in mine), "one job of a race", mine)


def test_cancel(redis, fronts, workers):
    a, b = fronts
    job = a.post(ENDLESS)
    w = paints(redis, workers, job)
    until("it has steps", lambda: a.job(job)["step"] > 0)
    entry = redis.job(job, "entry")
    check(b.call("POST", f"/api/v1/jobs/{job}/cancel", {})[2]["status"] == "cancelled", "cancelled by the other front")
    until("its ticket is gone", lambda: not redis.holds(entry))
    until("its worker rests", w.rests)
    check(a.job(job)["status"] == "cancelled", "the first front knows", a.job(job))
    # A client that leaves
    data = json.dumps({"prompt": "a fox", "size": "1024x1024", "steps": 200}).encode()
    before = newest(a, "bob")
    s = socket.create_connection(("127.0.0.1", a.port))
    s.sendall(b"POST /v1/images/generations HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret-two\r\nContent-Type: application/json\r\n"
              b"Content-Length: %d\r\n\r\n" % len(data) + data)
    until("it is queued", lambda: newest(a, "bob") != before)
    job = newest(a, "bob")
    w = paints(redis, workers, job)
    entry = redis.job(job, "entry")
    s.close()
    until("its ticket is gone", lambda: not redis.holds(entry))
    until("its worker rests", w.rests)
    check(a.job(job, "bob")["status"] == "cancelled", "it is cancelled after the client left", a.job(job, "bob"))


def test_order(redis, fronts):
    """Keys take turns; a full queue is refused; priority."""
    a, b = fronts
    until("nothing waits", lambda: redis.ask("HGET", "lz:{test}:waiting", "*") == "0")
    check(a.call("POST", "/api/v1/queue/pause", {}, key="root")[2]["paused"], "pause")
    ada = [a.post(SMALL) for _ in range(5)]
    bob = [b.post(SMALL, key="bob") for _ in range(2)]
    seconds = a.call("POST", "/api/v1/plan", SMALL)[2]["seconds"]
    status, _, data = a.call("POST", "/v1/images/generations", {"prompt": "a fox", "size": "64x64", "num_inference_steps": 1},
                             x_stainless_read_timeout=str(2 * seconds))
    check((status, data["error"]["code"]) == (429, "would_wait_too_long"), "a client that would give up", seconds, status, data)
    first = b.post({**SMALL, "priority": 1}, key="root")
    check(a.job(ada[4])["queue_position"] == 8 and b.job(bob[0], "bob")["queue_position"] == 3, "positions")
    check(redis.groups()["lag"] == 8, "the lag is the number of waiting jobs", redis.groups())
    status, answer, data = b.call("POST", "/api/v1/jobs", SMALL, key="bob")
    check((status, data["error"]["code"]) == (429, "queue_full") and int(answer.getheader("retry-after")) > 0, "a full queue", data)
    a.call("POST", f"/api/v1/jobs/{ada[3]}/cancel", {})
    check(b.post(SMALL, key="bob"), "a place is free again")
    moved = b.call("POST", f"/api/v1/jobs/{ada[4]}/first", {})
    check(moved[0] == 200 and moved[2]["queue_position"] == 2 and b.job(bob[0], "bob")["queue_position"] == 3, "the last of ada's jobs is her first",
          moved[2].get("queue_position"), b.job(bob[0], "bob"))
    check(a.call("POST", f"/api/v1/jobs/{ada[4]}/first", {})[2]["queue_position"] == 2, "and stays it")
    check(a.call("POST", f"/api/v1/jobs/{ada[0]}/first", {}, key="bob")[0] == 404, "not the job of another")
    a.call("POST", "/api/v1/queue/resume", {}, key="root")
    all_jobs = [first] + ada + bob
    until("all are done", lambda: all(redis.job(id, "state") in ("2", "4") for id in all_jobs))
    order = sorted([first] + ada[:3] + ada[4:] + bob, key=lambda id: float(redis.job(id, "started")))
    check(order == [first, ada[4], bob[0], ada[0], bob[1], ada[1], ada[2]], "keys take turns",
          [("a%d" % ada.index(x) if x in ada else "b%d" % bob.index(x) if x in bob else "first") for x in order])


def test_lost(redis, fronts, workers):
    """A process that dies three times with one job."""
    job = fronts[0].post(LONG)
    for n in range(3):
        w = paints(redis, workers, job)

        def painted(n=n):
            j = fronts[0].job(job)
            return j["attempts"] == n + 1 and j["stage"]
        until("it paints", painted)
        os.kill(w.child(), signal.SIGKILL)
        until("its death is counted", lambda n=n: redis.job(job, "attempts") == str(n + 2))
    until("the new process has the socket to its worker, and no other", lambda: w.sockets_of_child() == 1)
    until("it failed", lambda: fronts[1].job(job)["status"] == "failed")
    check(fronts[1].job(job)["error"]["code"] == "worker_lost", "the reason", fronts[1].job(job))
    check(job in str(redis.ask("XRANGE", "lz:{test}:dead", "-", "+")), "it is among the dead")


def test_hostile(redis, fronts):
    """Whatever is in Redis, fronts and workers stay."""
    for channel in ("news", "previews", "control"):
        for text in ("", "{", "[]", "{\"type\": 5}", "x" * 100000, "\0\0\0\xff\xff\xff\xff\xff", json.dumps({"type": "state", "job": "../x"}),
                     json.dumps({"type": "progress", "job": "job_none", "stage": "x" * 1000, "step": 10**18}),
                     json.dumps({"type": "plan", "ask": "ask_x", "settings": []})):
            redis.ask("PUBLISH", "lz:{test}:" + channel, text)
    for id, fields in [("job_empty", ["state", "0"]),
                       ("job_wrong", ["state", "0", "settings", "[" * 5000, "n", "99", "seeds", "{}", "owner", "x" * 5000, "model", "demo"]),
                       ("job_seeds", ["state", "0", "settings", "{}", "n", "2", "seeds", "[1]", "owner", "key:ada", "model", "demo"])]:
        redis.ask("HSET", "lz:{test}:job:" + id, *fields)
        redis.ask("ZADD", "lz:{test}:wait:demo", "0", "0" * 16 + ":" + id)
        redis.ask("XADD", "lz:{test}:jobs:demo", "*", "ticket", "1")
        redis.ask("ZADD", "lz:{test}:list:key:ada", "9" * 9, id)
        check(fronts[0].call("GET", "/api/v1/jobs/" + id)[0] == 404, "not a job", id)
    until("they are dealt with", lambda: all(redis.job(id, "state") == "3" for id in ("job_empty", "job_wrong", "job_seeds")))
    # Settings that no front has checked: a count that is too large, images that are no ids
    settings = {**SMALL, "model": "demo", "n": 10**6}
    redis.ask("HSET", "lz:{test}:job:job_many", "state", "3", "settings", json.dumps(settings), "n", "1", "seeds", "[1]", "owner", "key:ada", "model", "demo")
    status, _, again = fronts[0].call("POST", "/api/v1/jobs/job_many/retry", {})
    check(status == 202 and redis.job(again["id"], "n") == "10", "a count from the store is limited", status, again)
    fronts[0].call("POST", f"/api/v1/jobs/{again['id']}/cancel", {})
    settings = {**SMALL, "model": "demo", "images": [1, "upload:../../keys"], "mask": "upload:../x"}
    redis.ask("HSET", "lz:{test}:job:job_paths", "state", "0", "settings", json.dumps(settings), "n", "1", "seeds", "[1]", "owner", "key:ada", "model", "demo")
    redis.ask("ZADD", "lz:{test}:wait:demo", "0", "0" * 16 + ":job_paths")
    redis.ask("XADD", "lz:{test}:jobs:demo", "*", "ticket", "1")
    until("it failed", lambda: redis.job("job_paths", "state") == "3")
    check(redis.job("job_paths", "attempts") == "1", "without the end of a worker", redis.job("job_paths", "attempts"))
    # Sizes that no front has checked: of a job, and of the images of a plan
    for n, more in enumerate(({"width": 2**62, "height": 2**62}, {"width": 2**31, "height": 64}, {"width": -64, "height": 64}, {"steps": 2**40})):
        id = f"job_size{n}"
        redis.ask("HSET", "lz:{test}:job:" + id, "state", "0", "settings", json.dumps({**SMALL, "model": "demo", **more}), "n", "1", "seeds", "[1]", "owner",
                  "key:ada", "model", "demo", "attempts", str(2**31 - 1) if n == 3 else "0", "created", "1e300", "started", "nan")
        redis.ask("ZADD", "lz:{test}:wait:demo", "0", "0" * 16 + ":" + id)
        redis.ask("XADD", "lz:{test}:jobs:demo", "*", "ticket", "1")
        check(fronts[0].call("GET", "/api/v1/jobs/" + id)[0] == 200, "times that are none", id)
        until("it failed", lambda: redis.job(id, "state") == "3")
        check(n == 3 or redis.job(id, "attempts") == "1", "without the end of a worker", id, redis.job(id, "attempts"))
    for size in ([2**62, 4], [4, 6148914691236517206], [-1, -1], [0, 0], ["x"], []):
        redis.ask("PUBLISH", "lz:{test}:control", json.dumps({"type": "plan", "ask": "ask_a", "settings": {**SMALL, "model": "demo", "image_sizes": [size] * 4}}))
        redis.ask("DEL", "lz:{test}:ask:ask_a")
    redis.ask("HSET", "lz:{test}:models", "broken", "{", "x" * 100, "{}")
    redis.ask("HSET", "lz:{test}:picture:pic_x", "data", '{"id": "../../etc/passwd", "job": "j", "owner": "key:ada", "format": "png", "facts": {}}')
    check(fronts[0].call("GET", "/api/v1/pictures/pic_x/file")[0] == 404, "a picture with a path")
    check(fronts[0].call("GET", "/api/v1/jobs")[0] == 200 and fronts[1].done_soon(), "all goes on")


def test_redis(redis, fronts):
    """Redis dies with jobs in it."""
    jobs = [fronts[0].post({**SMALL, "steps": 30, "width": 128, "height": 128})]
    until("one is being made", lambda: redis.job(jobs[0], "state") == "1")
    fronts[0].call("POST", "/api/v1/queue/pause", {}, key="root")
    jobs += [fronts[n % 2].post({**SMALL, "steps": 8, "width": 128, "height": 128}) for n in range(4)]
    redis.process.kill()
    redis.process.wait()
    until("requests are refused", lambda: fronts[0].call("GET", "/api/v1/jobs")[0] == 503)
    status, answer, data = fronts[1].call("POST", "/api/v1/jobs", SMALL)
    check((status, data["error"]["code"]) == (503, "not_ready") and answer.getheader("retry-after"), "503 while Redis is away", data)
    check(fronts[0].call("GET", "/healthz")[0] == 200 and fronts[0].call("GET", "/readyz")[0] == 503, "alive, not ready")
    time.sleep(1)
    redis.start()
    until("ready again", lambda: fronts[0].call("GET", "/readyz")[0] == 200)
    until("the lag is known again", lambda: redis.groups()["lag"] == 4)
    fronts[1].call("POST", "/api/v1/queue/resume", {}, key="root")
    for n, job in enumerate(jobs):
        until("its jobs are done", lambda: fronts[(n + 1) % 2].done(job))
    check(all(redis.job(job, "made") == "1" for job in jobs), "once each")


def test_drain(redis, fronts, workers):
    """SIGTERM of a worker between two pictures, and of a front."""
    job = fronts[0].post({**SMALL, "steps": 8, "width": 128, "height": 128, "count": 4})
    w = paints(redis, workers, job)
    check(w.stop() == 0, "a worker ends with 0")
    until("another goes on", lambda: fronts[1].done(job))
    check(redis.job(job, "attempts") == "1", "an end is no death", redis.job(job, "attempts"))
    check(not any(name.startswith(w.name) for name in os.listdir(f"{WORK}/pictures/spool")), "its folder is removed")
    last = fronts[0].post({**SMALL, "steps": 4, "width": 128, "height": 128})
    check(fronts[0].stop() == 0, "a front ends with 0")
    until("its job is done", lambda: fronts[1].done(last))


def test_slow_bucket(redis, front):
    """A worker renews its lease while the bucket is slow."""
    Bucket.slow, idle = 6, []
    job = front.post(SMALL)
    begun = time.time()
    while time.time() < begun + 20 and not front.done(job):
        pending = redis.ask("XPENDING", "lz:{far}:jobs:demo", "workers", "-", "+", "1")
        idle += [entry[2] for entry in pending]
        time.sleep(0.1)
    Bucket.slow = 0
    check(time.time() - begun > 5 and idle and max(idle) < 4500, "the lease is renewed meanwhile", time.time() - begun, max(idle, default=None))
    check(redis.ask("HGET", f"lz:{{far}}:job:{job}", "attempts") == "1", "by one worker")


def test_lasting_conflict(redis, front):
    """409 for each try: the object decides whether another has stored it."""
    for how, status in (("stored", "completed"), ("lost", "failed")):
        Bucket.lasting = how
        job = front.post(SMALL)
        until("it has ended", lambda: front.job(job)["status"] in ("completed", "failed"))
        j = front.job(job)
        check(j["status"] == status and (how == "stored" or j["error"]["code"] == "insufficient_storage"), "a lasting 409", how, j["status"], j["error"])
        check(any(command == "HEAD" for command, _ in Bucket.requests), "the object was asked for")
    Bucket.lasting = ""


def test_odd_bucket(front, picture):
    """Answers that are none: the picture cannot be had now, the front goes on, and no such copy is kept."""
    ok = b"HTTP/1.1 200 OK\r\n"
    for raw in (b"hello\r\n\r\n", ok + b"content-length: 100\r\n\r\nshort", ok + b"content-length: -5\r\n\r\nxx", ok + b"content-length: 99999999999\r\n\r\n",
                ok + b"transfer-encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\nabc", ok + b"x: " + b"a" * 400000,
                b"HTTP/1.1 302 Found\r\nlocation: file:///etc/passwd\r\ncontent-length: 0\r\n\r\n", b"HTTP/1.1 206 Partial Content\r\ncontent-length: 3\r\n\r\nabc"):
        Bucket.raw = raw
        time.sleep(1)  # a bucket that did not answer is asked once a second
        status, _, data = front.call("GET", f"/api/v1/pictures/{picture}/file")
        check(status == 503 and data["error"]["code"] == "not_ready", "an odd answer", raw[:60], status, data)
    Bucket.raw = b""
    check(front.call("GET", "/healthz")[0] == 200, "the front lives")


def test_lost_bucket(front, picture):
    """While the bucket is away, a picture that is not here is 503; then it is there again."""
    Bucket.away = True
    status, answer, data = front.call("GET", f"/api/v1/pictures/{picture}/thumb")
    check((status, data["error"]["code"]) == (503, "not_ready") and int(answer.getheader("retry-after")) > 0, "no bucket", status, data)
    Bucket.away = False
    until("it is back", lambda: front.call("GET", f"/api/v1/pictures/{picture}/thumb")[0] == 200)
    [Bucket.objects.pop(name) for name in list(Bucket.objects) if name.endswith(picture + ".png")]
    check(front.call("GET", f"/api/v1/pictures/{picture}/file")[0] == 410, "a picture that is not in the bucket")


def test_s3(redis):
    """Pictures and uploads in a bucket; each process has a folder of its own for copies."""
    bucket = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
    threading.Thread(target=bucket.serve_forever, daemon=True).start()
    os.environ.update(AWS_ACCESS_KEY_ID="test-key", AWS_SECRET_ACCESS_KEY="test-secret", AWS_REGION="eu-test-1", AWS_SESSION_TOKEN=Bucket.token)

    def options(name):
        return ["--s3-endpoint", f"http://127.0.0.1:{bucket.server_port}", "--state", f"{WORK}/{name}"]
    where = {"pictures": "s3://bucket/some/prefix/", "name_of_fleet": "far"}
    front, other = [Front(redis, name, *options(name), **where) for name in ("far0", "far1")]
    worker = Worker(redis, "far2", *options("far2"), **where)
    until("ready", lambda: all(f.call("GET", "/readyz")[0] == 200 for f in (front, other)))
    job = front.post({**SMALL, "count": 2})
    until("the pictures are made", lambda: other.done(job))
    pictures = other.job(job)["pictures"]
    with open(f"/proc/{worker.child()}/environ", "rb") as file:
        environment = file.read()
    check(b"AWS_REGION=" in environment and b"test-secret" not in environment, "the process that makes pictures gets no secret")
    fox = other.call("GET", f"/api/v1/pictures/{pictures[0]['id']}/file")[2]
    check(fox == open(f"{WORK}/fox.png", "rb").read(), "the bytes of the command line, out of the bucket", len(fox))
    check(Bucket.objects.get(f"/bucket/some/prefix/pictures/{pictures[0]['id']}.png") == fox, "the object", list(Bucket.objects))
    check(other.call("GET", f"/api/v1/pictures/{pictures[0]['id']}/thumb")[2][8:12] == b"WEBP", "the small picture")
    image = "data:image/png;base64," + base64.b64encode(fox).decode()
    edit = front.call("POST", "/v1/images/edits", {"prompt": "a cat", "steps": 1, "strength": 0.5, "images": [{"image_url": image}]})
    check(edit[0] == 200, "an edit of an upload", edit[2])
    check(front.call("DELETE", f"/api/v1/pictures/{pictures[1]['id']}")[0] == 200 and
          not any(pictures[1]["id"] in name for name in Bucket.objects), "removed from the bucket", list(Bucket.objects))
    check(not Bucket.refused, "all signatures are right", Bucket.refused[:1])
    check(sorted(name.split("/")[4] for name in Bucket.objects) == ["pictures"] * 2 + ["thumbs"] * 2 + ["uploads"], "objects", list(Bucket.objects))
    test_slow_bucket(redis, front)
    job = front.post(SMALL)
    until("a picture is made", lambda: front.done(job))
    test_odd_bucket(other, other.job(job)["pictures"][0]["id"])
    test_lost_bucket(other, other.job(job)["pictures"][0]["id"])
    test_lasting_conflict(redis, front)
    check(all(p.stop() == 0 for p in (front, other, worker)), "they end")
    os.environ["AWS_SECRET_ACCESS_KEY"] = "wrong"
    worker = Worker(redis, "far3", *options("far3"), **where)
    front = Front(redis, "far4", *options("far4"), **where)
    until("ready", lambda: front.call("GET", "/readyz")[0] == 200)
    job = front.post(SMALL)
    until("it failed", lambda: front.job(job)["status"] == "failed")
    check(front.job(job)["error"]["code"] == "insufficient_storage" and Bucket.refused, "a wrong key", front.job(job)["error"])
    check(all(p.stop() == 0 for p in (front, worker)), "they end again")
    bucket.shutdown()


def test_start():
    """Wrong options are one sentence and a code, and change nothing."""
    none = f"{WORK}/none"
    for code, sentence, *options in [
            (2, "--store takes an address", "--store", "http://x:secret@y", "--pictures", none), (2, "--store needs --pictures", "--store", "redis://x"),
            (2, "--store redis://HOST:PORT/DB", "--fleet", "x"), (2, "--fleet takes", "--store", "redis://x", "--fleet", "a b", "--pictures", none),
            (2, "there is no --state", "--store", "redis://x", "--state", none, "--pictures", none),
            (2, "--pictures takes", "--store", "redis://x", "--pictures", "s3://../x"), (1, "AWS_ACCESS_KEY_ID", "--store", "redis://x", "--pictures", "s3://x")]:
        for command in ("serve", "worker"):
            refused = subprocess.run([LAZULI, command, *options], capture_output=True, text=True, timeout=60)
            check(refused.returncode == code and sentence in refused.stderr and refused.stderr.count("\n") == 1 and "secret" not in refused.stderr,
                  "wrong options", command, options, refused.returncode, refused.stderr)
    check(not os.path.exists(none), "no folder is made")
    for address in ("redis://", "redis://:1", "redis://x:y", "redis://x:99999", "redis://x/y", "redis://[::1", "redis://x%zz"):
        refused = subprocess.run([LAZULI, "worker", "--store", address, "--pictures", none], capture_output=True, text=True, timeout=60)
        check(refused.returncode == 1 and "--store takes an address" in refused.stderr, "a wrong address", address, refused.stderr)
    refused = subprocess.run([LAZULI, "worker"], capture_output=True, text=True, timeout=60)
    check(refused.returncode == 2 and "worker needs --store" in refused.stderr, "a worker without a store", refused.stderr)


def write_keys():
    with open(f"{WORK}/keys", "w") as file:
        file.write("ada secret-one\nbob secret-two\nroot secret-six admin\n")
    os.chmod(f"{WORK}/keys", 0o600)


def test_all():
    test_start()
    write_keys()
    redis = Redis()
    fronts = [Front(redis, f"front{n}", "--queue", "8") for n in range(2)]
    status, answer, data = fronts[0].call("POST", "/api/v1/jobs", SMALL)
    check((status, data["error"]["code"]) == (503, "not_ready") and answer.getheader("retry-after"), "no worker yet", data)
    idle = Worker(redis, "idle", name_of_fleet="idle")  # shares the folder, and gets no job
    workers = [Worker(redis, f"worker{n}") for n in range(3)]
    until("the idle one has joined", idle.joined)
    until("the workers have joined", lambda: all(w.joined() for w in workers) and redis.ask("ZCARD", "lz:{test}:workers") == 3)
    until("the fronts know", lambda: all(f.call("GET", "/readyz")[0] == 200 for f in fronts))
    Front.done_soon = lambda self: until("a job", lambda id=self.post(SMALL): self.done(id)) < 60
    test_pictures(redis, fronts)
    test_uploads(redis, fronts)
    for path in ("models/demo/load", "models/demo/unload"):
        status, _, data = fronts[0].call("POST", "/api/v1/" + path, {}, key="root")
        check((status, data["error"]["code"]) == (400, "unsupported_value"), "about the worker of a server", path, status, data)

    # A worker is killed; its lease runs out while the other tests run.
    job = fronts[0].post({**SMALL, "width": 128, "height": 128, "steps": 60})
    dead = paints(redis, workers, job)
    until("it has steps", lambda: fronts[0].job(job)["step"] > 1)
    dead.stop(signal.SIGKILL)
    killed = time.time()
    workers.remove(dead)
    test_repeats(fronts)
    test_order(redis, fronts)
    test_cancel(redis, fronts, workers)
    test_hostile(redis, fronts)
    add_old_pictures(redis)
    test_lost(redis, fronts, workers)
    until("another worker has taken it over", lambda: redis.job(job, "attempts") == "2")
    check(time.time() - killed > 10, "not before its lease ran out", time.time() - killed)
    until("it is done", lambda: fronts[1].done(job))
    check(fronts[1].job(job)["attempts"] == 2, "the second attempt")
    spool, long_ago = f"{WORK}/pictures/spool", (time.time() - 2 * 86400,) * 2
    os.utime(f"{spool}/{dead.name}", long_ago)
    workers.append(Worker(redis, "worker3"))
    until("a new worker has joined", lambda: workers[-1].joined() and redis.ask("ZSCORE", "lz:{test}:workers", workers[-1].name))
    check(not os.path.exists(f"{spool}/{dead.name}") and all(os.path.isdir(f"{spool}/{w.name}") for w in workers), "old folders are removed, of the dead only",
          os.listdir(spool))
    os.utime(f"{spool}/{idle.name}", long_ago)
    test_redis(redis, fronts)
    test_drain(redis, fronts, workers)
    test_old_pictures(redis)
    test_search(redis, fronts[1])
    test_stolen(redis, fronts[1], workers)
    for p in fronts[1:] + workers:
        if p.process.poll() is None:
            check(p.stop() == 0, "it ends")
    check(redis.groups()["pending"] == 0 and redis.groups()["lag"] == 0 and redis.ask("HLEN", "lz:{test}:bound") == 0, "nothing is left", redis.groups())
    names = os.listdir(f"{WORK}/pictures/pictures")
    check(all(re.fullmatch("pic_[0-9a-f]{32}[.]png", n) for n in names), "names of pictures", names)
    test_s3(redis)
    until("a worker without work marks its folder every minute", lambda: os.stat(f"{spool}/{idle.name}").st_mtime > time.time() - 600)
    check(idle.stop() == 0, "it ends")
    redis.process.terminate()
    redis.process.wait(10)
    log = "".join(open(f"{WORK}/{n}").read() for n in os.listdir(WORK) if n.endswith(".log"))
    check("secret" not in log and "a fox" not in log, "no key and no prompt is in a log")


def main(test):
    def run():
        try:
            test()
        finally:
            for name in sorted(os.listdir(WORK)) if Counts.failed or sys.exc_info()[0] else ():
                if name.endswith(".log"):
                    print(name, open(f"{WORK}/{name}").read()[-1200:])
    server.Place.lazuli, server.Place.work = LAZULI, WORK
    server.main(run)


if __name__ == "__main__":
    main(test_all)
