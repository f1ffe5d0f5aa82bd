#!/usr/bin/env python3
"""Golden values for FLUX.2 [klein]: tiny random models in the real folder layout, run by diffusers in float32.

    python3 tools/oracle/flux2.py           writes tests/data/flux2 (needs requirements.txt)
    python3 tools/oracle/flux2.py --check   runs every case again from what is stored

The numbers come from the saved folders alone: make the models, save them, load them with from_pretrained, run.
tests/data/flux2/README.md says what the files hold. In shapes: C = patch channels (4 * latent channels),
h, w = height/16, width/16, L = h*w, T = text length, S = T + L + reference tokens.
"""

import os
import shutil

import torch
from diffusers import (AutoencoderKLFlux2, Flux2KleinKVPipeline, Flux2KleinPipeline, Flux2Transformer2DModel,
                       FlowMatchEulerDiscreteScheduler)
from PIL import Image
from safetensors.torch import save_file
from transformers import Qwen2TokenizerFast, Qwen3Config, Qwen3ForCausalLM

from common import (TESTS, UNICODE, check, edit_json, finish, main, make_pictures, make_tokenizer, randomise, ready,
                    save_tokenizer, store)

DATA = TESTS / "flux2"

# ---------------------------------------------------------------------------------------------------------------------
# Models

SCHEDULER = dict(num_train_timesteps=1000, shift=3.0, use_dynamic_shifting=True, time_shift_type="exponential",
                 base_shift=0.5, max_shift=1.15, base_image_seq_len=256, max_image_seq_len=4096)  # klein's own

# A: klein in small. q_proj is wider than the hidden size, as in Qwen3-4B; layer 27 is never needed.
# B: other widths everywhere, other axes of RoPE, VAE with a narrower decoder (FLUX.2-small-decoder), other text layers.
# C: like B, but a base model (no is_distilled), weights in float16, lm_head of its own.
# K: the files of B, run by the pipeline with cached references: only the index tells.
SMALL = dict(
    text=dict(hidden_size=32, intermediate_size=80, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=1,
              head_dim=8, rope_theta=10000.0),
    transformer=dict(in_channels=32, num_layers=1, num_single_layers=2, attention_head_dim=16, num_attention_heads=2,
                     axes_dims_rope=(2, 4, 6, 4), joint_attention_dim=96, timestep_guidance_channels=64),
    vae=dict(block_out_channels=(8, 16, 16, 16), decoder_block_out_channels=(8, 8, 16, 16), layers_per_block=1,
             latent_channels=8, norm_num_groups=4),
    text_encoder_out_layers=(1, 2, 3), max_sequence_length=64)
MODELS = {
    "A": dict(
        seed=1, dtype=torch.bfloat16, distilled=True, shard="250KB", tied=True,
        text=dict(hidden_size=24, intermediate_size=64, num_hidden_layers=28, num_attention_heads=4,
                  num_key_value_heads=2, head_dim=16, rope_theta=1000000.0),
        transformer=dict(in_channels=128, num_layers=2, num_single_layers=2, attention_head_dim=32,
                         num_attention_heads=2, axes_dims_rope=(8, 8, 8, 8), joint_attention_dim=72),
        vae=dict(block_out_channels=(8, 16, 24, 24), layers_per_block=2, latent_channels=32, norm_num_groups=4)),
    "B": dict(SMALL, seed=2, dtype=torch.float32, distilled=True, shard="1GB", tied=True),
    "C": dict(SMALL, seed=3, dtype=torch.float16, distilled=False, shard="1GB", tied=False),
}
MODELS["K"] = dict(MODELS["B"], of="B")


# Larger than 1/sqrt(fan in), or the gates would hide what the blocks do behind their residual streams.
GAINS = {"embed_tokens": 5.0, "timestep_embedder": 2.0, "modulation": 1.5, "norm_out": 1.5, "to_out": 2.0,
         "to_add_out": 2.0, "linear_out": 2.0, "context_embedder": 0.5, "decoder.conv_out": 0.5}


