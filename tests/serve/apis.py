"""apis.py: what the three families of paths answer."""
import base64
import http.client
import json
import os
import re
import sqlite3
import struct
import threading
import time

import pictures
from pictures import SMALL, chunk, form, png, png_pixels, rgb
from server import check, until


def test_damaged(s, fox):
    """A picture that was cut is refused at once, and one with wrong bits by the worker; both are named."""
    middle = len(fox) // 2
    wrong = fox[:middle] + bytes([fox[middle] ^ 1]) + fox[middle + 1:]
    text, bad = ("data:image/png;base64," + base64.b64encode(data).decode() for data in (fox, wrong))
    answer = s.call("POST", "/api/v1/uploads", fox[:middle], content_type="image/png")
    check(answer[0] == 400 and answer[2]["error"]["message"] == "image: the picture is damaged: it ends too early", "an upload that was cut", answer[2])
    edit = {"prompt": "a fox", "num_inference_steps": 1, "strength": 0.9}
    for data, mask, wanted in ((fox[:middle], None, ("image", "image 2: the picture is damaged: it ends too early")), (wrong, None, ("image", "image 2: the picture is damaged: ")),
                               (fox, wrong, ("mask", "mask: the picture is damaged: "))):
        body, kind = form(edit, [("image[]", fox), ("image[]", data)] + ([("mask", mask)] if mask else []))
        status, _, error = s.call("POST", "/v1/images/edits", body, content_type=kind)
        error = error.get("error", {})
        check((status, error.get("code"), error.get("param")) == (400, "invalid_image", wanted[0]) and error["message"].startswith(wanted[1]), "a damaged image", wanted, error)
        check(s.state not in error.get("message", s.state), "without the server's path", error)
    job = s.call("POST", "/api/v1/jobs", {"prompt": "a fox", "steps": 1, "strength": 0.9, "images": [text, bad]})[2]
    until("it fails", lambda: s.job(job["id"])["status"] == "failed")
    error = s.job(job["id"])["error"]
    check(error["code"] == "invalid_image" and error["message"].startswith("image 2: the picture is damaged: "), "the job says which", error)
    status, _, data = s.call("POST", "/sdapi/v1/img2img", {"prompt": "a fox", "steps": 1, "init_images": [bad]})
    check(status == 422 and data["detail"][0]["loc"] == ["body", "init_images"], "and so does the other API", status, data)


