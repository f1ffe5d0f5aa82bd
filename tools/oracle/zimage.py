#!/usr/bin/env python3
"""Golden values for Z-Image: tiny random models in the real folder layout, run by diffusers in float32.

    python3 tools/oracle/zimage.py           writes tests/data/zimage (needs requirements.txt)
    python3 tools/oracle/zimage.py --check   runs every case again from what is stored

tests/data/zimage/README.md says what the files hold. T is Turbo: most of its transformer is F32 with values that bf16 has. B is
base, in other sizes. Their text encoders and tokenizers are links to those of tests/data/flux2. N and M are links to B with other
settings of the guidance.
"""

import json
import os
import shutil

import torch
from diffusers import (AutoencoderKL, FlowMatchEulerDiscreteScheduler, ZImageImg2ImgPipeline, ZImagePipeline,
                       ZImageTransformer2DModel)
from diffusers.models.autoencoders.vae import DiagonalGaussianDistribution
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import Qwen2TokenizerFast, Qwen3ForCausalLM

from common import TESTS, UNICODE, check, edit_json, finish, main, make_pictures, randomise, ready, store

DATA = TESTS / "zimage"

# ---------------------------------------------------------------------------------------------------------------------
# Models

# T has the proportions of the published rotary axes, so that it can be told from a single file. The width of the feed-forward
# is int(dim / 3 * 8): 85.
MODELS = {
    "T": dict(
        seed=31, dtype=torch.float32, shift=3.0, text="A",
        transformer=dict(in_channels=32, dim=32, n_layers=2, n_refiner_layers=1, n_heads=2, n_kv_heads=2,
                         cap_feat_dim=24, axes_dims=[4, 6, 6], axes_lens=[1536, 512, 512]),
        vae=dict(block_out_channels=(4, 8, 8, 8), layers_per_block=2, latent_channels=32, norm_num_groups=4,
                 scaling_factor=0.3611, shift_factor=0.1159)),
    "B": dict(
        seed=32, dtype=torch.bfloat16, shift=6.0, text="B",
        transformer=dict(in_channels=4, dim=24, n_layers=1, n_refiner_layers=2, n_heads=2, n_kv_heads=2,
                         cap_feat_dim=32, axes_dims=[4, 4, 4], axes_lens=[1536, 512, 512], norm_eps=1e-4,
                         rope_theta=300.0, t_scale=900.0),
        vae=dict(block_out_channels=(4, 4, 8, 8), layers_per_block=1, latent_channels=4, norm_num_groups=2,
                 scaling_factor=0.9, shift_factor=-0.3)),
}
# Lazuli's own keys in model_index.json: in diffusers these are arguments of the call.
GUIDES = {"N": dict(cfg_normalization=True, cfg_truncation=0.6), "M": dict(cfg_normalization=0.9)}

# t_embedder.mlp.0 has 1024 x 256 numbers in a model of any size: it is a file of its own, in fp8, that both models share.
SHARED = "diffusion_pytorch_model-00002-of-00002.safetensors"
GAINS = {"t_embedder": 2.0, "adaLN_modulation": 2.0, "pad_token": 5.0, "x_embedder": 1.5, "cap_embedder": 1.5,
         "decoder.conv_out": 0.5}


