"""openai_client.py LAZULI: the official `openai` package against `lazuli serve` with the demo model.

`make test-clients` runs it in a virtual environment with the newest openai and Pillow.
"""
import asyncio
import base64
import io
import json
import os
import re
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import zlib

import openai
from PIL import Image

LAZULI = sys.argv[1]
SMALL = {"prompt": "a fox", "size": "64x64", "extra_body": {"num_inference_steps": 1, "seed": 7}}
LONG = {"prompt": "a fox", "size": "512x512", "extra_body": {"num_inference_steps": 200}}
checks = failed = 0


def check(good, what, *more):
    global checks, failed
    checks += 1
    if not good:
        failed += 1
        print("FAILED:", what, *more)


def raises(kind, code, call, **arguments):
    try:
        call(**arguments)
    except kind as error:
        check(error.code == code, "the code", error.code, code)
        return error
    except Exception as error:
        check(False, kind.__name__, repr(error))
        return error
    check(False, kind.__name__, "nothing was raised")
    return None


def start(work, *options):
    log = open(f"{work}/log", "w")
    process = subprocess.Popen([LAZULI, "serve", "--listen", "127.0.0.1:0", "--state", f"{work}/state", *options], stderr=log)
    until = time.time() + 60
    while process.poll() is None and time.time() < until:
        found = re.search(r"listening on (\S+)", open(f"{work}/log").read())
        if found:
            return process, found.group(1)
        time.sleep(0.05)
    process.kill()
    raise SystemExit(open(f"{work}/log").read() + "\nthe server ended, or did not listen after 60 s")


def stop(process):
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        check(False, "the server ends in 30 s after SIGTERM")
        process.kill()
        process.wait()


def metric(url, name):
    text = urllib.request.urlopen(url + "/metrics", timeout=60).read().decode()
    return float(re.search("^" + re.escape(name) + r" (\S+)", text, re.M).group(1))


def kind_of(data):
    return "png" if data[:4] == b"\x89PNG" else "jpeg" if data[:2] == b"\xff\xd8" else "webp" if data[8:12] == b"WEBP" else "?"


def decoded(image):
    return base64.b64decode(image.b64_json)


async def many(url):
    client = openai.AsyncOpenAI(base_url=url + "/v1", api_key="any")
    answers = await asyncio.gather(*[client.images.generate(**SMALL) for _ in range(20)])
    check(len({a.data[0].b64_json for a in answers}) == 1, "twenty at once are the same picture")
    await client.close()


async def alike(url, fox):
    """The same calls by AsyncOpenAI."""
    client = openai.AsyncOpenAI(base_url=url + "/v1", api_key="any")
    check([m.id async for m in client.models.list()] == ["demo"], "models")
    check((await client.models.retrieve("demo")).id == "demo", "a model")
    try:
        await client.models.retrieve("none")
        check(False, "no model")
    except openai.NotFoundError as error:
        check(error.code == "model_not_found", "no model", error.code)
    check(decoded((await client.images.generate(**SMALL)).data[0]) == fox, "a picture")
    events = [e async for e in await client.images.generate(stream=True, partial_images=2, **{**SMALL, "extra_body": {"steps": 4, "seed": 7}})]
    check(events[-1].type == "image_generation.completed", "a stream", [e.type for e in events])
    edit = await client.images.edit(image=fox, prompt="a fox", size="64x64", extra_body={"steps": 1, "seed": 3})
    check(edit.size == "64x64", "an edit")
    for wrong, kind in (({"size": "1x1"}, openai.BadRequestError), ({"model": "none"}, openai.NotFoundError)):
        try:
            await client.images.generate(**{**SMALL, **wrong})
            check(False, "an error", wrong)
        except kind as error:
            check(error.param in ("size", "model"), "the field", error.param)
    await client.close()


def call(url, method, path, body=None):
    asked = urllib.request.Request(url + path, json.dumps(body).encode() if body is not None else None, {"content-type": "application/json"}, method=method)
    return json.load(urllib.request.urlopen(asked, timeout=60))


