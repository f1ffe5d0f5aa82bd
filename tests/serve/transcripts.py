"""transcripts.py: what programs send to an image server, replayed. Used by tests/cli/serve.py.

Each transcript is the sequence of requests of one program: paths, headers and fields as its code sends them. Sides are
64 pixels instead of 512 and 1024, so that the demo model is quick. After each request stands what the program reads of
the answer.
"""
import base64
import json

import pictures
from pictures import form
from server import check

SIDE = 64


def png(text):
    return base64.b64decode(text)[:8] == b"\x89PNG\r\n\x1a\n"


def open_webui_openai(image):
    """routers/images.py, engine "openai": the names of models are those of its settings."""
    head = {"authorization": "Bearer sk-any", "x_openwebui_user_name": "Ada", "x_openwebui_user_id": "1", "x_openwebui_user_role": "user"}
    for model, extra in (("dall-e-2", {"response_format": "b64_json"}), ("gpt-image-1", {}), ("dall-e-3", {"response_format": "b64_json", "quality": "hd"})):
        yield "POST", "/v1/images/generations", {"model": model, "prompt": "a fox", "n": 1, "size": f"{SIDE}x{SIDE}", **extra}, head, \
            lambda data: "url" not in data["data"][0] and png(data["data"][0]["b64_json"])
    fields = {"model": "gpt-image-1", "prompt": "a red fox", "n": "1", "size": f"{SIDE}x{SIDE}", "background": "auto"}
    yield "FORM", "/v1/images/edits", (fields, [("image", image)]), head, lambda data: png(data["data"][0]["b64_json"])
    yield "FORM", "/v1/images/edits", (fields, [("image[]", image), ("image[]", image)]), head, lambda data: png(data["data"][0]["b64_json"])


def open_webui_automatic1111(image):
    """The same, engine "automatic1111". The header Authorization is there and empty."""
    head, options = {"authorization": ""}, {}
    yield "GET", "/sdapi/v1/options", None, head, lambda data: options.update(data) or data["sd_model_checkpoint"]
    yield "GET", "/sdapi/v1/sd-models", None, head, lambda data: [(m["title"], m["model_name"]) for m in data]
    yield "POST", "/sdapi/v1/options", options, head, lambda data: data is None
    body = {"prompt": "a fox", "batch_size": 1, "width": SIDE, "height": SIDE, "steps": 50, "negative_prompt": "blurry",
            "cfg_scale": 7.5, "sampler_name": "Euler a", "scheduler": "Automatic"}
    yield "POST", "/sdapi/v1/txt2img", body, head, lambda data: png(data["images"][0]) and json.loads(data["info"])["seed"] >= 0


def silly_tavern(image):
    """src/endpoints/stable-diffusion.js: connect, choose the model, make a picture, interrupt."""
    head = {"authorization": "Basic Og=="}
    yield "HEAD", "/", None, {}, lambda data: True
    yield "GET", "/sdapi/v1/options", None, head, lambda data: data["sd_model_checkpoint"] and "forge_preset" not in data
    for name in ("upscalers", "latent-upscale-modes", "sd-vae", "sd-modules", "samplers", "schedulers"):
        yield "GET", f"/sdapi/v1/{name}", None, head, lambda data: isinstance(data, list) and all(x.get("name") for x in data)
    yield "GET", "/sdapi/v1/sd-models", None, head, lambda data: [{"value": m["title"], "text": m["title"]} for m in data]
    yield "POST", "/sdapi/v1/options", {"sd_model_checkpoint": "demo"}, head, lambda data: data is None
    yield "GET", "/sdapi/v1/progress", None, head, lambda data: data["progress"] == 0 and data["state"]["job_count"] == 0
    body = {"prompt": "a fox", "negative_prompt": "blurry", "sampler_name": "Euler", "scheduler": "normal", "steps": 20, "cfg_scale": 7,
            "width": SIDE, "height": SIDE, "restore_faces": False, "enable_hr": False, "hr_upscaler": "Latent", "hr_scale": 1,
            "hr_additional_modules": [], "denoising_strength": 0.7, "hr_second_pass_steps": 0, "seed": -1,
            "override_settings": {"CLIP_stop_at_last_layers": 1, "sd_vae": "Automatic", "forge_additional_modules": []},
            "override_settings_restore_afterwards": True, "clip_skip": 1, "save_images": True, "send_images": True,
            "do_not_save_grid": False, "do_not_save_samples": False}
    yield "POST", "/sdapi/v1/txt2img", body, head, lambda data: png(data["images"][0])
    yield "POST", "/sdapi/v1/interrupt", None, head, lambda data: data == {}