def test_openai(s):
    path = "/v1/images/generations"
    status, answer, data = s.call("GET", "/v1/models")
    check(status == 200 and data["data"][0]["id"] == "demo" and isinstance(data["data"][0]["created"], int), "models", data)
    check(s.code("GET", "/v1/models/demo") == (200, None), "a model")
    check(data["data"][0]["capabilities"] == ["generate", "edit", "mask"], "what it can do", data)
    status, _, data = s.call("GET", "/v1/models/none")
    check((status, data["error"]["code"]) == (404, "model_not_found") and data["error"]["message"].endswith("there are demo"), "no model", data)

    # The bytes of the command line
    fox = pictures.fox()
    status, answer, data = s.call("POST", path, {**SMALL, "user": "me", "style": "vivid"})
    check(status == 200, "a picture", data)
    made = base64.b64decode(data["data"][0]["b64_json"])
    check(made == fox, "the same bytes as the command line", len(made), len(fox))
    check(data["size"] == "64x64" and data["data"][0]["seed"] == 7 and data["output_format"] == "png", "facts", data["size"])
    check(data["usage"]["output_tokens"] == 16 and data["usage"]["input_tokens"] > 0, "usage", data["usage"])
    check(data["safety_identifier"] == "me", "the user is told", data.get("safety_identifier"))
    check(answer.getheader("x-lazuli-ignored") == "style", "ignored", answer.getheader("x-lazuli-ignored"))
    check(re.fullmatch("req_[a-z2-7]{26}", answer.getheader("x-request-id")), "an id")
    check(s.call("GET", "/v1/models", x_request_id="mine-1")[1].getheader("x-request-id") == "mine-1", "its own id")

    # Sizes, counts, formats, names of models, the path without /v1
    status, _, data = s.call("POST", "/images/generations/", {**SMALL, "size": "70x90", "n": 2, "model": "gpt-image-1", "output_format": "webp"})
    check(status == 200 and data["size"] == "64x80" and [d["seed"] for d in data["data"]] == [7, 8], "two", data.get("size"))
    check(base64.b64decode(data["data"][1]["b64_json"])[8:12] == b"WEBP", "webp")
    status, answer, data = s.call("POST", path, {**SMALL, "response_format": "file", "output_format": "jpeg"})
    check(status == 200 and data[:2] == b"\xff\xd8" and answer.getheader("content-type") == "image/jpeg", "a file")
    url = s.call("POST", path, {**SMALL, "response_format": "url"})[2]["data"][0]["url"]
    check(url.startswith(f"http://{s.host}/files/") and s.call("GET", url.split(s.host)[1])[2] == fox, "an address", url)
    check(s.code("GET", "/files/abc.png") == (404, "not_found"), "no address")
    with sqlite3.connect(f"{s.state}/jobs.sqlite") as store:
        store.execute("UPDATE addresses SET until = until - 3500")
    check(s.call("GET", url.split(s.host)[1])[0] == 200, "an address is valid for an hour")
    with sqlite3.connect(f"{s.state}/jobs.sqlite") as store:
        store.execute("UPDATE addresses SET until = until - 200")
    store.close()
    check(s.code("GET", url.split(s.host)[1]) == (410, "gone"), "and then gone")

    status, _, data = s.call("POST", path, {**SMALL, "image": None, "images": None, "mask": None, "n": None, "svg": None, "colour": None})
    check(status == 200 and "safety_identifier" not in data, "null is the same as nothing", data)

    # Errors
    for body, wanted in [({}, (400, "missing_required_parameter")), ({"prompt": ""}, (400, "invalid_value")),
                         ({"prompt": 5}, (400, "invalid_type")), ({**SMALL, "n": 11}, (400, "invalid_value")),
                         ({**SMALL, "n": "2"}, (400, "invalid_type")), ({**SMALL, "size": "1000x1"}, (400, "invalid_value")),
                         ({**SMALL, "size": "4096x4096"}, (400, "invalid_value")), ({**SMALL, "size": "99999x64"}, (400, "invalid_value")), ({**SMALL, "size": "big"}, (400, "invalid_value")),
                         ({**SMALL, "output_format": "gif"}, (400, "unsupported_value")),
                         ({**SMALL, "background": "transparent"}, (400, "unsupported_value")),
                         ({**SMALL, "mask": "x"}, (400, "unsupported_parameter")), ({**SMALL, "svg": {}}, (400, "unsupported_parameter")),
                         ({**SMALL, "model": "other"}, (404, "model_not_found")), ({**SMALL, "strength": 0.5}, (400, "invalid_value")),
                         ({**SMALL, "image": "https://example.org/x.png"}, (400, "unsupported_parameter")),
                         ({"prompt": "x" * 32001}, (400, "prompt_too_long"))]:
        check(s.code("POST", path, body) == wanted, "an error", list(body.items())[-1:], wanted)
    for text in ["", "[]", "{", '{"prompt": "a", "prompt": "b"}', "[" * 70 + "]" * 70, '{"seed": 99999999999999999999}']:
        check(s.code("POST", path, text, content_type="application/json") == (400, "invalid_json"), "not JSON", text[:20])
    for text, words in [("", "line 1, column 0: it ends too early"), ('{"prompt": "a\\u0000"}', "a text must not have \\u0000"),
                        ('{"a\\u0000": 1}', "a name must not have \\u0000"), ('{"a": 1, "a": 2}', "a name is there twice"), (b'{"a": "\xff"}', "it is not UTF-8"),
                        ("{} {}", "there is something after its end"), ('{"a": 99999999999999999999}', "a number is too large"), ("{1}", "this is not JSON")]:
        message = s.call("POST", path, text, content_type="application/json")[2]["error"]["message"]
        check(message.startswith("the body cannot be read: line 1") and message.endswith(words), "in words of the server", text, message)
    check(s.code("POST", path, "a=b", content_type="application/x-www-form-urlencoded") == (415, "unsupported_media_type"), "a form")
    check(s.code("POST", path, "{}", content_type="text/plain") == (415, "unsupported_media_type"), "text")
    check(s.code("POST", "/v1/images/variations", {}) == (404, "not_found"), "variations")
    check(s.code("GET", path) == (405, "method_not_allowed") and s.code("GET", "/none") == (404, "not_found"), "paths")

    # Edits
    body, kind = form({"prompt": "a fox", "num_inference_steps": 1, "seed": 3, "strength": 0.9, "n": 1}, [("image", fox)])
    status, _, data = s.call("POST", "/v1/images/edits", body, content_type=kind)
    # 128x128 is the size of the model's training that is nearest to 64x64
    check(status == 200 and data["size"] == "128x128" and data["usage"]["input_tokens_details"]["image_tokens"] == 16, "an edit", data.get("error"), data.get("size"))
    text = "data:image/png;base64," + base64.b64encode(fox).decode()
    same = s.call("POST", "/v1/images/edits", {"prompt": "a fox", "steps": 1, "seed": 3, "strength": 0.9, "images": [{"image_url": text}]})[2]
    check(same["data"] == data["data"], "the same edit as JSON")
    mask = png(64, 64, lambda x, y: (255, 255, 255) if x < 32 else (0, 0, 0))
    body, kind = form({"prompt": "a bird", "steps": 2, "seed": 3, "strength": 1}, [("image", fox), ("mask", mask)])
    status, _, data = s.call("POST", "/v1/images/edits", body, content_type=kind)
    if check(status == 200, "a mask", data.get("error")):
        old, new = rgb(fox), rgb(base64.b64decode(data["data"][0]["b64_json"]))
        same = [sum(a[3 * x:3 * x + 3] == b[3 * x:3 * x + 3] for a, b in zip(old, new)) for x in range(64)]
        check(all(n == 64 for n in same[32:]), "outside of the mask nothing changes", same)
        check(sum(same[:28]) < 28 * 32, "inside it does", same)
    body, kind = form({"prompt": "a"}, [("image", fox), ("mask", b"GIF89a")])
    error = s.call("POST", "/v1/images/edits", body, content_type=kind)[2]["error"]
    check((error["code"], error["param"], error["message"][:5]) == ("invalid_image", "mask", "mask:"), "no mask", error)
    for mask in ("data:image/png;base64,!!!!", "https://example.org/m.png", "upload:none", 5, {"file_id": "x"}):
        error = s.call("POST", "/v1/images/edits", {"prompt": "a", "image": text, "mask": mask})[2]["error"]
        check(error["param"] == "mask" and error["message"][:5] == "mask:", "an error about the mask", error)
    body, kind = form({"prompt": "a", "n": "x"}, [("image", fox)])
    check(s.code("POST", "/v1/images/edits", body, content_type=kind) == (400, "invalid_type"), "a number")
    body, kind = form({"prompt": "a", "user": "x" * (128 << 10) + "x"}, [("image", fox)])
    check("128 KiB" in s.call("POST", "/v1/images/edits", body, content_type=kind)[2]["error"]["message"], "a long field")
    body, kind = form({f"field{n}": "x" for n in range(41)}, [])
    check("40 parts" in s.call("POST", "/v1/images/edits", body, content_type=kind)[2]["error"]["message"], "many parts")
    check(s.code("POST", "/v1/images/edits", body, content_type="multipart/form-data; boundary=" + "x" * 71) == (400, "invalid_value"), "a long boundary")
    body, kind = form({"prompt": "a"}, [("image[]", fox)] * 17)
    check(s.code("POST", "/v1/images/edits", body, content_type=kind) == (400, "invalid_value"), "17 images")
    body, kind = form({"prompt": "a"}, [("image", b"GIF89a")])
    check(s.code("POST", "/v1/images/edits", body, content_type=kind) == (400, "invalid_image"), "a GIF")
    bomb = fox[:16] + struct.pack(">II", 60000, 60000) + fox[24:]
    body, kind = form({"prompt": "a"}, [("image", bomb)])
    check(s.code("POST", "/v1/images/edits", body, content_type=kind) == (400, "invalid_image"), "a pixel bomb")
    test_damaged(s, fox)
    for url in ["http://127.0.0.1/x.png", "file:///etc/passwd", "data:image/png;base64,!!!!"]:
        status, code = s.code("POST", "/v1/images/edits", {"prompt": "a", "images": [{"image_url": url}]})
        check(status == 400 and code in ("unsupported_value", "invalid_image"), "nothing is fetched", url)

    # Streams
    status, answer, data = s.call("POST", path, {**SMALL, "num_inference_steps": 4, "stream": True, "partial_images": 3})
    events = [e.split("\n") for e in data.decode().split("\n\n") if e.startswith("event:")]
    check(answer.getheader("content-type") == "text/event-stream", "a stream")
    check(events[-1][0] == "event: image_generation.completed", "completed", [e[0] for e in events])
    last = json.loads(events[-1][1][6:])
    check({"type", "b64_json", "created_at", "size", "quality", "background", "output_format", "usage"} <= set(last), "fields", set(last))
    partial = [json.loads(e[1][6:])["partial_image_index"] for e in events[:-1]]
    check(partial == sorted(set(partial)) and all(p < 3 for p in partial), "partial images", partial)
    check("id:" not in data.decode().split("data:")[0], "no ids")
    check(data.startswith(b": 0 before you"), "the place in the queue comes first", data[:60])
    body = {**SMALL, "n": 2, "stream": True}
    both = [s.call("POST", path, body, idempotency_key="streamed") for _ in range(2)]
    check([a.getheader("content-type") for _, a, _ in both] == ["text/event-stream"] * 2, "a stream that is asked for again is a stream")
    pictures_of = [[json.loads(line[6:])["b64_json"] for line in d.decode().splitlines() if line.startswith("data:")] for _, _, d in both]
    check(len(pictures_of[0]) == 2 and pictures_of[0] == pictures_of[1], "with the same pictures", [len(p) for p in pictures_of])
    check([s.code("POST", path, {**SMALL, "n": 2}, idempotency_key="streamed")] == [(422, "idempotency_mismatch")], "another body")