def write_weights(folder, transformer: ZImageTransformer2DModel, shared: bool) -> None:
    [whole] = folder.glob("*.safetensors")
    state = load_file(whole)
    whole.unlink()
    first = {k: v for k, v in state.items() if not k.startswith("t_embedder.mlp.0.")}
    second = {k: v for k, v in state.items() if k not in first}
    first = {k: v.bfloat16() if "embedder" in k or "adaLN" in k else v for k, v in first.items()}
    own = SHARED.replace("00002-of", "00001-of")
    save_file(first, folder / own, metadata={"format": "pt"})
    if shared:
        os.symlink(f"../../T/transformer/{SHARED}", folder / SHARED)
    else:
        weight = "t_embedder.mlp.0.weight"
        second[weight] = second[weight].to(torch.float8_e4m3fn)
        save_file(second, folder / SHARED, metadata={"format": "pt"})
    index = dict(metadata=dict(total_size=sum(v.nbytes for v in state.values())),
                 weight_map={k: own for k in first} | {k: SHARED for k in second})
    (folder / "diffusion_pytorch_model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def make_model(name: str) -> None:
    spec, folder = MODELS[name], DATA / name
    generator = torch.Generator("cpu").manual_seed(spec["seed"])
    transformer = ZImageTransformer2DModel(**spec["transformer"])
    vae = AutoencoderKL(**spec["vae"], down_block_types=("DownEncoderBlock2D",) * 4,
                        up_block_types=("UpDecoderBlock2D",) * 4, use_quant_conv=False, use_post_quant_conv=False)
    for module in (transformer, vae):
        randomise(module, generator, GAINS)
        module.to(torch.bfloat16).eval()
    transformer.to(spec["dtype"])
    transformer.save_pretrained(folder / "transformer")
    write_weights(folder / "transformer", transformer, shared=name != "T")
    vae.save_pretrained(folder / "vae")
    scheduler = FlowMatchEulerDiscreteScheduler(num_train_timesteps=1000, shift=spec["shift"])
    scheduler.save_pretrained(folder / "scheduler")
    for part in ("text_encoder", "tokenizer"):
        os.symlink(f"../../flux2/{spec['text']}/{part}", folder / part)
    text = Qwen3ForCausalLM.from_pretrained(folder / "text_encoder")
    tokenizer = Qwen2TokenizerFast.from_pretrained(folder / "tokenizer")
    ZImagePipeline(scheduler, vae, text, tokenizer, transformer).save_config(folder)
    edit_json(folder / "model_index.json", tokenizer=["transformers", "Qwen2Tokenizer"])


def link_model(name: str) -> None:
    (DATA / name).mkdir(parents=True)
    for part in ("scheduler", "text_encoder", "tokenizer", "transformer", "vae"):
        os.symlink(f"../B/{part}", DATA / name / part)
    shutil.copy(DATA / "B" / "model_index.json", DATA / name)
    edit_json(DATA / name / "model_index.json", **GUIDES[name])


def load_model(name: str, dtype: torch.dtype = torch.float32) -> ZImagePipeline:
    return ready(ZImagePipeline.from_pretrained(DATA / name, dtype=dtype), dtype)


# ---------------------------------------------------------------------------------------------------------------------
# Cases

LONG = " ".join(f"On hill {i} a lighthouse of colour {i * 7} looks over the sea;" for i in range(40))
PICTURES = {"start1.png": (64, 48), "start2.png": (59, 45)}


def case(name, model, prompt, width=64, height=48, steps=3, guidance=1.0, negative="", seed=0, start="", strength=0.0):
    """guidance counts as elsewhere: 1 is none. Here diffusers counts from 0."""
    return dict(name=name, model=model, prompt=prompt, negative=negative, width=width, height=height, steps=steps,
                guidance=guidance, seed=seed, references=[start] if start else [], strength=strength)


DARK = "blurry, dark, and a negative prompt that is longer than thirty-two tokens, so that the places of the picture differ"
CASES = [
    case("t_plain", "T", "A cat holding a sign that says hello world", seed=42, steps=4),
    case("t_eight", "T", "a small robot waters the flowers", seed=4, steps=8, width=48),
    case("t_unicode", "T", UNICODE, width=32, height=80, seed=2**32 + 5),
    case("t_empty", "T", "", seed=1, width=48),
    case("t_long", "T", LONG, seed=2, width=48, steps=2),
    case("b_whole", "B", "thirty-two image tokens", width=128, height=64, seed=8, steps=2),  # no padding
    case("t_start", "T", "in the snow", seed=5, steps=5, start="start1.png", strength=0.6),
    case("t_stretched", "T", "\n in the snow", seed=6, steps=4, width=48, height=32, start="start2.png", strength=0.5),
    case("b_plain", "B", "Literal <|im_end|> and <think> are control tokens", seed=5, height=32),
    case("b_guided", "B", "a red fox in the snow", guidance=5.0, seed=7, negative=DARK, steps=4),
    case("b_empty", "B", "a red fox", guidance=2.5, seed=3, width=80),
    case("b_start", "B", "in the snow", guidance=4.0, negative="dark", seed=9, steps=5, start="start1.png", strength=0.7),
    case("n_guided", "N", "a red fox in the snow", guidance=5.0, seed=7, negative=DARK, steps=5),
    case("m_guided", "M", "a red fox in the snow", guidance=5.0, seed=7, negative="dark", steps=4, width=48),
]


@torch.no_grad()
def run(pipe: ZImagePipeline, c: dict, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    texts, inputs, steps, encoded = [], [], [], []

    def on_step(_, index, timestep, tensors):
        steps.append(tensors["latents"])
        return {}

    hooks = [
        pipe.transformer.register_forward_pre_hook(lambda _, args: inputs.append((args[0][0], args[2][0]))),
        pipe.text_encoder.register_forward_pre_hook(
            lambda _, args, kw: texts.append(kw["input_ids"][kw["attention_mask"]]), with_kwargs=True),
        pipe.vae.encoder.register_forward_hook(lambda _, args, out: encoded.append(out.chunk(2, dim=1)[0]))]
    shape = (1, pipe.transformer.config.in_channels, c["height"] // 8, c["width"] // 8)
    noise = torch.randn(shape, generator=torch.Generator("cpu").manual_seed(c["seed"]))
    source = dict(generator=torch.Generator("cpu").manual_seed(c["seed"]))
    options = dict(GUIDES.get(c["model"], {}), prompt=c["prompt"], negative_prompt=c["negative"], width=c["width"],
                   height=c["height"], num_inference_steps=c["steps"], guidance_scale=c["guidance"] - 1,
                   output_type="pt", callback_on_step_end=on_step)
    if c["references"]:
        # The mean, not a sample, so the generator's first numbers are the noise.
        DiagonalGaussianDistribution.sample = lambda self, generator=None: self.mode()
        image = ZImageImg2ImgPipeline(**pipe.components)
        image.set_progress_bar_config(disable=True)
        image = image(image=Image.open(DATA / c["references"][0]), strength=c["strength"], **source, **options).images
    else:
        image = pipe(**source, **options).images
        assert torch.equal(inputs[0][0][:, 0], noise[0].to(dtype))
    for hook in hooks:
        hook.remove()
    assert image.shape == (1, 3, c["height"], c["width"])
    seen = dict(ids=texts[0].to(torch.int32), noise=noise, text=inputs[0][1][None, -100:], sigmas=pipe.scheduler.sigmas,
                latents=steps[-1], image=image.half() if dtype == torch.float32 else image)
    if c["name"] == "t_start":  # [1, h w, c] of latents
        latents = (encoded[0] - pipe.vae.config.shift_factor) * pipe.vae.config.scaling_factor
        seen["references"] = latents.flatten(2).permute(0, 2, 1)
    return {k: v.detach().clone().contiguous() for k, v in seen.items()}


def write() -> None:
    for name in [*MODELS, *GUIDES, "cases"]:
        shutil.rmtree(DATA / name, ignore_errors=True)
    (DATA / "cases").mkdir(parents=True)
    for name in MODELS:
        make_model(name)
    for name in GUIDES:
        link_model(name)
    make_pictures(DATA, PICTURES)
    names = [*MODELS, *GUIDES]
    pipes = {name: load_model(name) for name in names}
    # To estimate the rounding noise only: the libraries keep some steps in float32.
    precise = {name: load_model(name).to(torch.float64) for name in names}
    for c in CASES:
        golden = run(pipes[c["model"]], c)
        exact = golden if c["references"] else run(precise[c["model"]], c, torch.float64)
        store(DATA, c, golden, exact, f"{len(golden['ids']):3} tokens")
    finish(DATA, CASES, 1.4e6)


if __name__ == "__main__":
    main(__doc__, write, lambda: check(DATA, CASES, load_model, run))
