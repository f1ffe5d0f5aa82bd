#!/usr/bin/env python3
"""Golden values for Qwen-Image-Layered: a tiny random model in the real folder layout, run by diffusers in float32.

    python3 tools/oracle/layered.py           writes tests/data/layered (needs requirements.txt, and tests/data/qwen)
    python3 tools/oracle/layered.py --check   runs every case again from what is stored

tests/data/layered/README.md says what the files hold. The text encoder and the tokenizer are links to those of
tests/data/qwen/Q.
"""

import os
import shutil

import torch
from diffusers import (AutoencoderKLQwenImage, FlowMatchEulerDiscreteScheduler, QwenImageLayeredPipeline,
                       QwenImageTransformer2DModel)
from diffusers.pipelines.qwenimage import pipeline_qwenimage_layered
from PIL import Image
from transformers import Qwen2TokenizerFast

import qwen
from common import TESTS, UNICODE, check, edit_json, finish, main, make_picture, randomise, ready, store

DATA = TESTS / "layered"
SCHEDULER = dict(num_train_timesteps=1000, shift=1.0, use_dynamic_shifting=True, base_shift=0.5, max_shift=0.9,
                 base_image_seq_len=256, max_image_seq_len=8192, shift_terminal=False, time_shift_type="linear")
# Lazuli's own key in model_index.json; in diffusers the area is 640 * 640 or 1024 * 1024.
AREA = 64 * 48
# Not four channels: the pipeline takes a picture of as many channels for latents.
STATISTICS = dict(latents_mean=[-0.7571, 0.1075, 0.9653, -0.0715, 0.3, -0.2],
                  latents_std=[2.8184, 1.4541, 0.8, 1.7708, 1.2, 2.0])
GAINS = dict(qwen.GAINS, addition_t_embedding=3.0)
# Pillow 13 resizes some shapes in another order than those before it (src/io/resize.c); these are none of them. Both
# have transparency.
PICTURES = {"wide.png": (75, 70), "tall.png": (30, 70)}


def make_model(name: str) -> None:
    """N: guidance keeps the length of the velocity (cfg_normalize), otherwise links to Y."""
    folder = DATA / name
    folder.mkdir(parents=True)
    for part in ("text_encoder", "tokenizer"):
        os.symlink(f"../../qwen/Q/{part}", folder / part)
    if name == "N":
        for part in ("transformer", "vae", "scheduler"):
            os.symlink(f"../Y/{part}", folder / part)
        shutil.copy(DATA / "Y" / "model_index.json", folder)
        edit_json(folder / "model_index.json", cfg_normalize=True)
        return
    generator = torch.Generator("cpu").manual_seed(31)
    transformer = QwenImageTransformer2DModel(in_channels=24, out_channels=6, num_layers=2, attention_head_dim=16,
                                              num_attention_heads=1, axes_dims_rope=(4, 6, 6), patch_size=2,
                                              guidance_embeds=False, joint_attention_dim=32, use_additional_t_cond=True,
                                              use_layer3d_rope=True)
    vae = AutoencoderKLQwenImage(base_dim=2, num_res_blocks=1, dim_mult=[1, 2, 2, 2], z_dim=6, attn_scales=[],
                                 temperal_downsample=[False, True, True], dropout=0.0, input_channels=4, **STATISTICS)
    for module in (transformer, vae):
        randomise(module, generator, GAINS)
        module.to(torch.bfloat16).eval()
    transformer.save_pretrained(folder / "transformer")
    vae.save_pretrained(folder / "vae")
    scheduler = FlowMatchEulerDiscreteScheduler(**SCHEDULER)
    scheduler.save_pretrained(folder / "scheduler")
    index = dict(_class_name="QwenImageLayeredPipeline", _diffusers_version="0.42.1",
                 processor=["transformers", "Qwen2VLProcessor"],
                 scheduler=["diffusers", "FlowMatchEulerDiscreteScheduler"],
                 text_encoder=["transformers", "Qwen2_5_VLForConditionalGeneration"],
                 tokenizer=["transformers", "Qwen2Tokenizer"],
                 transformer=["diffusers", "QwenImageTransformer2DModel"], vae=["diffusers", "AutoencoderKLQwenImage"],
                 vae_image_size=AREA)
    (folder / "model_index.json").write_text("{}")
    edit_json(folder / "model_index.json", **index)