def until(what, test, seconds=30):
    end = time.time() + seconds
    while time.time() < end:
        if test():
            return True
        time.sleep(0.02)
    check(False, what, "not after", seconds, "s")
    return False


def running(url):
    return metric(url, 'lazuli_jobs{state="in_progress"}') == 1


def bomb():
    """A PNG of 30,000 x 30,000 pixels in a megabyte; decoded it would have 2.7 GB."""
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    rows = zlib.compressobj()
    data = rows.compress(bytes(90001) * 3000) + rows.flush()
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 30000, 30000, 8, 2, 0, 0, 0)) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def test_formats(client, fox):
    """Pillow decodes every format, and a lower quality has fewer bytes."""
    tall = {**SMALL, "size": "256x256"}
    for kind in ("jpeg", "webp"):
        sizes = []
        for quality in (10, 90, 100):
            data = decoded(client.images.generate(output_format=kind, output_compression=quality, **tall).data[0])
            check(Image.open(io.BytesIO(data)).convert("RGB").size == (256, 256), "Pillow decodes it", kind, quality)
            sizes.append(len(data))
        check(sizes[0] < sizes[1] < sizes[2], "fewer bytes", kind, sizes)
    raises(openai.BadRequestError, "invalid_value", client.images.generate, output_compression=101, **SMALL)
    with open(f"{folder}/made.png", "wb") as file:
        file.write(fox)
    subprocess.run([LAZULI, "--from", f"{folder}/made.png", "-q", "-o", f"{folder}/again.png"], check=True)
    again = open(f"{folder}/again.png", "rb").read()
    check(Image.open(io.BytesIO(again)).tobytes() == Image.open(io.BytesIO(fox)).tobytes(), "lazuli --from makes it again")
    made = Image.open(io.BytesIO(fox))
    check(made.text["prompt"] == "a fox" and made.text["seed"] == "7", "Pillow reads its texts")


def test_mask(client, fox):
    """Where the mask is transparent, and only there, the picture changes."""
    mask = Image.new("RGBA", (64, 64), (0, 0, 0, 255))
    mask.paste((0, 0, 0, 0), (0, 0, 32, 64))
    data = io.BytesIO()
    mask.save(data, "png")
    edit = {"prompt": "a bird", "size": "64x64", "extra_body": {"steps": 2, "seed": 3, "strength": 1}}
    new = Image.open(io.BytesIO(decoded(client.images.edit(image=fox, mask=("mask.png", data.getvalue()), **edit).data[0])))
    old = Image.open(io.BytesIO(fox))
    check(new.crop((32, 0, 64, 64)).tobytes() == old.crop((32, 0, 64, 64)).tobytes(), "outside of the hole nothing changes")
    check(new.crop((0, 0, 28, 64)).tobytes() != old.crop((0, 0, 28, 64)).tobytes(), "inside it does")


def test_stream_error(url, client):
    """A job that somebody cancels in the middle of its stream."""
    def cancel():
        until("it runs", lambda: running(url))
        job = call(url, "GET", "/api/v1/jobs?state=in_progress")["jobs"][0]
        call(url, "POST", f"/api/v1/jobs/{job['id']}/cancel")
    thread = threading.Thread(target=cancel)
    thread.start()
    try:
        list(client.with_options(timeout=86400).images.generate(stream=True, **LONG))
        check(False, "an error in the middle of a stream")
    except openai.APIError as error:
        check(error.code == "cancelled", "its code", error.code)
    thread.join()


def test_full(url, client):
    """A full queue: at once without retries, and with them a picture when there is room again."""
    blocker = call(url, "POST", "/api/v1/jobs", {"prompt": "a fox", "width": 512, "height": 512, "steps": 200})["id"]
    until("it runs", lambda: running(url))
    waiting = [call(url, "POST", "/api/v1/jobs", {"prompt": "a fox", "width": 64, "height": 64, "steps": 1})["id"] for _ in range(2)]
    error = raises(openai.RateLimitError, "queue_full", client.with_options(max_retries=0).images.generate, **SMALL)
    check(1 <= int(error.response.headers["retry-after"]) <= 120 and error.request_id, "when to come again")
    threading.Timer(0.3, lambda: call(url, "POST", f"/api/v1/jobs/{blocker}/cancel")).start()
    check(client.with_options(max_retries=5).images.generate(**SMALL).size == "64x64", "retries succeed")
    until("those that waited", lambda: all(call(url, "GET", f"/api/v1/jobs/{j}")["status"] == "completed" for j in waiting))


