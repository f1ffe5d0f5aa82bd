"""hub.py MODELS STATE: a small Hugging Face hub on three ports of localhost, for tests/cli/pull.sh.

It serves the folders in MODELS (or MODELS/B under any other name) as repositories, and misbehaves as the owner's name
says: `breaks/B` breaks every connection, `moved/B` sends to the second port. The third one speaks https, if there is a
STATE/tls.pem. STATE/ports holds the ports when it is ready, STATE/log a line for each request: port, path, range, token,
status, bytes sent.
"""
import hashlib
import http.server
import json
import os
import ssl
import sys
import threading
import time

MODELS, STATE = sys.argv[1:3]
COMMIT = "c0ffee" * 6 + "beef"
TOKEN = "Bearer hf_secret"
PIECE = 60000  # what passes before a connection breaks
EXTRAS = ["README.md", "teaser.png", "flux-2-klein.safetensors", "vae/model.onnx", "text_encoder/pytorch_model.bin",
          "transformer/diffusion_pytorch_model.fp16.safetensors", "transformer/old/config.json", "other/config.json"]
lock = threading.Lock()
seen = {}  # how often a path was asked for


def part(name):
    with open(os.path.join(MODELS, "../parts", name), "rb") as file:
        return file.read()


def tensors(shapes):
    """A safetensors file of zeros in bf16."""
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2
        for n in shape:
            size *= n
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(at)


def tiny_types(data):
    """The GGUF file with a tensor of 256 numbers of the type IQ2_XXS (16)."""
    name = b"double_blocks.0.img_mlp.0.weight"
    at = data.index(name) + len(name)
    axes = int.from_bytes(data[at:at + 4], "little")
    shape, kind = at + 4, at + 4 + 8 * axes
    rows = (256).to_bytes(8, "little") + (1).to_bytes(8, "little")
    return data[:shape] + rows + (16).to_bytes(4, "little") + data[kind + 4:]


def single_files(owner, repo):
    """Repositories of single files, as on the real hub; None: it is a model folder."""
    comfy = "split_files/"
    klein_vae = "klein_vae/diffusion_pytorch_model.safetensors"
    if f"{owner}/{repo}" == "unsloth/FLUX.2-klein-4B-GGUF":
        return {"flux-2-klein-4b-Q4_K_M.gguf": part("klein.gguf"), "README.md": b"GGUF"}
    if f"{owner}/{repo}" == "unsloth/Qwen3-4B-GGUF":
        return {"Qwen3-4B-Q4_K_M.gguf": part("qwen3.gguf")}
    if f"{owner}/{repo}" == "Comfy-Org/flux2-klein-4B":
        return {comfy + "vae/flux2-vae.safetensors": part(klein_vae)}
    if f"{owner}/{repo}" == "unsloth/Qwen-Image-Edit-2511-GGUF":
        return {"qwen-image-edit-2511-Q4_K_M.gguf": part("qwen/transformer/diffusion_pytorch_model.safetensors")}
    if f"{owner}/{repo}" == "unsloth/Qwen2.5-VL-7B-Instruct-GGUF":
        return {"Qwen2.5-VL-7B-Instruct-Q4_K_M.gguf": part("qwen2.5-vl.gguf"),
                "mmproj-F16.gguf": part("mmproj-qwen2.5-vl.gguf")}
    if f"{owner}/{repo}" == "Comfy-Org/Qwen-Image_ComfyUI":
        return {comfy + "vae/qwen_image_vae.safetensors": part("qwen/vae/diffusion_pytorch_model.safetensors")}
    if repo != "Files":
        return None
    return {comfy + "diffusion_models/klein.gguf": part("klein.gguf"), comfy + "vae/vae.safetensors": part(klein_vae),
            comfy + "text_encoders/qwen3.gguf": part("qwen3.gguf"), "tokenizer/tokenizer.json": b"{}",
            "one/twin.gguf": part("qwen3.gguf"), "two/twin.gguf": part("qwen3.gguf"),
            "lora.safetensors": tensors({"transformer_blocks.0.attn.to_q.lora_A.weight": [2, 4]}),
            "nunchaku.safetensors": tensors({"blocks.0.qweight": [8, 40000], "blocks.0.wscales": [8]}),
            "dev.safetensors": tensors({"double_stream_modulation_img.lin.weight": [8, 40000],
                                        "guidance_in.in_layer.weight": [8, 8]}),
            "language.safetensors": tensors({"layers.0.mlp.weight": [8, 40000]}),
            "vast.safetensors": (1 << 27).to_bytes(8, "little") + b"{" + bytes(400000),
            "broken.gguf": part("klein.gguf")[:3000] + b"\xff" * 3000 + bytes(400000),
            "iq2.gguf": tiny_types(part("klein.gguf")),
            "best-of-two.gguf": tiny_types(part("klein.gguf")),
            "pickle.ckpt": b"PK\x03\x04" + bytes(400000), "con fig.gguf": b"GGUF"}


