"""openai_client.py LAZULI: the official `openai` package (pip install openai) against `lazuli serve` with the demo model.

Run by hand: python3 tests/clients/openai_client.py build/lazuli
"""
import asyncio
import base64
import io
import os
import re
import subprocess
import sys
import tempfile
import time

import openai

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
    while process.poll() is None:
        found = re.search(r"listening on (\S+)", open(f"{work}/log").read())
        if found:
            return process, found.group(1)
        time.sleep(0.05)
    raise SystemExit(open(f"{work}/log").read())


def metric(url, name):
    import urllib.request
    text = urllib.request.urlopen(url + "/metrics").read().decode()
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
    import urllib.request
    check(urllib.request.urlopen(url_answer).read() == fox, "an address")

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
    check(client.images.edit(image=fox, mask=fox, **edit).size == "64x64", "a mask")

    for wrong, code, param in [({"size": "1x1"}, "invalid_value", "size"), ({"n": 11}, "invalid_value", "n"), ({"prompt": ""}, "invalid_value", "prompt"),
                               ({"output_format": "gif"}, "unsupported_value", "output_format")]:
        error = raises(openai.BadRequestError, code, client.images.generate, **{**SMALL, **wrong})
        check(error.param == param and error.request_id, "the field", error.param)
    raises(openai.BadRequestError, "invalid_image", client.images.edit, image=b"no image", **edit)
    raises(openai.BadRequestError, "invalid_value", client.images.edit, image=[("a.png", fox)] * 17, **edit)
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


with tempfile.TemporaryDirectory() as folder:
    subprocess.run([LAZULI, "a fox", "-S", "7", "-W", "64", "-H", "64", "-s", "1", "-q", "-o", f"{folder}/fox.png"], check=True)
    picture = open(f"{folder}/fox.png", "rb").read()
    server, address = start(folder, "--queue-per-key", "64", "--queue-timeout", "86400")
    try:
        test(address, picture)
    finally:
        server.terminate()
        server.wait()
    os.makedirs(f"{folder}/two")
    with open(f"{folder}/two/keys", "w") as file:
        file.write("ada secret-one\n")
    server, address = start(f"{folder}/two", "--key-file", f"{folder}/two/keys")
    try:
        raises(openai.AuthenticationError, "invalid_api_key", openai.OpenAI(base_url=address + "/v1", api_key="wrong-key").models.list)
        check([m.id for m in openai.OpenAI(base_url=address + "/v1", api_key="secret-one").models.list()] == ["demo"], "a key")
    finally:
        server.terminate()
        server.wait()
print(f"checks: {checks}, failed: {failed}")
sys.exit(failed > 0)