def load_model(name: str, dtype: torch.dtype = torch.float32):
    folder = DATA / name
    text = qwen.load_text("Q", dtype)
    tokenizer = Qwen2TokenizerFast.from_pretrained(folder / "tokenizer")
    parts = dict(
        scheduler=FlowMatchEulerDiscreteScheduler.from_pretrained(folder / "scheduler"),
        vae=AutoencoderKLQwenImage.from_pretrained(folder / "vae", torch_dtype=dtype), text_encoder=text,
        tokenizer=tokenizer, processor=None,
        transformer=QwenImageTransformer2DModel.from_pretrained(folder / "transformer", torch_dtype=dtype))
    return ready(QwenImageLayeredPipeline(**parts), dtype)


# width and height: 0, they follow from the picture.
def case(name, model, prompt, reference, layers, steps=2, guidance=4.0, negative=" ", seed=0):
    return dict(name=name, model=model, prompt=prompt, negative=negative, width=0, height=0, steps=steps,
                guidance=guidance, seed=seed, references=[reference], n_layers=layers)


CASES = [
    case("y_wide", "Y", "A cat holding a sign that says hello world", "wide.png", 1, seed=42, guidance=1.0, steps=3),
    case("y_tall", "Y", "a red fox in the snow", "tall.png", 2, seed=7, negative="blurry, dark"),
    case("n_tall", "N", UNICODE, "tall.png", 1, seed=2**32 + 5),
]


@torch.no_grad()
def run(pipe, c: dict, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    inputs, steps = [], []
    frames, channels = c["n_layers"] + 1, pipe.vae.config.z_dim
    picture = Image.open(DATA / c["references"][0])
    width, height = DIMENSIONS(AREA, picture.width / picture.height)

    def unpack(tokens: torch.Tensor) -> torch.Tensor:
        return pipe._unpack_latents(tokens, height, width, c["n_layers"], 8)[0].transpose(0, 1)  # [frames,c,h,w]

    def on_step(_, index, timestep, tensors):
        steps.append(unpack(tensors["latents"]))
        return {}

    hook = pipe.transformer.register_forward_pre_hook(
        lambda _, args, kw: inputs.append((kw["hidden_states"], kw["encoder_hidden_states"])), with_kwargs=True)
    shape = (1, frames, channels, height // 8, width // 8)
    noise = torch.randn(shape, generator=torch.Generator("cpu").manual_seed(c["seed"]))
    packed = pipe._pack_latents(noise.to(dtype), 1, channels, height // 8, width // 8, frames)
    # float32 lets the pipeline draw the noise, which shows that it is the noise above.
    source = dict(generator=torch.Generator("cpu").manual_seed(c["seed"])) if dtype == torch.float32 else dict(
        latents=packed)
    [images] = pipe(image=picture, prompt=c["prompt"], negative_prompt=c["negative"], true_cfg_scale=c["guidance"],
                    layers=c["n_layers"], num_inference_steps=c["steps"], output_type="pt", callback_on_step_end=on_step,
                    cfg_normalize=c["model"] == "N", **source).images
    hook.remove()
    assert torch.equal(inputs[0][0][:, :packed.shape[1]], packed)
    assert images.shape[0] >= c["n_layers"]
    image = images[:c["n_layers"]]
    assert image.shape[1:] == (4, height, width) and image[:, 3].std() > 0.05
    # Half precision is enough for 60 dB, and takes half the space.
    image = image if dtype == torch.float64 else image.half()
    seen = dict(noise=noise[0], text=inputs[0][1][:, -100:], sigmas=pipe.scheduler.sigmas, latents=steps[-1], image=image)
    return {k: v.detach().clone().contiguous() for k, v in seen.items()}


def write() -> None:
    for name in ("Y", "N", "cases"):
        shutil.rmtree(DATA / name, ignore_errors=True)
    (DATA / "cases").mkdir(parents=True)
    for name in ("Y", "N"):
        make_model(name)
    for i, (name, size) in enumerate(PICTURES.items()):
        picture = make_picture(*size, i + 1)
        picture.putalpha(make_picture(*size, i + 5).getchannel("G"))
        picture.save(DATA / name)
    pipes = {name: load_model(name) for name in "YN"}
    precise = {name: load_model(name, torch.float64) for name in "YN"}
    for c in CASES:
        golden = run(pipes[c["model"]], c)
        exact = run(precise[c["model"]], c, torch.float64)
        store(DATA, c, golden, exact, f"text {tuple(golden['text'].shape)} {golden['text'].std():.2f}")
    finish(DATA, CASES, 3e5)


DIMENSIONS = pipeline_qwenimage_layered.calculate_dimensions

if __name__ == "__main__":
    pipeline_qwenimage_layered.calculate_dimensions = lambda area, ratio: DIMENSIONS(AREA, ratio)
    main(__doc__, write, lambda: check(DATA, CASES, load_model, run))