def files(owner, repo):
    """path -> bytes."""
    single = single_files(owner, repo)
    if single:
        return single
    top = os.path.join(MODELS, repo if os.path.isdir(os.path.join(MODELS, repo)) else "B")
    found = {extra: b"not needed" for extra in EXTRAS}
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, top)] = file.read()
    if owner == "twins":  # the same bytes under two names
        index = json.loads(found["model_index.json"])
        index["processor"] = ["transformers", "Qwen2VLProcessor"]
        found["model_index.json"] = json.dumps(index).encode()
        found["processor/preprocessor_config.json"] = found["scheduler/scheduler_config.json"]
        found["vae/twin.json"] = found["scheduler/scheduler_config.json"]
    if owner == "foreign":  # a pipeline that nobody here runs
        index = json.loads(found["model_index.json"])
        index["_class_name"] = "StableDiffusionXLPipeline"
        found["model_index.json"] = json.dumps(index).encode()
    if owner == "modular":  # the index of a modular pipeline; its model is not one of FLUX.3
        index = json.loads(found.pop("model_index.json"))
        index = {k: [None, None, {"subfolder": k, "type_hint": v}] if isinstance(v, list) and len(v) == 2 else v
                 for k, v in index.items()}
        index["_class_name"] = "Flux3ModularPipeline"
        found["modular_model_index.json"] = json.dumps(index).encode()
    if owner == "bare":
        del found["model_index.json"]
    if owner == "odd":
        found["vae/con fig.json"] = b"{}"
    return found


