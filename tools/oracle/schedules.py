#!/usr/bin/env python3
"""Golden values for schedules, sizes and step counts: what diffusers and transformers make of configuration files.

    python3 tools/oracle/schedules.py           writes tests/data/schedules.{json,safetensors} (needs requirements.txt)
    python3 tools/oracle/schedules.py --check   computes all of it again and compares

The models are those of tests/data/flux2 and tests/data/qwen. schedules.json holds
    schedules   a scheduler_config.json, a family, tokens and steps -> sigmas, in float32
    sizes       of a reference -> of the picture that FLUX.2 [klein] makes when no size is asked for
    strengths   steps and strength -> steps that are run
    views       a picture and limits of pixels -> what Qwen2VLImageProcessor resizes it to
    pictures    models with other files in their folders; the pictures are in schedules.safetensors, as float16
"""

import json
import pathlib
import tempfile
import types

import numpy as np
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, QwenImageImg2ImgPipeline
from diffusers.pipelines.flux2.pipeline_flux2_klein import compute_empirical_mu
from diffusers.pipelines.qwenimage.pipeline_qwenimage import calculate_shift
from diffusers.schedulers import scheduling_flow_match_euler_discrete
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

import flux2
import qwen
from common import TESTS, error, main

CLASS = dict(_class_name="FlowMatchEulerDiscreteScheduler")
KLEIN = CLASS | flux2.SCHEDULER
QWEN = CLASS | qwen.SCHEDULER
LIGHTNING = CLASS | {k: v for k, v in qwen.LIGHTNING.items() if v is not None}
STATIC = dict(use_dynamic_shifting=False)

# Changes of a file; None removes a key.
CONFIGS = [
    ("klein", KLEIN), ("qwen", QWEN), ("qwen", LIGHTNING), ("klein", CLASS), ("qwen", CLASS), ("klein", {}),
    ("klein", KLEIN | STATIC), ("klein", KLEIN | STATIC | dict(shift=6.93)), ("klein", KLEIN | STATIC | dict(shift=0.3)),
    ("klein", KLEIN | dict(time_shift_type="linear")), ("qwen", QWEN | dict(time_shift_type="linear")),
    ("klein", KLEIN | dict(shift_terminal=0.1)), ("klein", KLEIN | STATIC | dict(shift_terminal=0.02)),
    ("klein", KLEIN | dict(shift_terminal=False)), ("klein", KLEIN | dict(use_karras_sigmas=True)),
    ("qwen", QWEN | dict(use_karras_sigmas=True)), ("klein", KLEIN | STATIC | dict(use_exponential_sigmas=True)),
    ("qwen", QWEN | dict(use_exponential_sigmas=True)), ("qwen", CLASS | dict(use_dynamic_shifting=True)),
    ("qwen", QWEN | dict(base_shift=0.2, max_shift=1.4, base_image_seq_len=64, max_image_seq_len=1024)),
    ("klein", KLEIN | dict(num_train_timesteps=500, shift_terminal=None)),
    ("klein", KLEIN | dict(use_beta_sigmas=True)), ("qwen", QWEN | dict(use_beta_sigmas=True)),
    ("klein", KLEIN | dict(invert_sigmas=True)), ("klein", KLEIN | dict(stochastic_sampling=True)),
]
SHAPES = [(4096, 4), (16, 50), (8000, 9), (1024, 25), (256, 2)]  # tokens, steps


def load_scheduler(config: dict) -> FlowMatchEulerDiscreteScheduler:
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "scheduler_config.json").write_text(json.dumps(config))
        return FlowMatchEulerDiscreteScheduler.from_pretrained(folder)


def make_schedules() -> list[dict]:
    rows = []
    for family, config in CONFIGS:
        for tokens, steps in SHAPES:
            scheduler = load_scheduler(config)
            get = scheduler.config.get
            mu = compute_empirical_mu(tokens, steps) if family == "klein" else calculate_shift(
                tokens, get("base_image_seq_len", 256), get("max_image_seq_len", 4096), get("base_shift", 0.5),
                get("max_shift", 1.15))
            scheduler.set_timesteps(steps, sigmas=np.linspace(1.0, 1 / steps, steps), mu=mu)
            assert scheduler.sigmas.dtype == torch.float32 and scheduler.sigmas.isfinite().all()
            rows.append(dict(config=config, family=family, tokens=tokens, steps=steps,
                             sigmas=[float(f"{s:.9g}") for s in scheduler.sigmas.tolist()]))
    return rows


class Found(Exception):
    pass


def make_sizes() -> list[list[int]]:
    """The pipeline itself is run, up to where it makes its latents."""
    pipe, rows = flux2.load_model("B"), []

    def stop(height, width, **_):
        raise Found(width, height)

    pipe.prepare_latents = stop
    pipe.encode_prompt = lambda **_: (torch.zeros(1, 1, 1), None)
    for size in [(1210, 1000), (1024, 1024), (1025, 1024), (4000, 3000), (75, 70), (1000, 1210), (2000, 512),
                 (640, 480), (1999, 1333), (1040, 1040), (8000, 1001)]:
        try:
            pipe(image=Image.new("RGB", size), prompt="")
        except Found as found:
            rows.append([*size, *found.args])
    return rows


def make_strengths() -> list[list]:
    rows = []
    for steps in (1, 4, 7, 8, 20, 25, 28, 30, 50):
        scheduler = FlowMatchEulerDiscreteScheduler()
        scheduler.set_timesteps(sigmas=np.linspace(1.0, 1 / steps, steps))
        for strength in (0.01, 0.1, 0.28, 0.3, 0.55, 0.56, 0.57, 0.58, 0.6, 0.7, 0.9, 0.95, 1.0):
            pipe = types.SimpleNamespace(scheduler=scheduler)
            timesteps, n = QwenImageImg2ImgPipeline.get_timesteps(pipe, steps, strength, None)
            assert len(timesteps) == n
            rows.append([steps, strength, n])
    return rows