def libre_chat_openai(image):
    """tools/structured/OpenAIImageTools.js: the official client for new pictures, a form for edits."""
    head = {"authorization": "Bearer any", "user_agent": "OpenAI/JS 5.8.2", "x_stainless_lang": "js", "x_stainless_retry_count": "0",
            "x_stainless_read_timeout": "600"}
    body = {"model": "gpt-image-1", "prompt": "a fox", "n": 1, "background": "auto", "output_format": "png", "output_compression": 100,
            "quality": "auto", "size": "auto"}
    yield "POST", "/v1/images/generations", {**body, "size": f"{SIDE}x{SIDE}"}, head, lambda data: png(data["data"][0]["b64_json"])
    fields = {"model": "gpt-image-1", "prompt": "a red fox", "quality": "auto", "size": "auto"}
    yield "FORM", "/v1/images/edits", (fields, [("image[]", image)]), {"authorization": "Bearer any"}, lambda data: png(data["data"][0]["b64_json"])


def libre_chat_stable_diffusion(image):
    """tools/structured/StableDiffusion.js reads the settings from the text "info"."""
    body = {"prompt": "detailed keywords", "negative_prompt": "keywords to avoid", "cfg_scale": 4.5, "steps": 22, "width": SIDE, "height": SIDE}

    def reads(data):
        info = json.loads(data["info"])
        return png(data["images"][0]) and info["width"] == SIDE and info["height"] == SIDE and info["seed"] >= 0 and "Steps: " in info["infotexts"][0]
    yield "POST", "/sdapi/v1/txt2img", body, {}, reads


def lobe_chat(image):
    """model-runtime createImage: pictures and edits through the official client."""
    head = {"authorization": "Bearer any", "user_agent": "OpenAI/JS 4.104.0"}
    body = {"model": "gpt-image-1", "n": 1, "prompt": "a fox", "size": f"{SIDE}x{SIDE}"}
    yield "POST", "/v1/images/generations", body, head, lambda data: png(data["data"][0]["b64_json"]) and data["usage"]["output_tokens"] > 0
    fields = {"model": "gpt-image-1", "n": "1", "prompt": "a red fox", "input_fidelity": "high"}
    yield "FORM", "/v1/images/edits", (fields, [("image", image)]), head, lambda data: png(data["data"][0]["b64_json"])


def nextcloud(image):
    """integration_openai: no /v1 in the path, the default model of its settings."""
    head = {"authorization": "Bearer any", "user_agent": "Nextcloud OpenAI/LocalAI integration"}
    yield "GET", "/models", None, head, lambda data: [m["id"] for m in data["data"]]
    body = {"prompt": "a fox", "size": f"{SIDE}x{SIDE}", "n": 2, "model": "demo"}
    yield "POST", "/images/generations", body, head, lambda data: len(data["data"]) == 2 and png(data["data"][1]["b64_json"])


def krita(image):
    """cyanic-sd-krita: reads all lists first, then paints from the canvas, with a mask that it wants inverted."""
    for name in ("scripts", "embeddings", "hypernetworks", "face-restorers", "prompt-styles", "sd-models", "samplers", "upscalers", "loras", "sd-vae"):
        yield "GET", f"/sdapi/v1/{name}", None, {}, lambda data: isinstance(data, (list, dict))
    mask = pictures.png(SIDE, SIDE, lambda x, y: (255, 255, 255) if x < y else (0, 0, 0))
    body = {"prompt": "a fox", "negative_prompt": "", "steps": 20, "cfg_scale": 7, "width": SIDE, "height": SIDE, "init_images": ["data:image/png;base64," + base64.b64encode(image).decode()],
            "denoising_strength": 0.8, "mask": "data:image/png;base64," + base64.b64encode(mask).decode(), "inpainting_mask_invert": 1, "inpainting_fill": 1, "inpaint_full_res": False,
            "mask_blur": 4, "seed": -1, "subseed": -1, "batch_size": 1, "n_iter": 1, "alwayson_scripts": {}, "styles": []}
    yield "POST", "/sdapi/v1/img2img", body, {}, lambda data: png(data["images"][0]) and "init_images" not in data["parameters"] and "mask" not in data["parameters"]
    yield "GET", "/sdapi/v1/progress?skip_current_image=true", None, {}, lambda data: data["current_image"] is None and data["state"]["job_count"] == 0


ALL = (open_webui_openai, open_webui_automatic1111, silly_tavern, libre_chat_openai, libre_chat_stable_diffusion, lobe_chat, nextcloud, krita)


def replay(server, image):
    """Sends everything."""
    for transcript in ALL:
        for method, path, body, head, reads in transcript(image):
            if method == "FORM":
                body, kind = form(*body)
                status, _, data = server.call("POST", path, body, content_type=kind, **head)
            else:
                status, _, data = server.call(method, path, body, **head)
            try:
                good = status == 200 and reads(data)
            except (KeyError, IndexError, TypeError, ValueError) as error:
                good, data = False, (error, data)
            check(good, transcript.__name__, method, path, status, str(data)[:300])
