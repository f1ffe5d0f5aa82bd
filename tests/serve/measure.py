"""measure.py LAZULI [--pictures N] [--overhead N]: memory and time of `lazuli serve` with the demo model, on a quiet machine.

Memory: N pictures of mixed sizes; the worker and the front after the 20th and after the last. Overhead: the time of a
picture by a request, one after the other on one connection, less the time that `lazuli batch` takes for the same picture.
"""
import argparse
import base64
import http.client
import json
import os
import statistics
import subprocess
import tempfile
import time

from server import Server, resident

SIZES = [(64, 64), (128, 64), (96, 160), (256, 256), (80, 80), (192, 128), (64, 256), (320, 64)]


def ask(connection, body):
    connection.request("POST", "/v1/images/generations", json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    data = answer.read()
    if answer.status != 200:
        raise SystemExit(data)
    return data


def memory(server, pictures):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    after = {}
    for n in range(1, pictures + 1):
        width, height = SIZES[n % len(SIZES)]
        ask(connection, {"prompt": f"a fox number {n}", "size": f"{width}x{height}", "steps": 1 + n % 3, "output_format": ("png", "jpeg", "webp")[n % 3]})
        if n in (20, pictures):
            after[n] = resident(server.worker()), resident(server.process.pid)
    for name, i in (("worker", 0), ("front", 1)):
        print(f"{name}: {after[20][i]:.1f} MiB after 20 pictures, {after[pictures][i]:.1f} MiB after {pictures} ({100 * (after[pictures][i] / after[20][i] - 1):+.1f} %)")


def batch_seconds(lazuli, work, n, body):
    with open(f"{work}/lines", "w") as file:
        for i in range(n):
            file.write(json.dumps({"prompt": body["prompt"], "seed": body["seed"], "width": 64, "height": 64, "steps": 1, "output": f"{work}/out-{i}.png"}) + "\n")
    begun = time.perf_counter()
    subprocess.run([lazuli, "batch", f"{work}/lines", "-q"], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def overhead(lazuli, server, work, n):
    body = {"prompt": "a fox", "seed": 7, "size": "64x64", "steps": 1}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    times = []
    for _ in range(n):
        begun = time.perf_counter()
        data = ask(connection, body)
        times.append(time.perf_counter() - begun)
    one = batch_seconds(lazuli, work, 1, body)
    alone = (batch_seconds(lazuli, work, n + 1, body) - one) / n
    with open(f"{work}/out-0.png", "rb") as file:
        same = base64.b64decode(json.loads(data)["data"][0]["b64_json"]) == file.read()
    print(f"a picture of 64 x 64 and 1 step: {1e3 * statistics.median(times):.2f} ms by a request (mean {1e3 * statistics.mean(times):.2f}), "
          f"{1e3 * alone:.2f} ms by lazuli batch, same bytes: {same}; overhead {1e3 * (statistics.median(times) - alone):.2f} ms")


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
                overhead(asked.lazuli, server, work, asked.overhead)
            if asked.pictures:
                memory(server, asked.pictures)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
