#!/usr/bin/env python3
"""Golden values for Qwen-Image: tiny random models in the real folder layout, run by diffusers in float32.

    python3 tools/oracle/qwen.py           writes tests/data/qwen (needs requirements.txt)
    python3 tools/oracle/qwen.py --check   runs every case again from what is stored

tests/data/qwen/README.md says what the files hold. Weights are made twice: Q paints from text alone, P edits. The other
folders are links to these with one file of their own: L has the schedule of the Lightning models, E is Edit of August
2025, Z is Edit-2511 (zero_cond_t).
"""

import json
import math
import os
import pathlib
import shutil

import torch
from diffusers import (AutoencoderKLQwenImage, FlowMatchEulerDiscreteScheduler, QwenImageEditPipeline,
                       QwenImageEditPlusPipeline, QwenImagePipeline, QwenImageTransformer2DModel)
from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit_plus
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import BatchFeature, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2TokenizerFast
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from common import (TESTS, UNICODE, check, edit_json, finish, main, make_pictures, make_tokenizer, randomise, ready,
                    save_tokenizer, store)

DATA = TESTS / "qwen"

# Qwen2.5's own, in the order of their ids.
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
           "<|image_pad|>", "<|video_pad|>"]

# ---------------------------------------------------------------------------------------------------------------------
# Models

SCHEDULER = dict(num_train_timesteps=1000, shift=1.0, use_dynamic_shifting=True, base_shift=0.5, max_shift=0.9,
                 base_image_seq_len=256, max_image_seq_len=8192, shift_terminal=0.02, time_shift_type="exponential")
LIGHTNING = dict(SCHEDULER, base_shift=math.log(3), max_shift=math.log(3), shift_terminal=None)

STATISTICS = dict(latents_mean=[-0.7571, 0.1075, 0.9653, -0.0715], latents_std=[2.8184, 1.4541, 0.8, 1.7708])
MODELS = {
    "Q": dict(
        seed=11, dtype=torch.bfloat16, shard="100KB", hub_names=True,
        text=dict(hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=2,
                  num_key_value_heads=1, mrope_section=[2, 3, 3]),
        vision=dict(depth=1, hidden_size=8, intermediate_size=12, num_heads=1, fullatt_block_indexes=[0]),
        transformer=dict(in_channels=16, out_channels=4, num_layers=2, attention_head_dim=16, num_attention_heads=2,
                         axes_dims_rope=(4, 6, 6)),
        vae=dict(base_dim=4, num_res_blocks=1, dim_mult=[1, 2, 4, 4])),
    "P": dict(
        seed=12, dtype=torch.bfloat16, shard="1GB", hub_names=False,
        text=dict(hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
                  num_key_value_heads=2, mrope_section=[1, 1, 2]),
        vision=dict(depth=3, hidden_size=16, intermediate_size=24, num_heads=2, fullatt_block_indexes=[1]),
        transformer=dict(in_channels=16, out_channels=4, num_layers=2, attention_head_dim=12, num_attention_heads=2,
                         axes_dims_rope=(4, 4, 4)),
        vae=dict(base_dim=4, num_res_blocks=2, dim_mult=[1, 2, 3, 2])),
}
# Lazuli's own key in model_index.json: P and Z look at smaller references than the published models, which have a
# megapixel. In diffusers this is a constant.
AREA = 256 * 256
LINKED = {"L": "Q", "E": "P", "Z": "P"}
PIPELINES = {"Q": QwenImagePipeline, "L": QwenImagePipeline, "P": QwenImageEditPlusPipeline,
             "E": QwenImageEditPipeline, "Z": QwenImageEditPlusPipeline}

# Larger than 1/sqrt(fan in), or the gates would hide what the blocks do behind their residual streams. Of a causal
# kernel one picture sees a third.
GAINS = {"embed_tokens": 5.0, "timestep_embedder": 2.0, "_mod.1": 1.5, "norm_out": 1.5, "to_out": 2.0,
         "to_add_out": 2.0, "net.2": 2.0, "decoder.conv_out": 0.9, "conv1": 1.7, "conv2": 1.7, "conv_in": 1.7,
         "conv_out": 1.7, "patch_embed": 1.0}


