#!/usr/bin/env python3
"""Golden values for repainting a part of a picture: the inpainting and image-to-image pipelines of diffusers in float32.

    python3 tools/oracle/inpaint.py           writes tests/data/inpaint (needs requirements.txt)
    python3 tools/oracle/inpaint.py --check   runs every case again from what is stored

The models are those of tests/data/flux2, qwen and zimage, and most pictures too. tests/data/inpaint/README.md says what
the files hold.
"""

import shutil

import numpy as np
import torch
from diffusers import (Flux2KleinInpaintPipeline, QwenImageEditInpaintPipeline, QwenImageImg2ImgPipeline,
                       QwenImageInpaintPipeline, ZImageInpaintPipeline)
from diffusers.models.autoencoders.vae import DiagonalGaussianDistribution
from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit_inpaint as edit
from PIL import Image, ImageDraw, ImageFilter
from safetensors.torch import load_file, save_file

import flux2
import qwen
import zimage
from common import TESTS, error, finish, main

DATA = TESTS / "inpaint"
SAMPLE = DiagonalGaussianDistribution.sample
FAMILIES = {"flux2": flux2, "qwen": qwen, "zimage": zimage}
EDIT_AREA = 96 * 64  # instead of the megapixel of the edit pipeline

# ---------------------------------------------------------------------------------------------------------------------
# Masks: name, size, and what is white


def draw(size, shape, box, mode="L", colour=255, blur=0.0):
    image = Image.new(mode, size)
    getattr(ImageDraw.Draw(image), shape)(box, fill=colour)
    return image.filter(ImageFilter.GaussianBlur(blur)) if blur else image


def masks() -> dict[str, Image.Image]:
    holed = Image.open(TESTS / "flux2" / "ref2.png").convert("RGBA")
    holed.paste((0, 0, 0, 0), (30, 9, 71, 50))
    return {
        "soft.png": draw((96, 64), "ellipse", (20, 8, 78, 52), blur=5),
        "small.png": draw((67, 85), "rectangle", (21, 33, 43, 60)),
        "half.png": draw((67, 85), "rectangle", (0, 40, 67, 85), mode="RGB", colour=(250, 200, 90)),  # grey 200
        "other.png": draw((120, 112), "ellipse", (10, 30, 90, 100), blur=3),  # for a picture of 75 x 70
        "thin.png": draw((64, 48), "polygon", (9, 8, 60, 20, 60, 30, 14, 40)),
        "holed.png": holed,  # transparent where it is repainted
        # For tests/cli/mask.sh, with a picture of 67 x 85.
        "black.png": Image.new("L", (67, 85)),
        "white.png": Image.new("L", (67, 85), 255),
        "large.png": draw((134, 170), "rectangle", (60, 20, 90, 150)),
    }


# ---------------------------------------------------------------------------------------------------------------------
# Cases


def case(name, pipeline, model, picture, mask, width, height, steps, strength, guidance=1.0, seed=0, more=(), crop=-1):
    """width, height: of the picture that is painted."""
    return dict(name=name, pipeline=pipeline, model=model, prompt="a red fox in the snow", negative="dark",
                references=[picture, *more], mask=mask, width=width, height=height, steps=steps, strength=strength,
                guidance=guidance, seed=seed, crop=crop)


CASES = [
    case("klein_soft", Flux2KleinInpaintPipeline, "flux2/A", "flux2/ref2.png", "soft.png", 96, 64, 5, 0.8, seed=1),
    case("klein_small", Flux2KleinInpaintPipeline, "flux2/B", "flux2/ref3.png", "small.png", 64, 80, 4, 0.6, seed=2),
    case("klein_base", Flux2KleinInpaintPipeline, "flux2/C", "flux2/ref3.png", "half.png", 64, 80, 3, 1.0, 4.0, seed=3,
         more=["flux2/ref1.png"]),
    case("klein_holed", Flux2KleinInpaintPipeline, "flux2/B", "flux2/ref2.png", "holed.png", 96, 64, 4, 0.8, seed=13),
    case("klein_crop", Flux2KleinInpaintPipeline, "flux2/B", "flux2/ref3.png", "small.png", 64, 80, 4, 0.7, seed=4,
         crop=7),
    case("qwen_start", QwenImageImg2ImgPipeline, "qwen/Q", "qwen/ref1.png", "", 64, 48, 5, 0.6, 3.0, seed=5),
    case("qwen_soft", QwenImageInpaintPipeline, "qwen/Q", "qwen/ref1.png", "other.png", 64, 48, 4, 0.6, seed=6),
    case("qwen_thin", QwenImageInpaintPipeline, "qwen/Q", "zimage/start1.png", "thin.png", 64, 48, 3, 1.0, 2.5, seed=7),
    case("qwen_crop", QwenImageInpaintPipeline, "qwen/Q", "zimage/start1.png", "thin.png", 64, 48, 3, 0.9, seed=8,
         crop=2),
    case("qwen_bars", QwenImageInpaintPipeline, "qwen/Q", "flux2/ref3.png", "small.png", 96, 48, 2, 0.9, seed=9,
         crop=4),
    case("edit_soft", QwenImageEditInpaintPipeline, "qwen/E", "flux2/ref2.png", "soft.png", 96, 64, 3, 0.7, 2.0,
         seed=10),
    case("z_soft", ZImageInpaintPipeline, "zimage/T", "flux2/ref2.png", "soft.png", 96, 64, 4, 1.0, seed=11),
    case("z_small", ZImageInpaintPipeline, "zimage/B", "flux2/ref3.png", "small.png", 64, 80, 5, 0.6, 3.0, seed=12),
]


