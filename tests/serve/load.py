"""load.py LAZULI [--idle N] [--active N] [--seconds S]: many clients that only listen beside a few that make pictures.

Starts `lazuli serve` with the demo model. N idle clients follow GET /api/v1/events; the active ones make pictures one
after the other; a process of its own asks GET /healthz on new connections. Prints the counts. Every idle client must
stay connected and get the event of every picture. Run by hand; tests/cli/serve.py runs it with 100 clients.
"""
import argparse
import asyncio
import http.client
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import threading
import time

from server import Server, resident

BODY = json.dumps({"prompt": "a fox", "size": "64x64", "num_inference_steps": 1, "seed": 7})
JSON = {"content-type": "application/json"}


class Listener(asyncio.Protocol):
    """A client that follows the events."""
    def __init__(self, port):
        self.port, self.tail, self.head, self.lost, self.pictures, self.comments, self.open = port, b"", b"", False, 0, 0, False

    def connection_made(self, transport):
        transport.write(f"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n\r\n".encode())

    def data_received(self, data):
        if not self.open:
            self.head += data
            self.open = self.head.startswith(b"HTTP/1.1 200") and b"event: hello" in self.head
            return
        data = self.tail + data
        self.pictures += data.count(b"event: picture\n")
        self.comments += data.count(b": waiting\n")
        self.tail = data[max(data.rfind(b"\n") + 1, len(data) - 40):]  # an event's name may come in two pieces

    def connection_lost(self, error):
        self.lost = True


def probe(port, queue, stop):
    """GET /healthz on a new connection, twenty times a second."""
    times = []
    while not stop.is_set():
        begun = time.perf_counter()
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", "/healthz")
            good = connection.getresponse().status == 200
            connection.close()
        except OSError:
            good = False
        times.append(time.perf_counter() - begun if good else float("inf"))
        time.sleep(0.05)
    queue.put(times)


def make(port, counts, stop):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    while not stop.is_set():
        connection.request("POST", "/v1/images/generations", BODY, JSON)
        answer = connection.getresponse()
        data = answer.read()
        counts["made" if answer.status == 200 else "refused"] += 1
        if answer.status != 200:
            counts["why"] = data[:200]
            time.sleep(0.1)


async def listen(port, idle, active, seconds):
    loop = asyncio.get_running_loop()
    clients, transports, counts, stop = [], [], {"made": 0, "refused": 0}, threading.Event()
    begun = time.perf_counter()
    for first in range(0, idle, 100):
        pairs = await asyncio.gather(*[loop.create_connection(lambda: Listener(port), "127.0.0.1", port) for _ in range(min(100, idle - first))])
        clients += [p[1] for p in pairs]
        transports += [p[0] for p in pairs]
    while not all(c.open or c.lost for c in clients) and time.perf_counter() - begun < 60:
        await asyncio.sleep(0.02)
    opened = time.perf_counter() - begun

    queue, done = multiprocessing.Queue(), multiprocessing.Event()
    prober = multiprocessing.Process(target=probe, args=(port, queue, done))
    prober.start()
    makers = [threading.Thread(target=make, args=(port, counts, stop)) for _ in range(active)]
    for m in makers:
        m.start()
    await asyncio.sleep(seconds)
    stop.set()
    while any(m.is_alive() for m in makers):
        await asyncio.sleep(0.02)
    done.set()
    times = sorted(await loop.run_in_executor(None, queue.get))
    prober.join()
    until = time.perf_counter() + 20
    while any(c.pictures < counts["made"] and not c.lost for c in clients) and time.perf_counter() < until:
        await asyncio.sleep(0.02)
    lost = sum(c.lost for c in clients)
    for transport in transports:
        transport.close()
    return {"idle": idle, "active": active, "seconds": seconds, "opened_in": round(opened, 2), "answered": sum(c.open for c in clients),
            "lost": lost, "pictures": counts["made"], "refused": counts["refused"], "why": str(counts.get("why", "")),
            "missed": sum(c.pictures != counts["made"] for c in clients), "comments": min((c.comments for c in clients), default=0),
            "healthz": len(times), "median_ms": round(1e3 * times[len(times) // 2], 1), "p99_ms": round(1e3 * times[int(0.99 * (len(times) - 1))], 1),
            "max_ms": round(1e3 * times[-1], 1)}


def run(port, idle, active, seconds):
    """The counts of one run against the server on this port."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < idle + 100:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, idle + 100), hard))
    return asyncio.run(listen(port, idle, active, seconds))


def main():
    options = argparse.ArgumentParser()
    options.add_argument("lazuli")
    options.add_argument("--idle", type=int, default=1000)
    options.add_argument("--active", type=int, default=10)
    options.add_argument("--seconds", type=float, default=30)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as work:
        server = Server(asked.lazuli, work, "--state", f"{work}/state", "-q")
        try:
            server.wait()
            counts = run(server.port, asked.idle, asked.active, asked.seconds)
            counts["front_MiB"] = round(resident(server.process.pid), 1)
        finally:
            server.stop()
    counts["load"] = round(os.getloadavg()[0], 1)
    print(json.dumps(counts, indent=1))
    good = counts["answered"] == asked.idle and not counts["lost"] and not counts["missed"] and not counts["refused"] and counts["max_ms"] < 50
    print("passed" if good else "FAILED")
    sys.exit(not good)


if __name__ == "__main__":
    main()