def test_deaths(url, client, server):
    """kill -9 of the worker in the middle of a picture, and SIGTERM under load."""
    def kill():
        until("it runs", lambda: running(url))
        os.kill(int(open(f"/proc/{server.pid}/task/{server.pid}/children").read().split()[0]), signal.SIGKILL)
    thread = threading.Thread(target=kill)
    thread.start()
    answer = client.with_options(max_retries=0).images.generate(prompt="a fox", size="128x128", extra_body={"steps": 30, "seed": 1})
    check(answer.size == "128x128", "a picture in spite of it")
    thread.join()
    codes = []

    def ask():
        try:
            client.with_options(max_retries=0).images.generate(prompt="a fox", size="128x128", extra_body={"steps": 30})
            codes.append("made")
        except openai.APIStatusError as error:
            codes.append(error.code)
        except openai.APIConnectionError:
            codes.append("refused")
    threads = [threading.Thread(target=ask) for _ in range(3)]
    threads[0].start()
    until("it runs", lambda: running(url))
    for t in threads[1:]:  # the queue takes two
        t.start()
    server.terminate()
    for t in threads:
        t.join()
    check(server.wait(60) == 0, "it ends with 0", server.returncode)
    check("made" in codes and set(codes) <= {"made", "draining", "refused"}, "the running one is finished", codes)
    check(not os.listdir(f"{folder}/three/state/spool"), "no half file is left")


def test(url, fox):
    client = openai.OpenAI(base_url=url + "/v1", api_key="any")
    names = [m.id for m in client.models.list()]
    check(names == ["demo"] and client.models.retrieve("demo").owned_by == "lazuli", "models", names)
    raises(openai.NotFoundError, "model_not_found", client.models.retrieve, model="none")
    for name in ("gpt-image-1", "dall-e-3", "demo", ""):
        check(decoded(client.images.generate(model=name, **SMALL).data[0]) == fox, "the picture of the command line", name)
    three = client.images.generate(n=3, **SMALL)
    check(len({d.b64_json for d in three.data}) == 3 and three.usage.output_tokens == 48, "three")
    check(client.images.generate(**{**SMALL, "size": "90x70"}).size == "80x64", "the true size")
    check(client.images.generate(prompt="a fox", size="auto", extra_body={"steps": 1}).size == "256x256", "auto")
    for kind in ("png", "jpeg", "webp"):
        check(kind_of(decoded(client.images.generate(output_format=kind, **SMALL).data[0])) == kind, kind)
    url_answer = client.images.generate(response_format="url", **SMALL).data[0].url
    check(urllib.request.urlopen(url_answer, timeout=60).read() == fox, "an address")

    for n in range(4):
        events = list(client.images.generate(stream=True, partial_images=n, **{**SMALL, "extra_body": {"steps": 4, "seed": 7}}))
        kinds = [e.type for e in events]
        check(kinds[-1] == "image_generation.completed" and len(kinds) <= n + 1, "a stream", kinds)
        check([e.partial_image_index for e in events[:-1]] == sorted({e.partial_image_index for e in events[:-1]}), "indices")
        check(all(kind_of(base64.b64decode(e.b64_json)) == e.output_format for e in events), "each can be decoded")
        check(events[-1].usage.total_tokens > 0, "usage")

    edit = {"prompt": "a fox", "extra_body": {"steps": 1, "seed": 3}, "size": "64x64"}
    one = client.images.edit(image=io.BytesIO(fox), **edit)
    check(one.size == "64x64" and one.usage.input_tokens_details.image_tokens == 16, "an edit", one.size)
    check(client.images.edit(image=("a.png", fox), **edit).data[0].b64_json == one.data[0].b64_json, "a tuple")
    check(client.images.edit(image=[("a.png", fox), ("b.png", fox), ("c.png", fox)], **edit).usage.input_tokens_details.image_tokens == 48, "three images")
    kinds = [e.type for e in client.images.edit(image=fox, stream=True, **edit)]
    check(kinds == ["image_edit.completed"], "a streamed edit", kinds)
    test_formats(client, fox)
    test_mask(client, fox)
    test_stream_error(url, client)

    for wrong, code, param in [({"size": "1x1"}, "invalid_value", "size"), ({"n": 11}, "invalid_value", "n"), ({"prompt": ""}, "invalid_value", "prompt"),
                               ({"output_format": "gif"}, "unsupported_value", "output_format")]:
        error = raises(openai.BadRequestError, code, client.images.generate, **{**SMALL, **wrong})
        check(error.param == param and error.request_id, "the field", error.param)
    raises(openai.BadRequestError, "invalid_image", client.images.edit, image=b"no image", **edit)
    raises(openai.BadRequestError, "invalid_value", client.images.edit, image=[("a.png", fox)] * 17, **edit)
    raises(openai.BadRequestError, "invalid_image", client.images.edit, image=bomb(), **edit)
    check(client.images.with_raw_response.generate(**SMALL).headers["x-request-id"].startswith("req_"), "an id")

    name = 'lazuli_cancelled_total{why="client"}'
    before = metric(url, name)
    try:
        client.with_options(timeout=1, max_retries=0).images.generate(**LONG)
        check(False, "a time-out")
    except openai.APITimeoutError:
        pass
    except openai.RateLimitError as error:  # it would take longer than the time-out, and the server knows
        check(error.code == "would_wait_too_long", "it says so at once", error.code)
        before -= 1
    time.sleep(1)
    check(metric(url, name) == before + 1, "the picture is cancelled", metric(url, name), before)
    with client.images.generate(stream=True, partial_images=3, prompt="a fox", size="256x256", extra_body={"steps": 20}) as events:
        next(iter(events))
    time.sleep(1)
    check(metric(url, name) == before + 2, "a stream that is closed is cancelled")
    asyncio.run(many(url))
    asyncio.run(alike(url, fox))