NO_IMAGE = ("klein_holed", "klein_base", "z_small")  # latents are enough, and smaller


def make_pipe(c: dict):
    family, name = c["model"].split("/")
    other = FAMILIES[family].load_model(name)
    parts = dict(other.components)
    if c["pipeline"] is Flux2KleinInpaintPipeline:
        parts["is_distilled"] = flux2.MODELS[name]["distilled"]
    if family == "qwen" and c["pipeline"] is not QwenImageEditInpaintPipeline:
        parts = {k: parts[k] for k in ("scheduler", "vae", "text_encoder", "tokenizer", "transformer")}
    pipe = c["pipeline"](**parts)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def options_of(pipe, c: dict) -> dict:
    kind, name = c["pipeline"], c["model"].split("/")[1]
    if kind is Flux2KleinInpaintPipeline:
        options = {k: flux2.MODELS[name][k] for k in ("text_encoder_out_layers", "max_sequence_length")
                   if k in flux2.MODELS[name]}
        if len(c["references"]) > 1:
            options["image_reference"] = Image.open(TESTS / c["references"][1])
        return options | dict(guidance_scale=c["guidance"])
    if kind is ZImageInpaintPipeline:  # it counts guidance from 0, and takes the size of the picture
        return dict(guidance_scale=c["guidance"] - 1, negative_prompt=c["negative"])
    size = {} if kind is QwenImageEditInpaintPipeline else dict(width=c["width"], height=c["height"])
    return dict(true_cfg_scale=c["guidance"], negative_prompt=c["negative"], **size)


def planes(tokens: torch.Tensor, c: dict) -> torch.Tensor:
    if c["pipeline"] is Flux2KleinInpaintPipeline:
        return flux2.unpack(tokens, c)
    return tokens if c["pipeline"] is ZImageInpaintPipeline else qwen.unpack(tokens, c)


def look_at_megapixel(pipe, picture: Image.Image) -> None:
    """The text encoder gets the picture in the size that the pipeline gives it if EDIT_AREA is not smaller."""
    width, height, _ = qwen_dimensions(1024 * 1024, picture.width / picture.height)
    large, encode = pipe.image_processor.resize(picture, height, width), pipe.encode_prompt
    pipe.encode_prompt = lambda image, **kw: encode(image=large, **kw)


qwen_dimensions = edit.calculate_dimensions


@torch.no_grad()
def run(pipe, c: dict) -> dict[str, torch.Tensor]:
    steps = []

    def on_step(_, index, timestep, tensors):
        steps.append(planes(tensors["latents"], c))
        return {}

    # The mean of the posterior, not a sample, so the generator's first numbers are the noise.
    DiagonalGaussianDistribution.sample = lambda self, generator=None: self.mode()
    edit.calculate_dimensions = lambda area, ratio: qwen_dimensions(EDIT_AREA, ratio)
    picture = Image.open(TESTS / c["references"][0])
    options = options_of(pipe, c)
    if c["pipeline"] is QwenImageEditInpaintPipeline:
        look_at_megapixel(pipe, picture)
    if c["mask"]:
        mask = Image.open(DATA / c["mask"])
        if mask.mode == "RGBA":  # a rule of Lazuli's
            mask = Image.fromarray(255 - np.array(mask)[:, :, 3])
        options["mask_image"] = mask
    if c["crop"] >= 0:
        options["padding_mask_crop"] = c["crop"]
    seeds = torch.Generator("cpu").manual_seed(c["seed"])
    images = pipe(prompt=c["prompt"], image=picture, strength=c["strength"], num_inference_steps=c["steps"],
                  output_type="pil" if c["crop"] >= 0 else "pt", generator=seeds, callback_on_step_end=on_step,
                  **options).images
    DiagonalGaussianDistribution.sample = SAMPLE
    edit.calculate_dimensions = qwen_dimensions
    seen = dict(latents=steps[-1])
    if c["crop"] < 0:
        assert images.shape == (1, 3, c["height"], c["width"])
        if c["name"] not in NO_IMAGE:
            seen["image"] = images.half()
    elif c["pipeline"] is not Flux2KleinInpaintPipeline:  # klein pastes at the wrong scale
        seen["pasted"] = torch.from_numpy(np.array(images[0]))
    return {k: v.detach().clone().contiguous() for k, v in seen.items()}


def write() -> None:
    shutil.rmtree(DATA / "cases", ignore_errors=True)
    (DATA / "cases").mkdir(parents=True)
    for name, mask in masks().items():
        mask.save(DATA / name)
    for c in CASES:
        golden = run(make_pipe(c), c)
        print(c["name"], {k: tuple(v.shape) for k, v in golden.items()}, f"latents {golden['latents'].std():.2f}")
        save_file(golden, DATA / "cases" / f"{c['name']}.safetensors")
    finish(DATA, [{k: v for k, v in c.items() if k != "pipeline"} for c in CASES], 3e5)


def check() -> None:
    for c in CASES:
        want, got = load_file(DATA / "cases" / f"{c['name']}.safetensors"), run(make_pipe(c), c)
        worst = max(error(got[k], want[k]) for k in want)
        print(f"{c['name']:20} largest relative error {worst:.1e}")
        assert got.keys() == want.keys() and worst < 1e-6


if __name__ == "__main__":
    main(__doc__, write, check)