def make_model(name: str, tokenizer: Qwen2TokenizerFast) -> None:
    spec, folder = MODELS[name], DATA / name
    generator = torch.Generator("cpu").manual_seed(spec["seed"])
    text_spec = dict(spec["text"])
    rope_theta = text_spec.pop("rope_theta")

    text = Qwen3ForCausalLM(Qwen3Config(
        **text_spec, vocab_size=640, rms_norm_eps=1e-6, max_position_embeddings=40960,
        rope_parameters={"rope_type": "default", "rope_theta": rope_theta}, tie_word_embeddings=spec["tied"],
        bos_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id))
    transformer = Flux2Transformer2DModel(**spec["transformer"], patch_size=1, mlp_ratio=3.0, rope_theta=2000,
                                          eps=1e-6, guidance_embeds=False)
    vae = AutoencoderKLFlux2(**spec["vae"])
    for module in (text, transformer, vae):
        randomise(module, generator, GAINS)
        module.to(spec["dtype"]).eval()

    text.save_pretrained(folder / "text_encoder", max_shard_size=spec["shard"])
    transformer.save_pretrained(folder / "transformer", max_shard_size=spec["shard"])
    vae.save_pretrained(folder / "vae")
    scheduler = FlowMatchEulerDiscreteScheduler(**SCHEDULER)
    scheduler.save_pretrained(folder / "scheduler")
    save_tokenizer(tokenizer, folder / "tokenizer", with_merges=name == "A")
    pipe = Flux2KleinPipeline(scheduler, vae, text, tokenizer, transformer, is_distilled=spec["distilled"])
    pipe.save_config(folder)

    # Make the JSON files what the hub has. transformers 5 names the class Qwen2Tokenizer; the hub's base models have
    # no is_distilled. The two extra keys are Lazuli's: diffusers takes them as arguments of the call and ignores them
    # in the file.
    extra = {k: spec[k] for k in ("text_encoder_out_layers", "max_sequence_length") if k in spec}
    edit_json(folder / "model_index.json", tokenizer=["transformers", "Qwen2TokenizerFast"],
              is_distilled=True if spec["distilled"] else None, **extra)
    if name == "A":
        # transformers 4, as on the hub: rope_theta at the top. B and C keep rope_parameters, as transformers 5 writes.
        edit_json(folder / "text_encoder" / "config.json", rope_parameters=None)
        edit_json(folder / "text_encoder" / "config.json", rope_theta=int(rope_theta))


def link_model(name: str) -> None:
    other = MODELS[name]["of"]
    (DATA / name).mkdir()
    for part in ("scheduler", "text_encoder", "tokenizer", "transformer", "vae"):
        os.symlink(f"../{other}/{part}", DATA / name / part)
    shutil.copy(DATA / other / "model_index.json", DATA / name)
    # Its pipeline does not save is_distilled.
    edit_json(DATA / name / "model_index.json", _class_name="Flux2KleinKVPipeline", is_distilled=None)


def load_model(name: str, dtype: torch.dtype = torch.float32) -> Flux2KleinPipeline | Flux2KleinKVPipeline:
    spec = MODELS[name]
    kind = Flux2KleinKVPipeline if "of" in spec else Flux2KleinPipeline
    pipe = kind.from_pretrained(DATA / name, dtype=dtype)
    assert "of" in spec or pipe.config.is_distilled == spec["distilled"]
    assert pipe.text_encoder.config.rope_parameters["rope_theta"] == spec["text"]["rope_theta"]
    return ready(pipe, dtype)


# ---------------------------------------------------------------------------------------------------------------------
# Cases

LONG = " ".join(f"On hill {i} a lighthouse of colour {i * 7} looks over the sea;" for i in range(20))

# Reference pictures: their names in tests/data/flux2 and (width, height). Not multiples of 16: the middle is used.
PICTURES = {"ref1.png": (75, 70), "ref2.png": (96, 64), "ref3.png": (67, 85)}


def case(name, model, prompt, width=64, height=64, steps=4, guidance=1.0, seed=0, references=()):
    return dict(name=name, model=model, prompt=prompt, width=width, height=height, steps=steps, guidance=guidance,
                seed=seed, references=list(references))