with tempfile.TemporaryDirectory() as folder:
    subprocess.run([LAZULI, "a fox", "-S", "7", "-W", "64", "-H", "64", "-s", "1", "-q", "-o", f"{folder}/fox.png"], check=True)
    picture = open(f"{folder}/fox.png", "rb").read()
    server, address = start(folder, "--queue-per-key", "64", "--queue-timeout", "86400")
    try:
        test(address, picture)
    finally:
        stop(server)
    store = sqlite3.connect(f"{folder}/state/jobs.sqlite")
    names = [row[0] for row in store.execute("SELECT name FROM addresses")]
    store.execute("UPDATE addresses SET until = until - 7200")  # an hour later
    store.commit()
    store.close()
    server, address = start(folder)
    try:
        urllib.request.urlopen(f"{address}/files/{names[0]}.png", timeout=60)
        check(False, "an address ends")
    except urllib.error.HTTPError as error:
        check(error.code == 410, "an address ends with 410", error.code)
    finally:
        stop(server)
    os.makedirs(f"{folder}/two")
    with open(f"{folder}/two/keys", "w") as file:
        file.write("ada secret-one\n")
    server, address = start(f"{folder}/two", "--key-file", f"{folder}/two/keys")
    try:
        raises(openai.AuthenticationError, "invalid_api_key", openai.OpenAI(base_url=address + "/v1", api_key="wrong-key").models.list)
        check([m.id for m in openai.OpenAI(base_url=address + "/v1", api_key="secret-one").models.list()] == ["demo"], "a key")
    finally:
        stop(server)
    os.makedirs(f"{folder}/three")
    server, address = start(f"{folder}/three", "--queue", "2", "--queue-timeout", "86400")
    try:
        official = openai.OpenAI(base_url=address + "/v1", api_key="any")
        until("it is ready", lambda: metric(address, "lazuli_model_loads_total") > 0)
        test_full(address, official)
        test_deaths(address, official, server)
    finally:
        server.kill()
        server.wait()
print(f"{checks - failed} passed, {failed} failed")
sys.exit(failed > 0)