def make_views() -> list[list[int]]:
    rows = []
    for limits in ((3136, 12845056), (3136, 1003520), (3136, 40000), (200000, 1003520), (3136, 3136)):
        for width, height in ((384, 384), (1024, 1024), (1056, 992), (64, 2304), (32, 32), (320, 448), (1248, 832)):
            high, wide = smart_resize(height, width, 28, *limits)
            rows.append([width, height, *limits, wide, high])
    return rows


def picture(name, model, files, **options):
    return dict(name=name, model=model, files=files, **(dict(prompt="a red fox in the snow", width=48, height=32, steps=4,
                                                              guidance=1.0, negative=" ", seed=9, references=[]) | options))


SCHEDULER = "scheduler/scheduler_config.json"
PROCESSOR = dict(do_convert_rgb=True, do_normalize=True, do_rescale=True, do_resize=True, resample=3,
                 image_mean=[0.48145466, 0.4578275, 0.40821073], image_std=[0.26862954, 0.26130258, 0.27577711],
                 image_processor_type="Qwen2VLImageProcessor", rescale_factor=0.00392156862745098, merge_size=2,
                 patch_size=14, temporal_patch_size=2, size=dict(shortest_edge=3136, longest_edge=40000))
PICTURES = [
    picture("klein_static", "flux2/B", {SCHEDULER: KLEIN | STATIC}),
    picture("klein_linear", "flux2/B", {SCHEDULER: KLEIN | dict(time_shift_type="linear")}),
    picture("klein_absent", "flux2/B", {SCHEDULER: CLASS}),
    picture("klein_terminal", "flux2/B", {SCHEDULER: KLEIN | dict(shift_terminal=0.2)}),
    picture("klein_karras", "flux2/B", {SCHEDULER: KLEIN | dict(use_karras_sigmas=True)}),
    picture("klein_timesteps", "flux2/B", {SCHEDULER: KLEIN | dict(num_train_timesteps=500)}),
    picture("klein_beta", "flux2/B", {SCHEDULER: KLEIN | dict(use_beta_sigmas=True)}),
    picture("klein_inverted", "flux2/B", {SCHEDULER: KLEIN | dict(invert_sigmas=True)}),
    picture("klein_stochastic", "flux2/B", {SCHEDULER: KLEIN | dict(stochastic_sampling=True)}),
    picture("qwen_stochastic", "qwen/Q", {SCHEDULER: QWEN | dict(stochastic_sampling=True)}),
    picture("qwen_absent", "qwen/Q", {SCHEDULER: CLASS}),
    picture("qwen_line", "qwen/Q", {SCHEDULER: CLASS | dict(use_dynamic_shifting=True)}),
    picture("qwen_lightning", "qwen/Q", {SCHEDULER: LIGHTNING}, guidance=4.0, negative="dark"),
    picture("qwen_limits", "qwen/P", {"processor/processor_config.json": dict(image_processor=PROCESSOR)},
            references=["ref1.png"], steps=2),
]


@torch.no_grad()
def make_picture(c: dict) -> torch.Tensor:
    family, name = c["model"].split("/")
    module = dict(flux2=flux2, qwen=qwen)[family]
    pipe = module.load_model(name)
    if SCHEDULER in c["files"]:
        pipe.scheduler = load_scheduler(c["files"][SCHEDULER])
    for path, content in c["files"].items():
        if path.startswith("processor/"):
            with tempfile.TemporaryDirectory() as folder:
                (pathlib.Path(folder) / pathlib.Path(path).name).write_text(json.dumps(content))
                pipe.processor.image_processor = type(pipe.processor.image_processor).from_pretrained(folder)
    # A pipeline does not hand its generator to the scheduler; here noise continues that of the picture.
    g = torch.Generator("cpu").manual_seed(c["seed"])
    first = [True]

    def draw(shape, **_):
        if first[0]:
            torch.randn(shape, generator=g)
        first[0] = False
        return torch.randn(shape, generator=g)

    scheduling_flow_match_euler_discrete.randn_tensor = draw
    return module.run(pipe, c | dict(model=name))["image"]


def make() -> tuple[dict, dict]:
    table = dict(schedules=make_schedules(), sizes=make_sizes(), strengths=make_strengths(), views=make_views(),
                 pictures=PICTURES)
    pictures = {c["name"]: make_picture(c).half().contiguous() for c in PICTURES}
    for name, image in pictures.items():
        print(f"{name:20} {image.float().mean():.3f} +- {image.float().std():.3f}")
        assert image.float().std() > 0.05
    for a in pictures:  # each file must show in its picture
        for b in pictures:
            assert a == b or pictures[a].shape != pictures[b].shape or error(pictures[a], pictures[b]) > 1e-3, (a, b)
    return table, pictures


def write() -> None:
    table, pictures = make()
    lines = [f'"{key}": [\n' + ",\n".join(json.dumps(row) for row in rows) + "\n]" for key, rows in table.items()]
    (TESTS / "schedules.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    save_file(pictures, TESTS / "schedules.safetensors")


def verify() -> None:
    table, pictures = make()
    assert json.loads((TESTS / "schedules.json").read_text()) == json.loads(json.dumps(table))
    stored = load_file(TESTS / "schedules.safetensors")
    assert stored.keys() == pictures.keys()
    assert all(error(pictures[k], stored[k]) < 1e-3 for k in stored)


if __name__ == "__main__":
    qwen.pipeline_qwenimage_edit_plus.VAE_IMAGE_SIZE = qwen.AREA
    main(__doc__, write, verify)