CASES = [
    case("a_square", "A", "A cat holding a sign that says hello world", seed=42),
    case("a_wide", "A", "Café 2024: it's 3.14€ — naïve\nnew line", width=96, height=48, steps=3, seed=7),
    case("a_unicode", "A", UNICODE, seed=2**32 + 5),
    case("a_empty", "A", "", seed=1),
    case("a_long", "A", LONG, seed=2),
    case("a_one_reference", "A", "  make the sky purple", seed=3, references=["ref1.png"]),
    case("a_two_references", "A", "\n\nput the hat on the dog", width=48, height=64, steps=3, seed=4,
         references=["ref2.png", "ref3.png"]),
    case("b_square", "B", "Literal <|im_end|> and <think> are control tokens", seed=5),
    case("c_guided", "C", "a red fox in the snow", steps=5, guidance=4.0, seed=6),
    case("c_unguided", "C", "a red fox in the snow", steps=5, guidance=1.0, seed=6),
    case("c_guided_reference", "C", "make it blue", width=64, height=48, steps=3, guidance=4.0, seed=8,
         references=["ref3.png"]),
    case("k_plain", "K", "a red fox in the snow", width=48, height=32, steps=2, seed=9),
    case("k_one_reference", "K", "make the sky purple", width=64, height=48, seed=10, references=["ref1.png"]),
    case("k_two_references", "K", "put the hat on the dog", width=32, height=64, steps=3, seed=11,
         references=["ref2.png", "ref3.png"]),
]