def tree(owner, repo):
    entries = [{"type": "directory", "path": "vae", "size": 0, "oid": "0" * 40}]
    for path, data in files(owner, repo).items():
        blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        entry = {"type": "file", "path": path, "size": len(data), "oid": blob}
        if path.endswith((".safetensors", ".gguf", ".ckpt", ".png", ".bin", ".onnx")):
            size = len(data)
            if path.startswith("transformer/diffusion_pytorch_model"):
                size += {"short": -1, "long": 1, "huge": 1 << 43, "negative": -1 << 40, "vast": 1 << 60}.get(owner, 0)
            entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": size, "pointerSize": 134}
            entry["size"] = 134 if owner == "pointers" else size
        entries.append(entry)
    harm = {"escapes": "../evil.json", "climbs": "vae/../../evil.json", "roots": "/tmp/evil.json", "dots": "vae/./a.json",
            "nothing": "vae//a.json", "controls": "vae/a\n.json"}.get(owner)
    if harm:
        entries.append({"type": "file", "path": harm, "size": 2, "oid": "0" * 40})
    if owner == "hashes":
        entries[-1]["oid"] = "../../../evil"
        entries[-1].pop("lfs", None)
        entries[-1]["path"] = "vae/evil.json"
    if owner == "doubles":
        entries.append(next(e for e in entries if e["path"] == "vae/config.json"))
    if owner == "twosizes":
        entries.append(dict(next(e for e in entries if e["path"] == "vae/config.json"), size=1 << 30))
    if owner == "crowd":
        entries += [{"type": "file", "path": f"vae/{i}.json", "size": 2, "oid": "0" * 40} for i in range(2500)]
    if owner == "fat":  # 1.9 MB in an entry, 30 MB for who keeps it
        entries = [{"type": "file", "path": "README.md", "more": [1] * 630000}]
    return entries


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16

    def log_message(self, *_):
        pass

    def note(self, status, sent):
        with lock, open(os.path.join(STATE, "log"), "a") as log:
            log.write(f"{'cdn' if self.server is cdn else 'hub'} {self.path} range={self.headers.get('Range', '-')} "
                      f"token={self.headers.get('Authorization', '-')} {status} sent={sent}\n")

    def answer(self, status, data=b"", headers=(), stop=None):
        """stop: after so many bytes the connection breaks."""
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        sent = data if stop is None else data[:stop]
        self.note(status, len(sent))
        self.wfile.write(sent)
        if len(sent) < len(data):
            self.wfile.flush()
            self.close_connection = True

    def drip(self, status, data, headers):
        """A byte now and then, until the other side has had enough."""
        self.send_response(status)
        for name, value in headers + [("Content-Length", str(len(data)))]:
            self.send_header(name, value)
        self.end_headers()
        self.note(status, 0)
        for byte in data:
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            time.sleep(0.02)

    def count(self):
        with lock:
            seen[self.path] = seen.get(self.path, 0) + 1
            return seen[self.path]

    def do_GET(self):
        try:
            self.serve()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def serve(self):
        path, _, query = self.path.partition("?")
        words = path.strip("/").split("/")
        api = words[:2] == ["api", "models"]
        if api:
            words = words[2:]
        owner, repo, kind, revision = words[:4]
        times = self.count()
        token = self.headers.get("Authorization")
        if owner == "private" and token != TOKEN:
            return self.answer(403 if token else 401)
        if owner == "down" or (owner == "busy" and times < 3):
            return self.answer(429 if times == 1 else 500, b"later", [("Retry-After", "0")])
        if revision not in ("main", "v1", "refs%2Fpr%2F1", COMMIT):
            return self.answer(404)
        if api and owner == "garbage":
            return self.answer(200, b"<html>")
        if api and owner == "endless":
            return self.answer(200, b"[" + b" " * (40 << 20))
        if api and kind == "revision":
            facts = {"sha": "main" if owner == "nameless" else COMMIT}
            if owner in ("unsloth", "Comfy-Org"):
                facts["cardData"] = {"license": "apache-2.0"}
            elif owner == "terms":
                facts["cardData"] = {"license": "other", "license_name": "own-terms"}
            if owner != "paged":  # an older hub lists no files here
                facts["siblings"] = [{"rfilename": path} for path in files(owner, repo)]
            return self.answer(200, json.dumps(facts).encode())
        if api:
            entries, headers = tree(owner, repo), []
            if owner in ("paged", "astray") and not query.endswith("cursor=2"):
                there = "http://localhost:1" if owner == "astray" else f"http://127.0.0.1:{hub.server_port}"
                headers = [("Link", f'<{there}{path}?recursive=true&cursor=2>; rel="next"')]
                entries = entries[:7]
            elif owner == "paged":
                entries = entries[7:]
            elif owner == "fat":  # always one more
                headers = [("Link", f'<http://127.0.0.1:{hub.server_port}{path}?cursor={times}>; rel="next"')]
            return self.answer(200, json.dumps(entries).encode(), headers)
        self.file(owner, repo, "/".join(words[4:]), times)

    def file(self, owner, repo, name, times):
        data = files(owner, repo).get(name)
        if data is None:
            return self.answer(404)
        if owner == "moved" and self.server is not cdn:
            return self.answer(302, b"there", [("Location", f"http://127.0.0.1:{cdn.server_port}{self.path}")])
        if owner == "loops":
            return self.answer(302, b"", [("Location", self.path)])
        if owner == "local":
            return self.answer(302, b"", [("Location", "file:///etc/passwd")])
        large = len(data) > PIECE and name != "model_index.json"
        if large and (owner == "wrong" or (owner == "once" and times == 1)):
            data = data[:-1] + bytes([data[-1] ^ 1])
        begin, headers, status = 0, [], 200
        asked = self.headers.get("Range")
        if asked and owner != "noranges":
            begin, end = asked[len("bytes="):].split("-")
            begin, whole = int(begin), len(data)
            if begin >= whole:
                return self.answer(416)
            first = begin - 1 if owner == "shifts" else begin
            data = data[:int(end) + 1] if end else data
            headers = [("Content-Range", f"bytes {first}-{len(data) - 1}/{whole}")]
            status = 206
        stop = PIECE if large and (owner == "breaks" or (owner in ("noranges", "shifts") and times == 1)) else None
        if large and owner == "drips":
            return self.drip(status, data[begin:], headers)
        if large and owner == "stalls" and not os.path.exists(os.path.join(STATE, "go")):
            self.answer(status, data[begin:], headers, PIECE)
            while not os.path.exists(os.path.join(STATE, "go")):
                time.sleep(0.02)
            return None
        return self.answer(status, data[begin:], headers, stop)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass


hub = Server(("127.0.0.1", 0), Handler)
cdn = Server(("127.0.0.1", 0), Handler)
tls = Server(("127.0.0.1", 0), Handler)
if os.path.exists(os.path.join(STATE, "tls.pem")):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(os.path.join(STATE, "tls.pem"))
    tls.socket = context.wrap_socket(tls.socket, server_side=True)
for server in cdn, tls:
    threading.Thread(target=server.serve_forever, daemon=True).start()
with open(os.path.join(STATE, "ports.new"), "w") as ports:
    ports.write(f"{hub.server_port} {cdn.server_port} {tls.server_port}\n")
os.rename(os.path.join(STATE, "ports.new"), os.path.join(STATE, "ports"))
hub.serve_forever()
