"""measure.py LAZULI [--pictures N] [--overhead N]: memory and time of `lazuli serve` with the demo model, on a quiet machine.

Memory: N pictures of mixed sizes; the worker and the front after each of the 48 pictures that follow the 20th, and of the
last 48. Memory differs from size to size, and 48 pictures have each size with each number of steps and each format twice. Overhead: the time of a
picture by a request, one after the other on one connection, less the time that the library took for the text, the steps,
the decoder and the bytes of the PNG of the same picture. It includes flushing the PNG to the disk.
"""
import argparse
import http.client
import json
import os
import statistics
import tempfile
import time

from server import Server, resident

SIZES = [(64, 64), (128, 64), (96, 160), (256, 256), (80, 80), (192, 128), (64, 256), (320, 64)]
ROUND = 48


def ask(connection, body):
    connection.request("POST", "/v1/images/generations", json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    data = answer.read()
    if answer.status != 200:
        raise SystemExit(data)
    return data


def memory(server, pictures):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    worker, front = [], []
    for n in range(1, pictures + 1):
        width, height = SIZES[n % len(SIZES)]
        ask(connection, {"prompt": f"a fox number {n}", "size": f"{width}x{height}", "steps": 1 + n % 3, "output_format": ("png", "jpeg", "webp")[n % 3]})
        if n > pictures - ROUND or 20 < n <= 20 + ROUND:
            worker.append(resident(server.worker()))
            front.append(resident(server.process.pid))
    for name, values in (("worker", worker), ("front", front)):
        for what, of in (("median", statistics.median), ("largest", max)):
            first, last = of(values[:ROUND]), of(values[-ROUND:])
            print(f"{name}, {what}: {first:.1f} MiB in pictures 21 to {20 + ROUND}, {last:.1f} MiB in the last {ROUND} of {pictures} ({100 * (last / first - 1):+.1f} %)")


def overhead(server, n, size):
    body = {"prompt": "a fox", "seed": 7, "size": size, "steps": 1}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    for _ in range(5):
        ask(connection, body)
    times = []
    for _ in range(n):
        begun = time.perf_counter()
        ask(connection, body)
        times.append(1e3 * (time.perf_counter() - begun))
    connection.request("GET", f"/api/v1/pictures?limit={n}")
    made = [sum(p["milliseconds"].values()) for p in json.loads(connection.getresponse().read())["pictures"]][::-1]
    more = sorted(a - b for a, b in zip(times, made))
    print(f"a picture of {size} and 1 step: {statistics.median(times):.2f} ms by a request, of which the library took {statistics.median(made):.2f}; "
          f"overhead {statistics.median(more):.2f} ms (10 %: {more[n // 10]:.2f}, 90 %: {more[9 * n // 10]:.2f})")


def main():
    options = argparse.ArgumentParser()
    options.add_argument("lazuli")
    options.add_argument("--pictures", type=int, default=1000)
    options.add_argument("--overhead", type=int, default=200)
    asked = options.parse_args()
    print(f"load before: {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as work:
        server = Server(asked.lazuli, work, "--state", f"{work}/state", "-q")
        try:
            server.wait()
            if asked.overhead:
                overhead(server, asked.overhead, "64x64")
                overhead(server, asked.overhead // 8, "256x256")
            if asked.pictures:
                memory(server, asked.pictures)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