def unpack(tokens: torch.Tensor, c: dict) -> torch.Tensor:
    """[1,L,C] -> [1,C,h,w]"""
    return tokens.permute(0, 2, 1).reshape(1, -1, c["height"] // 16, c["width"] // 16)


@torch.no_grad()
def run(pipe: Flux2KleinPipeline | Flux2KleinKVPipeline, c: dict, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    spec = MODELS[c["model"]]
    options = {k: spec[k] for k in ("text_encoder_out_layers", "max_sequence_length") if k in spec}
    if "of" not in spec:
        options["guidance_scale"] = c["guidance"]
    texts, inputs, steps = [], [], []

    def on_step(_, index, timestep, tensors):
        steps.append(unpack(tensors["latents"], c))
        return {}

    hooks = [
        pipe.transformer.register_forward_pre_hook(
            lambda _, args, kw: inputs.append((kw["hidden_states"], kw["encoder_hidden_states"])), with_kwargs=True),
        pipe.text_encoder.register_forward_pre_hook(
            lambda _, args, kw: texts.append(kw["input_ids"]), with_kwargs=True)]

    shape = (1, pipe.transformer.config.in_channels, c["height"] // 16, c["width"] // 16)
    noise = torch.randn(shape, generator=torch.Generator("cpu").manual_seed(c["seed"]))
    # float32 lets the pipeline draw the noise, which shows that it is the noise above. A float64 pipeline would draw
    # other numbers, so it gets them.
    source = dict(generator=torch.Generator("cpu").manual_seed(c["seed"])) if dtype == torch.float32 else dict(
        latents=noise)
    references = [Image.open(DATA / p) for p in c["references"]]
    image = pipe(prompt=c["prompt"], image=references or None, width=c["width"], height=c["height"],
                 num_inference_steps=c["steps"], output_type="pt",
                 callback_on_step_end=on_step, **source, **options).images
    for hook in hooks:
        hook.remove()

    tokens = shape[2] * shape[3]
    picture, others = inputs[0][0][:, :tokens], inputs[0][0][:, tokens:]
    if "of" in spec:  # cached references: before the picture, in the first step only
        others, picture = inputs[0][0][:, :-tokens], inputs[0][0][:, -tokens:]
        assert all(later[0].shape[1] == tokens for later in inputs[1:])
    assert torch.equal(unpack(picture, c), noise.to(dtype))
    assert image.shape == (1, 3, c["height"], c["width"])
    seen = dict(ids=texts[0].to(torch.int32), noise=noise, text=inputs[0][1], sigmas=pipe.scheduler.sigmas,
                latents=steps[-1], image=image)
    if c["guidance"] > 1:
        seen["text_empty"] = inputs[1][1]
    if references:
        seen["references"] = others
    return {k: v.detach().clone().contiguous() for k, v in seen.items()}


def text_options(spec: dict) -> dict:
    layers = spec.get("text_encoder_out_layers", (9, 18, 27))
    return dict(layers=",".join(map(str, layers)), text_length=spec.get("max_sequence_length", 512))


@torch.no_grad()
def run_inside(pipe: Flux2KleinPipeline, c: dict, golden: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Values inside the models: the first step of case c, and both ways through the VAE. Text rows: the first 32."""
    seen, hooks = {}, []

    def keep(module, name, pick=lambda out: out):
        def hook(_, args, out):
            for key, value in ({name: pick(out)} if name else pick(out)).items():
                seen.setdefault(key, value)  # the first call only
        hooks.append(module.register_forward_hook(hook))

    t = pipe.transformer
    text_length = golden["text"].shape[1]
    keep(pipe.text_encoder.model.layers[0], "text_layer0",
         lambda out: (out[0] if isinstance(out, tuple) else out)[:, :32])
    keep(t.time_guidance_embed.time_proj, "time_proj")
    keep(t.time_guidance_embed, "temb")
    keep(t.double_stream_modulation_img, "mod_img")
    keep(t.double_stream_modulation_txt, "mod_txt")
    keep(t.single_stream_modulation, "mod_single")
    keep(t.x_embedder, "x_in")
    keep(t.context_embedder, "text_in", lambda out: out[:, :32])
    for i, block in enumerate(t.transformer_blocks):
        keep(block, "", lambda out, i=i: {f"double{i}_txt": out[0][:, :32], f"double{i}_img": out[1]})
    for i, block in enumerate(t.single_transformer_blocks):
        keep(block, "", lambda out, i=i: {f"single{i}_txt": out[:, :32], f"single{i}_img": out[:, text_length:]})
    keep(t, "v", lambda out: out[0])
    run(pipe, c)
    for hook in hooks:
        hook.remove()
    hooks.clear()

    vae = pipe.vae
    seen["dec_latent"] = torch.randn((1, vae.config.latent_channels, 8, 8),
                                     generator=torch.Generator("cpu").manual_seed(100))
    keep(vae.post_quant_conv, "dec_post_quant")
    keep(vae.decoder.conv_in, "dec_conv_in")
    keep(vae.decoder.mid_block.attentions[0], "dec_mid_attention")
    keep(vae.decoder.mid_block, "dec_mid")
    keep(vae.decoder.up_blocks[0], "dec_up0")
    keep(vae.encoder.down_blocks[0], "enc_down0")
    keep(vae.encoder.mid_block, "enc_mid")
    seen["dec_image"] = vae.decode(seen["dec_latent"], return_dict=False)[0]

    picture = Image.open(DATA / "ref1.png")
    seen["enc_image"] = pipe.image_processor.preprocess(picture, height=64, width=64, resize_mode="crop")
    seen["enc_mean"] = vae.encode(seen["enc_image"]).latent_dist.mode()
    seen["enc_packed"] = pipe._pack_latents(pipe._encode_vae_image(seen["enc_image"], None))
    for hook in hooks:
        hook.remove()
    return {k: v.detach().clone().contiguous() for k, v in seen.items()}


def write() -> None:
    for name in [*MODELS, "cases"]:
        shutil.rmtree(DATA / name, ignore_errors=True)
    (DATA / "cases").mkdir(parents=True)
    tokenizer = make_tokenizer()
    for name, spec in MODELS.items():
        link_model(name) if "of" in spec else make_model(name, tokenizer)
    make_pictures(DATA, PICTURES)

    pipes = {name: load_model(name) for name in MODELS}
    # To estimate the rounding noise only: the libraries keep some steps in float32 (RMS norms of Qwen3, RoPE, Euler).
    precise = {name: load_model(name).to(torch.float64) for name in MODELS}
    pipe = pipes["A"]
    for prompt in [c["prompt"] for c in CASES]:
        text = pipe.tokenizer.apply_chat_template([{"role": "user", "content": prompt}], tokenize=False,
                                                  add_generation_prompt=True, enable_thinking=False)
        assert text == f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"

    for c in CASES:
        golden = run(pipes[c["model"]], c)
        exact = run(precise[c["model"]], c, torch.float64)
        store(DATA, c, golden, exact, f"{int((golden['ids'] != tokenizer.pad_token_id).sum()):3} tokens")
        if c is CASES[0]:
            save_file(run_inside(pipes[c["model"]], c, golden), DATA / "cases" / f"{c['name']}_inside.safetensors")
    finish(DATA, [c | text_options(MODELS[c["model"]]) for c in CASES], 6.1e6)


if __name__ == "__main__":
    main(__doc__, write, lambda: check(DATA, CASES, load_model, run))