def test_native(s):
    api = "/api/v1"
    check(s.call("GET", api + "/about")[2]["models"][0]["steps"] == 4, "about")
    status, answer, job = s.call("POST", api + "/jobs", {"prompt": "a cat", "seed": [1, 2], "width": 64, "height": 64, "steps": 1}, idempotency_key="k")
    check(status == 202 and answer.getheader("location") == f"{api}/jobs/{job['id']}", "a job", job)
    again = s.call("POST", api + "/jobs", {"prompt": "a cat", "seed": [1, 2], "width": 64, "height": 64, "steps": 1}, idempotency_key="k")[2]
    check(again["id"] == job["id"], "the same key, the same job")
    check(job["source"] == "api", "who asked", job)
    check(s.call("POST", api + "/jobs", {"prompt": "a dog", "width": 64, "height": 64, "steps": 1}, sec_fetch_site="same-origin")[2]["source"] == "page", "the page asks")
    check(s.code("POST", api + "/jobs", {"prompt": "a dog"}, idempotency_key="k") == (422, "idempotency_mismatch"), "another body")
    events = s.call("GET", f"{api}/jobs/{job['id']}/events")[2].decode()
    check('"status":"completed"' in events, "events end with the job", events[-200:])
    order = [j["id"] for j in s.call("GET", f"{api}/jobs?limit=3")[2]["jobs"]]
    check([j["id"] for j in s.call("GET", f"{api}/jobs?limit=2&after={order[0]}")[2]["jobs"]] == order[1:], "the jobs after one")
    ids = re.findall(r"^id: (\d+)$", events, re.M)
    check(ids == sorted(ids, key=int) and len(ids) >= 2, "events have numbers", ids)
    for last, wanted in ((int(ids[-1]) - 1, 1), (int(ids[0]) - 1, len(ids))):
        c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
        c.request("GET", f"{api}/events", headers={"last-event-id": str(last)})
        answer, seen = c.getresponse(), []
        while len(seen) < wanted:
            line = answer.fp.readline().decode()
            seen += re.findall(r"^id: (\d+)$", line)
        c.close()
        check(seen == [str(last + 1 + i) for i in range(wanted)], "events since the last one", last, seen)
    job = s.call("GET", f"{api}/jobs/{job['id']}")[2]
    check(job["status"] == "completed" and [p["seed"] for p in job["pictures"]] == [1, 2] and job["error"] is None, "the job", job)
    picture = job["pictures"][0]["id"]
    status, answer, data = s.call("GET", f"{api}/pictures/{picture}/file")
    check(png_pixels(data)[:2] == (64, 64) and "sandbox" in answer.getheader("content-security-policy"), "its file")
    check(s.call("GET", f"{api}/pictures/{picture}/file", if_none_match=answer.getheader("etag"))[0] == 304, "not again")
    tag = answer.getheader("etag")
    for text, status, first, last in [("bytes=0-99", 206, 0, 99), ("bytes=100-", 206, 100, len(data) - 1), ("bytes=-10", 206, len(data) - 10, len(data) - 1),
                                      ("bytes=10-999999999", 206, 10, len(data) - 1), ("bytes=9-3", 200, 0, 0), ("bytes=0-1,4-5", 200, 0, 0),
                                      ("lines=0-1", 200, 0, 0), ("bytes=x-", 200, 0, 0), ("bytes=-", 200, 0, 0), ("bytes=99999999-", 416, 0, 0), ("bytes=-0", 416, 0, 0)]:
        got, answer, part = s.call("GET", f"{api}/pictures/{picture}/file", range=text)
        check(got == status, "a range", text, got)
        if status == 206:
            check(part == data[first:last + 1] and answer.getheader("content-range") == f"bytes {first}-{last}/{len(data)}", "its bytes", text)
        if status == 200:
            check(part == data and answer.getheader("accept-ranges") == "bytes", "the whole file", text)
        if status == 416:
            check(answer.getheader("content-range") == f"bytes */{len(data)}" and part["error"]["code"] == "invalid_range", "no part", text)
    check([s.call("GET", f"{api}/pictures/{picture}/file", range="bytes=0-1", if_range=t)[0] for t in (tag, '"old"')] == [206, 200], "if-range")
    texts = s.call("POST", "/sdapi/v1/png-info", {"image": base64.b64encode(data).decode()})[2]["items"]
    for ending, kind, mark in (("png", "image/png", b"\x89PNG"), ("jpg", "image/jpeg", b"\xff\xd8\xff"), ("webp", "image/webp", b"RIFF")):
        status, answer, other = s.call("GET", f"{api}/pictures/{picture}/file.{ending}")
        check(status == 200 and answer.getheader("content-type") == kind and other.startswith(mark) and (other == data) == (ending == "png"), "in another format", ending, status)
        items = s.call("POST", "/sdapi/v1/png-info", {"image": base64.b64encode(other).decode()})[2]["items"]
        check(all(items.get(key) == texts[key] for key in ("parameters", "lazuli", "prompt")), "with its settings", ending, items)
    check(s.call("GET", f"{api}/pictures/{picture}/file.gif")[0] == 404 and s.call("GET", f"{api}/pictures/pic_none/file.jpg")[0] == 404, "no other format, no other picture")
    until("the small picture", lambda: s.call("GET", f"{api}/pictures/{picture}/thumb")[2][8:12] == b"WEBP")
    os.rename(f"{s.state}/thumbs/{picture}.webp", f"{s.state}/kept.webp")
    got, answer, whole = s.call("GET", f"{api}/pictures/{picture}/thumb")
    check(whole == data and answer.getheader("content-type") == "image/png" and answer.getheader("cache-control") == "private, no-store", "the picture itself while there is no small one", got)
    os.rename(f"{s.state}/kept.webp", f"{s.state}/thumbs/{picture}.webp")
    found = s.call("GET", f"{api}/pictures?q=CAT")[2]["pictures"]
    check(len(found) == 2 and found[1]["settings"]["prompt"] == "a cat" and found[1]["settings"]["seed"] == 1, "search", found)
    pages = [s.call("GET", f"{api}/{what}")[2] for what in ("pictures?q=cat&limit=1&before=", "pictures?q=cat&limit=2", "jobs?state=&limit=&after=", "jobs?limit=1")]
    check([p["more"] for p in pages] == [True, False, False, True] and len(pages[2]["jobs"]) > 1, "whether there are more", pages)
    check([len(p.get("pictures", p.get("jobs"))) for p in pages[:2] + pages[3:]] == [1, 2, 1], "as many as asked for")
    check(s.code("GET", f"{api}/jobs?state=running") == (400, "invalid_value"), "a state that there is not")
    for text in ("abc", "0", "-1", "201", "1e2", "99999999999999999999"):
        check([s.code("GET", f"{api}/{what}?limit={text}") for what in ("jobs", "pictures")] == [(400, "invalid_value")] * 2, "a limit", text)
    check(s.call("GET", f"{api}/pictures?q=elephant")[2]["pictures"] == [], "search for another")
    check(s.call("PUT", f"{api}/pictures/{picture}", {"pinned": True})[2]["pinned"], "pinned")
    rated = s.call("PUT", f"{api}/pictures/{picture}", {"rating": 4})[2]
    check(rated["rating"] == 4 and rated["pinned"], "rated, and still pinned", rated)
    for body in ({"rating": 6}, {"rating": -1}, {"rating": "4"}, {"rating": 1.5}, {"stars": 4}, {}, {"rating": 4, "x": 1}):
        check(s.call("PUT", f"{api}/pictures/{picture}", body)[0] == 400, "no rating", body)
    for least, found in (("4", True), ("5", False), ("0", True)):
        listed = [p["id"] for p in s.call("GET", f"{api}/pictures?limit=200&rating={least}")[2]["pictures"]]
        check((picture in listed) == found and (least != "4" or len(listed) == 1), "pictures by rating", least, listed)
    check(s.call("GET", f"{api}/pictures?rating=x")[0] == 400 and s.call("GET", f"{api}/pictures?rating=6")[0] == 400, "a wrong rating")
    upload = s.call("POST", api + "/uploads", data, content_type="image/png")
    check(upload[0] == 201 and upload[2]["width"] == 64, "an upload", upload[2])
    check([s.call("GET", f"{path}/{upload[2]['id']}")[0] for path in (api + "/uploads", "/uploads", "/files", api + "/pictures")] == [404] * 4, "uploads are not served back")
    for name in ("job_UP", "..%2fx", "a" * 65, "a.b", "a-b"):
        check(s.call("GET", f"{api}/jobs/{name}")[0] in (400, 404) and s.call("GET", f"{api}/pictures/{name}/file")[0] in (400, 404), "names that are no ids", name)
    body = {"prompt": "a cat", "seed": 1, "steps": 1, "strength": 0.9, "images": ["upload:" + upload[2]["id"]]}
    one = s.call("POST", api + "/jobs", body)[2]
    other = s.call("POST", api + "/jobs", {**body, "images": ["picture:" + picture]})[2]
    for j in (one, other):
        until("an edit", lambda j=j: s.call("GET", f"{api}/jobs/{j['id']}")[2]["status"] == "completed")
    files = [s.call("GET", f"{api}/pictures/{s.call('GET', api + '/jobs/' + j['id'])[2]['pictures'][0]['id']}/file")[2] for j in (one, other)]
    check(png_pixels(files[0]) == png_pixels(files[1]), "an upload and a picture")
    retry = s.call("POST", f"{api}/jobs/{one['id']}/retry")
    check(retry[0] == 202 and retry[2]["settings"]["seed"] == 1, "retry", retry[2])
    check(s.call("DELETE", f"{api}/pictures/{picture}")[0] == 200, "delete")
    check(s.code("GET", f"{api}/pictures/{picture}/file") == (410, "gone"), "gone")
    plan = s.call("POST", api + "/plan", {"width": 128, "height": 64})[2]
    check(plan["bytes"] > 0 and plan["operations"] > 0 and plan["width"] == 128 and plan["fits"], "a plan", plan)
    for body, wanted in [({"prompt": "a", "noise": "/etc/passwd"}, "unsupported_parameter"), ({"prompt": "a", "x": 1}, "unknown_parameter"),
                         ({"prompt": "a", "images": ["upload:../../x"]}, "invalid_value"), ({"prompt": "a", "sampler": "x"}, "unsupported_value"),
                         ({"prompt": "a", "seed": -2}, "invalid_value"), ({"prompt": "a", "seed": []}, "invalid_value")]:
        check(s.code("POST", api + "/jobs", body) == (400, wanted), "an error", body)
    check(s.code("GET", api + "/jobs/job_none") == (404, "not_found"), "no job")

    # Cancelling, at once
    job = s.call("POST", api + "/jobs", {"prompt": "a cat", "width": 512, "height": 512, "steps": 200})[2]
    until("it runs", s.running)
    begun = time.time()
    check(s.call("POST", f"{api}/jobs/{job['id']}/cancel")[2]["status"] == "cancelled", "cancelled")
    status, _, data = s.call("POST", "/v1/images/generations", SMALL)
    check(time.time() - begun < 15, "the next picture comes soon", time.time() - begun)
    check(base64.b64decode(data["data"][0]["b64_json"]) == pictures.fox(), "and is whole")


