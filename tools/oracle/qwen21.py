#!/usr/bin/env python3
"""Golden values for Qwen-Image 2.1: a tiny random model in the real folder layout, run by diffusers in float32.

    python3 tools/oracle/qwen21.py           writes tests/data/qwen21 (needs requirements.txt)
    python3 tools/oracle/qwen21.py --check   runs every case again from what is stored

tests/data/qwen21/README.md says what the files hold. B is the base model; T, the Turbo, is links to it with a schedule
and sigmas of its own.
"""

import os
import shutil

import torch
from diffusers import (AutoencoderKLQwenImage21, FlowMatchEulerDiscreteScheduler, QwenImage21Pipeline,
                       QwenImage21Transformer2DModel)
from PIL import Image
from safetensors.torch import save_file
from transformers import Qwen2VLImageProcessor, Qwen3VLConfig, Qwen3VLForConditionalGeneration, Qwen3VLProcessor
from transformers import Qwen3VLVideoProcessor

from common import (TESTS, UNICODE, Seen, check, edit_json, finish, main, make_picture, make_pictures, make_tokenizer,
                    randomise, ready, store)

DATA = TESTS / "qwen21"

# Qwen3's own, in the order of their ids.
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
           "<|image_pad|>", "<|video_pad|>"]
CHAT_TEMPLATE = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- for item in message.content %}{{- item.text }}{%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}"""

SCHEDULER = dict(num_train_timesteps=1000, shift=1.0, use_dynamic_shifting=True, base_shift=0.5, max_shift=0.9,
                 base_image_seq_len=256, max_image_seq_len=8192, shift_terminal=0.02, time_shift_type="exponential")
TURBO_SIGMAS = [1.0, 0.978453, 0.95418, 0.926626, 0.89508, 0.845148, 0.704534, 0.414568]

# Lazuli reads the side of a reference from model_index.json; in diffusers it is an argument. The published models have
# 1024.
RESOLUTION = 96

# Larger than 1/sqrt(fan in), or the gates would hide what the blocks do behind their residual streams.
GAINS = {"embed_tokens": 5.0, "timestep_embedder": 1.2, "modulation.1": 1.5, "norm_out": 1.5, "to_out": 2.0,
         "img_mlp.out": 2.0, "decoder.conv_out": 0.9, "pos_embed": 3.0}


def make_text(tokenizer) -> Qwen3VLForConditionalGeneration:
    ids = {t: tokenizer.convert_tokens_to_ids(t) for t in SPECIAL}
    config = Qwen3VLConfig(
        text_config=dict(hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
                         num_key_value_heads=2, head_dim=16, vocab_size=640, rms_norm_eps=1e-6, hidden_act="silu",
                         max_position_embeddings=262144,
                         rope_parameters=dict(rope_type="default", rope_theta=5000000.0, mrope_section=[4, 2, 2],
                                              mrope_interleaved=True)),
        vision_config=dict(depth=3, hidden_size=16, intermediate_size=24, num_heads=2, patch_size=16,
                           temporal_patch_size=2, spatial_merge_size=2, out_hidden_size=32, num_position_embeddings=25,
                           deepstack_visual_indexes=[0, 1], hidden_act="gelu_pytorch_tanh"),
        image_token_id=ids["<|image_pad|>"], video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"], vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=False)
    return Qwen3VLForConditionalGeneration(config)


def make_model() -> None:
    folder = DATA / "B"
    generator = torch.Generator("cpu").manual_seed(21)
    tokenizer = make_tokenizer(SPECIAL, ())
    tokenizer.chat_template = None
    text = make_text(tokenizer)
    transformer = QwenImage21Transformer2DModel(in_channels=4, out_channels=4, num_layers=3, attention_head_dim=16,
                                                num_attention_heads=2, context_in_dim=32, axes_dims_rope=(4, 6, 6))
    vae = AutoencoderKLQwenImage21(base_dim=2, decoder_base_dim=3, z_dim=4, dim_mult=[1, 2, 4, 8, 8], num_res_blocks=1,
                                   latents_mean=[0.5126, -0.7855, 1.8873, -0.0631], latents_std=[2.2, 1.1, 0.8, 1.7])
    for module in (text, transformer, vae):
        randomise(module, generator, GAINS)
        module.to(torch.bfloat16).eval()
    text.save_pretrained(folder / "text_encoder", max_shard_size="200KB")
    transformer.save_pretrained(folder / "transformer")
    vae.save_pretrained(folder / "vae")
    scheduler = FlowMatchEulerDiscreteScheduler(**SCHEDULER)
    scheduler.save_pretrained(folder / "scheduler")
    images = Qwen2VLImageProcessor(patch_size=16, image_mean=[0.5] * 3, image_std=[0.5] * 3,
                                   size=dict(shortest_edge=1024, longest_edge=16777216))
    processor = Qwen3VLProcessor(images, tokenizer, Qwen3VLVideoProcessor(), chat_template=CHAT_TEMPLATE)
    processor.save_pretrained(folder / "processor")
    QwenImage21Pipeline(scheduler=scheduler, vae=vae, text_encoder=text, processor=processor,
                        transformer=transformer).save_config(folder)
    edit_json(folder / "model_index.json", output_resolution=RESOLUTION)


def link_turbo() -> None:
    folder = DATA / "T"
    folder.mkdir(parents=True)
    for part in ("processor", "text_encoder", "transformer", "vae"):
        os.symlink(f"../B/{part}", folder / part)
    shutil.copy(DATA / "B" / "model_index.json", folder)
    edit_json(folder / "model_index.json", sample_sigmas=TURBO_SIGMAS)
    FlowMatchEulerDiscreteScheduler(num_train_timesteps=1000, shift=1.0).save_pretrained(folder / "scheduler")


def load_model(name: str, dtype: torch.dtype = torch.float32):
    folder = DATA / name
    parts = dict(
        scheduler=FlowMatchEulerDiscreteScheduler.from_pretrained(folder / "scheduler"),
        vae=AutoencoderKLQwenImage21.from_pretrained(folder / "vae", torch_dtype=dtype),
        text_encoder=Qwen3VLForConditionalGeneration.from_pretrained(folder / "text_encoder", dtype=dtype).eval(),
        processor=Qwen3VLProcessor.from_pretrained(folder / "processor"),
        transformer=QwenImage21Transformer2DModel.from_pretrained(folder / "transformer", torch_dtype=dtype))
    return ready(QwenImage21Pipeline(**parts, sample_sigmas=TURBO_SIGMAS if name == "T" else None), dtype)


# ---------------------------------------------------------------------------------------------------------------------
# Cases

LONG = " ".join(f"On hill {i} a lighthouse of colour {i * 7} looks over the sea;" for i in range(40))
# Pillow 13 resizes some shapes in another order than those before it (src/io/resize.c); these are none of them.
PICTURES = {"ref1.png": (75, 70), "ref2.png": (130, 60), "ref3.png": (67, 105)}
CLEAR = ("clear.png", (60, 75))  # with transparency


def case(name, model, prompt, width=64, height=32, steps=3, guidance=1.0, negative="", seed=0, references=()):
    return dict(name=name, model=model, prompt=prompt, negative=negative, width=width, height=height, steps=steps,
                guidance=guidance, seed=seed, references=list(references))


CASES = [
    case("b_plain", "B", "A cat holding a sign that says hello world", seed=42, steps=4),
    case("b_guided", "B", "a red fox in the snow", guidance=4.0, seed=7, negative="blurry, dark, a long line of text",
         width=96, height=64),
    case("b_unicode", "B", UNICODE, width=32, height=96, seed=2**32 + 5),
    case("b_empty", "B", "", guidance=2.5, seed=1),
    case("b_long", "B", LONG, seed=2, steps=2),
    case("t_eight", "T", "a small robot waters the flowers", seed=4, steps=8),
    case("t_tall", "T", "An old lighthouse on a cliff", seed=3, steps=8, width=32, height=64),
    case("b_one", "B", "make the sky purple", seed=5, steps=2, guidance=3.0, negative="dark", references=["ref1.png"]),
    case("b_two", "B", "\nput the hat on the dog", seed=6, steps=2, references=["ref2.png", "ref3.png"]),
    case("b_clear", "B", "a sticker of the hat", seed=9, steps=2, references=["clear.png", "ref2.png"], height=64),
    case("t_three", "T", "make it blue", seed=8, steps=8, references=["ref3.png", "ref1.png", "ref2.png"], height=64),
]


@torch.no_grad()
def run(pipe, c: dict, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    inputs, steps = [], []
    h, w, channels = c["height"] // 16, c["width"] // 16, pipe.vae.config.z_dim

    def unpack(tokens: torch.Tensor) -> torch.Tensor:
        return tokens.transpose(1, 2).reshape(1, channels, h, w)

    def on_step(_, index, timestep, tensors):
        steps.append(unpack(tensors["latents"]))
        return {}

    hook = pipe.transformer.register_forward_pre_hook(
        lambda _, args, kw: inputs.append((kw["hidden_states"], kw["encoder_hidden_states"])), with_kwargs=True)
    noise = torch.randn((1, 1, channels, h, w), generator=torch.Generator("cpu").manual_seed(c["seed"]))
    packed = pipe._pack_latents(noise.to(dtype), 1, channels, h, w)
    # float32 lets the pipeline draw the noise, which shows that it is the noise above.
    source = dict(generator=torch.Generator("cpu").manual_seed(c["seed"])) if dtype == torch.float32 else dict(
        latents=packed)
    if c["references"]:
        source["image"] = [Image.open(DATA / p) for p in c["references"]]
    image = pipe(prompt=c["prompt"], negative_prompt=c["negative"], true_cfg_scale=c["guidance"], width=c["width"],
                 height=c["height"], num_inference_steps=c["steps"], output_type="pt", callback_on_step_end=on_step,
                 output_resolution=RESOLUTION, **source).images
    hook.remove()
    assert torch.equal(inputs[0][0][:, -h * w:], packed)
    assert image.shape == (1, 4, c["height"], c["width"]) and image[:, 3].std() > 0.05
    seen = dict(noise=noise[:, 0], text=inputs[0][1][:, -100:], sigmas=pipe.scheduler.sigmas, latents=steps[-1],
                image=image)
    return {k: v.detach().clone().contiguous() for k, v in seen.items()}


@torch.no_grad()
def run_inside(pipe, c: dict) -> dict[str, torch.Tensor]:
    """Values inside the models: the text encoder and the first step of case c, and both ways through the autoencoder."""
    seen, inputs, t = Seen(), [], pipe.transformer
    tokens = c["height"] // 16 * (c["width"] // 16)
    first = lambda out: out[0] if isinstance(out, tuple) else out
    hook = t.register_forward_pre_hook(lambda _, args, kw: inputs.append(kw), with_kwargs=True)
    text = pipe.text_encoder.model
    seen.keep(text.visual.blocks[0], "vision_block0", first)
    seen.keep(text.visual.deepstack_merger_list[0], "vision_deep0", first)
    seen.keep(text.visual.merger, "vision", first)
    seen.keep(text.language_model.layers[0], "text_layer0", first)
    seen.keep(t.time_text_embed, "time", lambda out: out[:1])
    seen.keep(t.time_text_embed, "time_zero", lambda out: out[1:])
    seen.keep(t.modulation, "mod", lambda out: out[:1])
    seen.keep(t.modulation, "mod_zero", lambda out: out[1:])
    seen.keep(t.img_in, "x_in", lambda out: out[:, -tokens:])
    seen.keep(t.txt_in, "text_in")
    for i, block in enumerate(t.transformer_blocks):
        seen.keep(block, f"block{i}", lambda out: out[:, -tokens:])
        if i + 1 < len(t.transformer_blocks):  # nothing reads the last one
            seen.keep(block, f"block{i}_prefix", lambda out: out[:, :-tokens])
    seen.keep(t.proj_out, "v", lambda out: out[:, -tokens:])
    run(pipe, c)
    hook.remove()
    seen["text"] = inputs[0]["encoder_hidden_states"]
    seen["references"] = inputs[0]["hidden_states"][:, :-tokens]

    vae, generator = pipe.vae, torch.Generator("cpu").manual_seed(100)
    flat = lambda out: first(out)[:, :, 0] if first(out).ndim == 5 else first(out)
    seen["dec_latent"] = torch.randn((1, vae.config.z_dim, 4, 2), generator=generator)  # normalised
    mean, std = (torch.tensor(v).view(1, -1, 1, 1) for v in (vae.config.latents_mean, vae.config.latents_std))
    seen.keep(vae.post_quant_conv, "dec_post_quant", flat)
    seen.keep(vae.decoder.conv_in, "dec_conv_in", flat)
    seen.keep(vae.decoder.mid_block, "dec_mid", flat)
    seen.keep(vae.decoder.up_blocks[0], "dec_up0", flat)
    seen.keep(vae.encoder.conv_in, "enc_conv_in", flat)
    seen.keep(vae.encoder.down_blocks[0], "enc_down0", flat)
    seen.keep(vae.encoder.mid_block, "enc_mid", flat)
    vae.decode((seen["dec_latent"] * std + mean)[:, :, None], return_dict=False)
    seen["enc_image"] = torch.rand((1, 3, 32, 64), generator=generator) * 2 - 1
    opaque = torch.cat([seen["enc_image"], torch.ones(1, 1, 32, 64)], 1)[:, :, None]
    seen["enc_latents"] = pipe._encode_vae_image(opaque, None)[:, :, 0]
    return seen.end()


def write() -> None:
    for name in ("B", "T", "cases"):
        shutil.rmtree(DATA / name, ignore_errors=True)
    (DATA / "cases").mkdir(parents=True)
    make_model()
    link_turbo()
    make_pictures(DATA, PICTURES)
    clear = make_picture(*CLEAR[1], 4)
    clear.putalpha(make_picture(*CLEAR[1], 5).getchannel("G"))
    clear.save(DATA / CLEAR[0])
    pipes = {name: load_model(name) for name in "BT"}
    precise = {name: load_model(name, torch.float64) for name in "BT"}
    for c in CASES:
        golden = run(pipes[c["model"]], c)
        exact = run(precise[c["model"]], c, torch.float64)
        store(DATA, c, golden, exact, f"text {tuple(golden['text'].shape)} {golden['text'].std():.2f}")
        if c["name"] == "b_one":
            save_file(run_inside(pipes["B"], c), DATA / "cases" / "b_one_inside.safetensors")
    finish(DATA, CASES, 1.45e6)


if __name__ == "__main__":
    main(__doc__, write, lambda: check(DATA, CASES, load_model, run))