def make_text(spec: dict, tokenizer: Qwen2TokenizerFast) -> Qwen2_5_VLForConditionalGeneration:
    text, ids = dict(spec["text"]), {t: tokenizer.convert_tokens_to_ids(t) for t in SPECIAL}
    section = text.pop("mrope_section")
    config = Qwen2_5_VLConfig(
        text_config=dict(text, vocab_size=640, rms_norm_eps=1e-6, max_position_embeddings=128000, hidden_act="silu",
                         rope_parameters=dict(rope_type="default", rope_theta=1000000.0, mrope_section=section),
                         use_sliding_window=False, tie_word_embeddings=False, bos_token_id=ids["<|endoftext|>"],
                         eos_token_id=ids["<|im_end|>"]),
        vision_config=dict(spec["vision"], in_channels=3, patch_size=14, temporal_patch_size=2, spatial_merge_size=2,
                           window_size=112, out_hidden_size=text["hidden_size"], hidden_act="silu",
                           tokens_per_second=2),
        image_token_id=ids["<|image_pad|>"], video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"], vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=False)
    return Qwen2_5_VLForConditionalGeneration(config)


class Processor:
    """What Qwen2VLProcessor does for pictures. That class itself wants torchvision, for videos."""

    def __init__(self, image_processor: Qwen2VLImageProcessorPil, tokenizer: Qwen2TokenizerFast):
        self.image_processor, self.tokenizer = image_processor, tokenizer

    def __call__(self, text, images, padding, return_tensors) -> BatchFeature:
        seen = self.image_processor(images=images, return_tensors=return_tensors)
        [line], counts = text, [int(grid.prod()) // self.image_processor.merge_size**2 for grid in seen["image_grid_thw"]]
        pieces = line.split("<|image_pad|>")
        assert len(pieces) == len(counts) + 1
        line = pieces[0] + "".join("<|image_pad|>" * n + piece for n, piece in zip(counts, pieces[1:]))
        return BatchFeature(dict(**self.tokenizer([line], padding=padding, return_tensors=return_tensors), **seen))


def rename(folder: pathlib.Path, hub: bool) -> None:
    """Tensor names as on the hub (model.layers, visual), or as newer exports have them (model.language_model, ...)."""
    def name_of(name: str) -> str:
        short = name.replace("model.language_model.", "model.").replace("model.visual.", "visual.")
        if hub or short.startswith("lm_head"):
            return short
        return "model." + short if short.startswith("visual.") else short.replace("model.", "model.language_model.", 1)

    for file in folder.glob("*.safetensors"):
        save_file({name_of(k): v for k, v in load_file(file).items()}, file, metadata={"format": "pt"})
    index = folder / "model.safetensors.index.json"
    if index.exists():
        data = json.loads(index.read_text())
        data["weight_map"] = {name_of(k): v for k, v in data["weight_map"].items()}
        index.write_text(json.dumps(data, indent=2) + "\n")


def make_model(name: str, tokenizer: Qwen2TokenizerFast) -> None:
    spec, folder = MODELS[name], DATA / name
    generator = torch.Generator("cpu").manual_seed(spec["seed"])
    text = make_text(spec, tokenizer)
    transformer = QwenImageTransformer2DModel(**spec["transformer"], patch_size=2, guidance_embeds=False,
                                              joint_attention_dim=spec["text"]["hidden_size"])
    vae = AutoencoderKLQwenImage(**spec["vae"], z_dim=4, attn_scales=[],
                                 temperal_downsample=[False, True, True], dropout=0.0, **STATISTICS)
    for module in (text, transformer, vae):
        randomise(module, generator, GAINS)
        module.to(spec["dtype"]).eval()
    text.save_pretrained(folder / "text_encoder", max_shard_size=spec["shard"])
    rename(folder / "text_encoder", spec["hub_names"])
    transformer.save_pretrained(folder / "transformer", max_shard_size=spec["shard"])
    vae.save_pretrained(folder / "vae")
    scheduler = FlowMatchEulerDiscreteScheduler(**SCHEDULER)
    scheduler.save_pretrained(folder / "scheduler")
    save_tokenizer(tokenizer, folder / "tokenizer", with_merges=False)
    parts = dict(scheduler=scheduler, vae=vae, text_encoder=text, tokenizer=tokenizer, transformer=transformer)
    if PIPELINES[name] is not QwenImagePipeline:
        parts["processor"] = Processor(Qwen2VLImageProcessorPil(min_pixels=3136, max_pixels=12845056), tokenizer)
        parts["processor"].image_processor.save_pretrained(folder / "processor")
    PIPELINES[name](**parts).save_config(folder)
    changes = {} if name == "Q" else dict(vae_image_size=AREA)
    changes |= dict(tokenizer=["transformers", "Qwen2Tokenizer"])
    if "processor" in parts:
        changes["processor"] = ["transformers", "Qwen2VLProcessor"]
    edit_json(folder / "model_index.json", **changes)
    if spec["hub_names"]:  # transformers 4, as on the hub: the language model's settings at the top
        config = folder / "text_encoder" / "config.json"
        inner = json.loads(config.read_text())["text_config"]
        rope = inner.pop("rope_parameters")
        edit_json(config, text_config=None, **{k: v for k, v in inner.items() if k not in ("model_type",)},
                  rope_theta=rope["rope_theta"], rope_scaling=dict(type="default", mrope_section=rope["mrope_section"]))


def link_model(name: str) -> None:
    folder, other = DATA / name, LINKED[name]
    folder.mkdir(parents=True)
    for part in sorted(p.name for p in (DATA / other).iterdir()):
        if part != "model_index.json":
            os.symlink(f"../{other}/{part}", folder / part)
    shutil.copy(DATA / other / "model_index.json", folder)
    edit_json(folder / "model_index.json", _class_name=PIPELINES[name].__name__)
    if name == "E":
        edit_json(folder / "model_index.json", vae_image_size=None)
    if name == "L":
        (folder / "scheduler").unlink()
        FlowMatchEulerDiscreteScheduler(**LIGHTNING).save_pretrained(folder / "scheduler")
    if name == "Z":
        (folder / "transformer").unlink()
        (folder / "transformer").mkdir()
        for file in (DATA / other / "transformer").iterdir():
            if file.name != "config.json":
                os.symlink(f"../../{other}/transformer/{file.name}", folder / "transformer" / file.name)
        shutil.copy(DATA / other / "transformer" / "config.json", folder / "transformer")
        edit_json(folder / "transformer" / "config.json", zero_cond_t=True)


def load_text(name: str, dtype: torch.dtype) -> Qwen2_5_VLForConditionalGeneration:
    folder, spec = DATA / name, MODELS[LINKED.get(name, name)]
    text = make_text(spec, Qwen2TokenizerFast.from_pretrained(folder / "tokenizer"))
    state = {}
    for file in sorted((folder / "text_encoder").glob("*.safetensors")):
        state |= load_file(file)
    state = {k.replace("model.language_model.", "model.").replace("model.visual.", "visual."): v
             for k, v in state.items()}
    inner = {}
    for k, v in state.items():
        inner["model." + k if k.startswith("visual.") else k.replace("model.", "model.language_model.", 1)] = v
    text.load_state_dict(inner)
    return text.to(dtype).eval()


def load_model(name: str, dtype: torch.dtype = torch.float32):
    """Part by part: what the pipelines would look up by name (the processor) differs between versions."""
    folder = DATA / name
    tokenizer, text = Qwen2TokenizerFast.from_pretrained(folder / "tokenizer"), load_text(name, dtype)
    parts = dict(
        scheduler=FlowMatchEulerDiscreteScheduler.from_pretrained(folder / "scheduler"),
        vae=AutoencoderKLQwenImage.from_pretrained(folder / "vae", torch_dtype=dtype), text_encoder=text,
        tokenizer=tokenizer,
        transformer=QwenImageTransformer2DModel.from_pretrained(folder / "transformer", torch_dtype=dtype))
    if PIPELINES[name] is not QwenImagePipeline:
        parts["processor"] = Processor(Qwen2VLImageProcessorPil.from_pretrained(folder / "processor"), tokenizer)
        # The models were released with three positions for each token. The pipelines do not ask for them any more
        # (diffusers issue 14194), so ask here.
        image_token, plain = text.config.image_token_id, text.forward
        text.forward = lambda *args, input_ids, **kw: plain(
            *args, input_ids=input_ids, mm_token_type_ids=(input_ids == image_token).int(), **kw)
    return ready(PIPELINES[name](**parts), dtype)


# ---------------------------------------------------------------------------------------------------------------------
# Cases

LONG = " ".join(f"On hill {i} a lighthouse of colour {i * 7} looks over the sea;" for i in range(40))
# Pillow 13 resizes some shapes in another order than those before it (src/io/resize.c); these are none of them.
PICTURES = {"ref1.png": (75, 70), "ref2.png": (96, 80), "ref3.png": (67, 85)}


def case(name, model, prompt, width=64, height=48, steps=3, guidance=1.0, negative=" ", seed=0, references=()):
    return dict(name=name, model=model, prompt=prompt, negative=negative, width=width, height=height, steps=steps,
                guidance=guidance, seed=seed, references=list(references))


CASES = [
    case("q_plain", "Q", "A cat holding a sign that says hello world", seed=42, steps=4),
    case("q_guided", "Q", "a red fox in the snow", guidance=4.0, seed=7, negative="blurry, dark, a long line of text"),
    case("q_odd", "Q", "An old lighthouse on a cliff", width=80, height=48, guidance=2.5, seed=3),
    case("q_unicode", "Q", UNICODE, width=48, height=112, seed=2**32 + 5),
    case("q_empty", "Q", "", guidance=4.0, negative="", seed=1, width=48, height=48),
    case("q_long", "Q", LONG, seed=2, width=48, height=48, steps=2),
    case("l_four", "L", "a small robot waters the flowers", seed=4, steps=4),
    case("l_eight", "L", "a small robot waters the flowers", seed=4, steps=8, width=48, height=48),
    case("p_one", "P", "make the sky purple", seed=5, steps=2, guidance=4.0, references=["ref1.png"]),
    case("p_two", "P", "\nput the hat on the dog", seed=6, steps=2, references=["ref2.png", "ref3.png"], width=48),
    case("z_one", "Z", "make the sky purple", seed=5, steps=2, guidance=3.0, references=["ref3.png"], width=80),
    case("e_one", "E", "make it blue", seed=8, steps=2, references=["ref2.png"]),
]


def unpack(tokens: torch.Tensor, c: dict) -> torch.Tensor:
    """[1,L,4c] -> [1,c,2h,2w]"""
    return QwenImagePipeline._unpack_latents(tokens, c["height"], c["width"], 8)[:, :, 0]


@torch.no_grad()
def run(pipe, c: dict, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    inputs, steps = [], []

    def on_step(_, index, timestep, tensors):
        steps.append(unpack(tensors["latents"], c))
        return {}

    hook = pipe.transformer.register_forward_pre_hook(
        lambda _, args, kw: inputs.append((kw["hidden_states"], kw["encoder_hidden_states"])), with_kwargs=True)
    shape = (1, 1, pipe.vae.config.z_dim, c["height"] // 8, c["width"] // 8)
    noise = torch.randn(shape, generator=torch.Generator("cpu").manual_seed(c["seed"]))
    packed = pipe._pack_latents(noise.to(dtype), 1, *shape[2:])
    # float32 lets the pipeline draw the noise, which shows that it is the noise above.
    source = dict(generator=torch.Generator("cpu").manual_seed(c["seed"])) if dtype == torch.float32 else dict(
        latents=packed)
    if c["references"]:
        pictures = [Image.open(DATA / p) for p in c["references"]]
        source["image"] = pictures if PIPELINES[c["model"]] is QwenImageEditPlusPipeline else pictures[0]
    image = pipe(prompt=c["prompt"], negative_prompt=c["negative"], true_cfg_scale=c["guidance"], width=c["width"],
                 height=c["height"], num_inference_steps=c["steps"], output_type="pt", callback_on_step_end=on_step,
                 **source).images
    hook.remove()
    tokens = packed.shape[1]
    assert torch.equal(inputs[0][0][:, :tokens], packed)
    assert image.shape == (1, 3, c["height"], c["width"])
    seen = dict(noise=noise[:, 0], text=inputs[0][1][:, -100:], sigmas=pipe.scheduler.sigmas, latents=steps[-1], image=image)
    return {k: v.detach().clone().contiguous() for k, v in seen.items()}


def write() -> None:
    for name in [*PIPELINES, "cases"]:
        shutil.rmtree(DATA / name, ignore_errors=True)
    (DATA / "cases").mkdir(parents=True)
    tokenizer = make_tokenizer(SPECIAL, ())
    for name in MODELS:
        make_model(name, tokenizer)
    for name in LINKED:
        link_model(name)
    make_pictures(DATA, PICTURES)
    pipes = {name: load_model(name) for name in PIPELINES}
    precise = {name: load_model(name, torch.float64) for name in PIPELINES}
    for c in CASES:
        golden = run(pipes[c["model"]], c)
        exact = run(precise[c["model"]], c, torch.float64)
        store(DATA, c, golden, exact, f"text {tuple(golden['text'].shape)} {golden['text'].std():.2f}")
    finish(DATA, CASES, 2e6)


if __name__ == "__main__":
    pipeline_qwenimage_edit_plus.VAE_IMAGE_SIZE = AREA
    main(__doc__, write, lambda: check(DATA, CASES, load_model, run))