def test_sdapi(s):
    """What Open WebUI, SillyTavern and LibreChat send to AUTOMATIC1111's API."""
    sd = "/sdapi/v1"
    fox = pictures.fox()
    options = s.call("GET", sd + "/options")[2]
    check(options["sd_model_checkpoint"] == "demo", "options", options)
    check(s.call("POST", sd + "/options", options)[::2] == (200, None), "options posted back")
    check(s.call("POST", sd + "/options", {"sd_model_checkpoint": "none"})[0] == 404, "no model")
    check(s.call("GET", sd + "/sd-models")[2][0]["title"] == "demo", "models")
    check(options == {"sd_model_checkpoint": "demo", "samples_format": "png", "CLIP_stop_at_last_layers": 1}, "options", options)
    lists = {"sd-models": [{"title": "demo", "model_name": "demo", "hash": None, "sha256": None, "filename": "demo", "config": None}],
             "samplers": [{"name": "Euler", "aliases": ["euler"], "options": {}}], "schedulers": [{"name": "simple", "label": "Simple"}],
             "upscalers": [{"name": "None", "model_name": None, "model_path": None, "model_url": None, "scale": 1}],
             **{name: [] for name in ("latent-upscale-modes", "sd-vae", "sd-modules", "loras", "hypernetworks", "face-restorers", "realesrgan-models",
                                      "prompt-styles", "script-info")},
             "embeddings": {"loaded": {}, "skipped": {}}, "scripts": {"txt2img": [], "img2img": []}, "cmd-flags": {}}
    for name, wanted in lists.items():
        check(s.call("GET", f"{sd}/{name}")[::2] == (200, wanted), name, wanted)
    check(s.call("GET", "/internal/ping")[::2] == (200, {}) and s.call("HEAD", "/")[0] == 200, "ping")
    memory = s.call("GET", sd + "/memory")[2]
    check(memory["ram"]["total"] == memory["ram"]["free"] + memory["ram"]["used"] > 0 and "cuda" in memory, "memory", memory)
    check(s.call("POST", sd + "/unload-checkpoint")[::2] == (200, {}) and not s.worker(), "the model is unloaded")
    check(s.call("POST", sd + "/reload-checkpoint")[::2] == (200, {}) and s.call("GET", "/v1/models/demo")[2]["loaded"], "and loaded again")
    idle = s.call("GET", sd + "/progress")[2]
    check(idle["progress"] == 0 and idle["state"]["job_count"] == 0 and idle["current_image"] is None, "idle", idle)
    status, answer, data = s.call("POST", sd + "/txt2img", {"prompt": "a fox", "negative_prompt": "", "cfg_scale": 4.5, "steps": 22, "width": 64,
                                                            "height": 64, "seed": 7, "batch_size": 2, "sampler_name": "Euler a", "restore_faces": False})
    info = json.loads(data["info"])
    check(status == 200 and len(data["images"]) == 2 and info["seed"] == 7 and info["all_seeds"] == [7, 8] and info["batch_size"] == 2, "txt2img", info)
    check(info["width"] == 64 and info["steps"] == 4 and "Steps: 4" in info["infotexts"][0], "the model's own steps", info)
    check("sampler_name" in answer.getheader("x-lazuli-ignored") and "steps" in answer.getheader("x-lazuli-ignored"), "ignored")
    check(png_pixels(base64.b64decode(data["images"][0]))[:2] == (64, 64) and data["parameters"]["steps"] == 22, "a picture")
    odd = {"prompt": "a fox", "width": 64, "height": 64, "send_images": False, "eta": 1.5, "sampler_name": "Euler a", "tiling": True, "styles": ["a"],
           "alwayson_scripts": {"a": {"args": [1]}}, "long": "x" * 5000, "n" * 65: 1, **{f"other{n}": n for n in range(100)}}
    status, answer, data = s.call("POST", sd + "/txt2img", odd)
    echo, ignored = data["parameters"], answer.getheader("x-lazuli-ignored")
    check(status == 200 and echo["prompt"] == "a fox" and echo["eta"] == 1.5 and echo["sampler_name"] == "Euler a" and echo["tiling"] is True, "fields that are repeated", echo)
    check(not {"styles", "alwayson_scripts", "long", "n" * 65} & set(echo) and len(echo) == 4 + 64, "those that are long are not, nor very many", sorted(echo))
    check("styles" in ignored and "alwayson_scripts" in ignored and "long" in ignored, "they are listed", ignored)
    jobs = s.call("GET", "/api/v1/jobs?limit=1")[2]
    check(echo in [j["settings"].get("sdapi") for j in jobs.get("jobs", jobs.get("data", []))], "nothing else is kept with the job", str(jobs)[:600])
    body = {"prompt": "a fox", "seed": 3, "init_images": [base64.b64encode(fox).decode()], "denoising_strength": 0.5}
    status, _, data = s.call("POST", sd + "/img2img", body)
    check(status == 200 and "init_images" not in data["parameters"] and json.loads(data["info"])["denoising_strength"] == 0.5, "img2img", data)
    mask = base64.b64encode(png(64, 64, lambda x, y: (255, 255, 255) if x < 32 else (0, 0, 0))).decode()
    for invert in (0, 1, True):
        data = s.call("POST", sd + "/img2img", {**body, "denoising_strength": 1, "mask": mask, "inpainting_mask_invert": invert})[2]
        old, new = rgb(fox), rgb(base64.b64decode(data["images"][0]))
        same = [sum(a[3 * x:3 * x + 3] == b[3 * x:3 * x + 3] for a, b in zip(old, new)) for x in range(64)]
        kept, painted = (same[:32], same[36:]) if invert else (same[32:], same[:28])
        check(all(n == 64 for n in kept) and sum(painted) < 28 * 32, "the mask, and the other side of it", invert, same)
    check(s.call("POST", sd + "/img2img", {**body, "inpainting_mask_invert": "no"})[0] == 422, "neither 0 nor 1")
    status, _, data = s.call("POST", sd + "/txt2img", {"prompt": "a", "width": 1})
    check(status == 422 and data["detail"][0]["loc"] == ["body", "width"] and data["error"] == "invalid_value", "validation", data)
    check(s.call("POST", sd + "/img2img", {"prompt": "a"})[0] == 422 and s.call("GET", sd + "/none")[2]["error"] == "not_found", "errors")
    check(s.call("POST", sd + "/img2img", {**body, "init_images": ["!"]})[0] == 422, "not base64")
    name = 'lazuli_jobs_total{source="sdapi",outcome="completed"}'
    before, body = s.metric(name), {"prompt": "a fox", "width": 64, "height": 64}
    both = [s.call("POST", sd + "/txt2img", body, idempotency_key="of sdapi")[2] for _ in range(2)]
    check(both[0] == both[1] and s.metric(name) == before + 1, "the same key, the same pictures")
    check(s.call("POST", sd + "/img2img", {**body, "init_images": [base64.b64encode(fox).decode()]}, idempotency_key="of sdapi")[0] == 422, "the same key, another path")
    check(s.call("POST", sd + "/txt2img", {**body, "seed": 1}, idempotency_key="of sdapi")[2]["error"] == "idempotency_mismatch", "the same key, another body")
    read = s.call("POST", sd + "/png-info", {"image": "data:image/png;base64," + base64.b64encode(fox).decode()})[2]
    wanted = {"Prompt": "a fox", "Negative prompt": "", "Steps": "1", "Seed": "7", "Size-1": "64", "Size-2": "64"}
    check(read["info"].startswith("a fox\nSteps: 1, ") and {k: read["parameters"].get(k) for k in wanted} == wanted, "png-info", read)
    check(read["items"]["parameters"] == read["info"] and json.loads(read["items"]["lazuli"])["prompt"] == "a fox", "its items", read)
    bare = s.call("POST", sd + "/png-info", {"image": base64.b64encode(png(2, 2, lambda x, y: (1, 2, 3))).decode()})[2]
    check(bare == {"info": "", "items": {}, "parameters": {}}, "a picture without settings", bare)
    for wrong in ({}, {"image": "!"}, {"image": "R0lGODlh"}, {"image": 5}):
        check(s.call("POST", sd + "/png-info", wrong)[0] == 422, "no picture", wrong)
    odd = png(2, 2, lambda x, y: (1, 2, 3))
    odd = odd[:33] + chunk(b"tEXt", b"Comment\0a") + chunk(b"iTXt", b"parameters\0\0\0\0\0a \xff\xfe fox") + odd[33:]
    status, _, data = s.call("POST", sd + "/png-info", {"image": base64.b64encode(odd).decode()})
    check(status == 200 and "fox" in data["info"] and set(data) == {"info", "items", "parameters"}, "a text that is not UTF-8", status, data)
    many = {f"field{n}": "\1" * 4096 for n in range(64)}
    echoed = s.call("POST", sd + "/txt2img", {"prompt": "a fox", "width": 64, "height": 64, "steps": 1, **many})[2]["parameters"]
    check(8 < len([name for name in echoed if name.startswith("field")]) <= 16, "unknown fields have 64 KiB together", len(echoed))
    done = {}
    thread = threading.Thread(target=lambda: done.update(answer=s.call("POST", sd + "/txt2img", {"prompt": "a fox", "width": 1024, "height": 1024})))
    thread.start()
    until("it runs", lambda: s.call("GET", sd + "/progress")[2]["state"]["job_count"] == 1)
    state = s.call("GET", sd + "/progress")[2]["state"]
    check(state["job"] == "txt2img" and re.fullmatch(r"20\d{12}", state["job_timestamp"]) and state["sampling_steps"] in (0, 4), "its state", state)
    check(s.call("POST", sd + "/interrupt")[2] == {}, "interrupt")
    thread.join()
    check(done["answer"][0] == 200 and done["answer"][2]["images"] == [], "the pictures so far", done["answer"][2])
