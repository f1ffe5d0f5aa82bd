#!/usr/bin/env python3
"""Golden values for FLUX.3 [klein]: tiny random models in the real folder layout, run by diffusers in float32.

    python3 tools/oracle/flux3.py           writes tests/data/flux3 (needs requirements.txt)
    python3 tools/oracle/flux3.py --check   runs every case again from what is stored

tests/data/flux3/README.md says what the files hold. D is the distilled model, a flow map; B is the base model, whose
other parts are links to D's.
"""

import json
import os
import shutil

import torch
from diffusers import (AutoencoderKLFlux2, ClassifierFreeGuidance, FlowMatchEulerDiscreteScheduler,
                       Flux3AutoBlocks, Flux3DistilledAutoBlocks, Flux3Transformer2DModel)
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import Qwen2VLImageProcessor, Qwen3VLConfig, Qwen3VLForConditionalGeneration, Qwen3VLProcessor
from transformers import Qwen3VLVideoProcessor

from common import (CHAT_TEMPLATE, TESTS, UNICODE, Seen, check, edit_json, finish, main, make_pictures, make_tokenizer,
                    randomise, ready, store)

DATA = TESTS / "flux3"

# Qwen3's own, in the order of their ids.
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
           "<|image_pad|>", "<|video_pad|>"]

# In diffusers this is an argument; Lazuli reads it from the index. With the published models it is 8192.
LENGTH = 200

# Larger than 1/sqrt(fan in), or the gates would hide what the blocks do behind their residual streams.
GAINS = {"embed_tokens": 5.0, "timestep_embedder": 2.0, "modulation": 1.5, "norm_out": 1.5, "to_out": 2.0,
         "linear_out": 2.0, "context_embedder": 0.5, "decoder.conv_out": 0.5}
# The two differ in every size that a transformer may choose.
TRANSFORMERS = {
    "D": dict(num_layers=2, num_single_layers=2, attention_head_dim=8, num_attention_heads=2,
              axes_dims_rope=(2, 2, 2, 2), timestep_channels=64, flow_map=True),
    "B": dict(num_layers=1, num_single_layers=3, attention_head_dim=12, num_attention_heads=2,
              axes_dims_rope=(2, 4, 4, 2), timestep_channels=32, mlp_ratio=2.5),
}
PIPELINES = {"D": ("Flux3DistilledModularPipeline", "Flux3DistilledAutoBlocks"),
             "B": ("Flux3ModularPipeline", "Flux3AutoBlocks")}
PARTS = {"scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
         "text_encoder": ["transformers", "Qwen3VLForConditionalGeneration"],
         "tokenizer": ["transformers", "Qwen3VLProcessor"], "transformer": ["diffusers", "Flux3Transformer2DModel"],
         "vae": ["diffusers", "AutoencoderKLFlux2"]}


def make_text(tokenizer) -> Qwen3VLForConditionalGeneration:
    ids = {t: tokenizer.convert_tokens_to_ids(t) for t in SPECIAL}
    config = Qwen3VLConfig(
        text_config=dict(hidden_size=8, intermediate_size=12, num_hidden_layers=33, num_attention_heads=2,
                         num_key_value_heads=1, head_dim=8, vocab_size=640, rms_norm_eps=1e-6, hidden_act="silu",
                         max_position_embeddings=262144,
                         rope_parameters=dict(rope_type="default", rope_theta=5000000.0, mrope_section=[2, 1, 1],
                                              mrope_interleaved=True)),
        vision_config=dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=2, patch_size=4,
                           temporal_patch_size=2, spatial_merge_size=2, out_hidden_size=8, num_position_embeddings=4,
                           deepstack_visual_indexes=[0], hidden_act="gelu_pytorch_tanh"),
        image_token_id=ids["<|image_pad|>"], video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"], vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True)
    return Qwen3VLForConditionalGeneration(config)


def write_index(name: str) -> None:
    """As the hub's folders: a part is [null, null, {where it is}]. The last key is Lazuli's."""
    pipeline, blocks = PIPELINES[name]
    index = {"_blocks_class_name": blocks, "_class_name": pipeline, "_diffusers_version": "0.42.1"}
    for part, hint in PARTS.items():
        index[part] = [None, None, {"pretrained_model_name_or_path": "somebody/flux-3-image-klein", "revision": None,
                                    "subfolder": part, "type_hint": hint, "variant": None}]
    index["max_sequence_length"] = LENGTH
    (DATA / name / "modular_model_index.json").write_text(json.dumps(index, indent=2) + "\n")


def make_models() -> None:
    folder = DATA / "D"
    generator = torch.Generator("cpu").manual_seed(31)
    tokenizer = make_tokenizer(SPECIAL, ())
    tokenizer.chat_template = None
    text = make_text(tokenizer)
    vae = AutoencoderKLFlux2(block_out_channels=(4, 8, 8, 12), layers_per_block=1, latent_channels=8, norm_num_groups=4)
    for module in (text, vae):
        randomise(module, generator, GAINS)
        module.to(torch.bfloat16).eval()
    text.save_pretrained(folder / "text_encoder")
    vae.save_pretrained(folder / "vae")
    FlowMatchEulerDiscreteScheduler(shift=6.93).save_pretrained(folder / "scheduler")
    images = Qwen2VLImageProcessor(patch_size=4, image_mean=[0.5] * 3, image_std=[0.5] * 3)
    Qwen3VLProcessor(images, tokenizer, Qwen3VLVideoProcessor(), chat_template=CHAT_TEMPLATE).save_pretrained(
        folder / "tokenizer")
    for name, sizes in TRANSFORMERS.items():
        transformer = Flux3Transformer2DModel(**sizes, in_channels=32, cond_in_channels=32,
                                              joint_attention_dim=8 * 8)
        randomise(transformer, generator, GAINS)
        transformer.to(torch.bfloat16).save_pretrained(DATA / name / "transformer")
        write_index(name)
    for part in ("scheduler", "text_encoder", "tokenizer", "vae"):
        os.symlink(f"../D/{part}", DATA / "B" / part)
    # transformers 4, as on the hub.
    config = folder / "text_encoder" / "config.json"
    text_config = json.loads(config.read_text())["text_config"]
    rope = text_config.pop("rope_parameters")
    text_config |= dict(rope_theta=rope.pop("rope_theta"), rope_scaling=rope)
    edit_json(config, text_config=text_config)


def original_names(name: str) -> str:
    """The makers' name of a tensor of diffusers."""
    for a, b in (("x_embedders", "emb_in"), ("context_embedder", "txt_in"),
                 ("target_timestep_embedder.linear_1", "ref_time_in.in_layer"),
                 ("target_timestep_embedder.linear_2", "ref_time_in.out_layer"),
                 ("timestep_embedder.linear_1", "time_in.in_layer"), ("timestep_embedder.linear_2", "time_in.out_layer"),
                 ("norm_out.linear", "final_layer.image.adaLN_modulation.1"), ("proj_out", "final_layer.image.linear"),
                 ("single_transformer_blocks", "single_blocks"), ("attn.to_out.0", "attn_out"),
                 ("attn.to_q", "q_proj"), ("attn.to_k", "k_proj"), ("attn.to_v", "v_proj"), ("ff.linear_in", "mlp_in"),
                 ("ff.linear_out", "mlp_out"), ("attn.norm_q.weight", "norm.query_norm.scale"),
                 ("attn.norm_k.weight", "norm.key_norm.scale")):
        name = name.replace(a, b)
    if "stream_modulations" in name:
        name = name.replace(".linear.", ".lin.")
    return f"content_{name}" if name.startswith("mode_blocks") else name


def write_single_file() -> None:
    """The transformer of D in the makers' names, checked by diffusers' own conversion."""
    from diffusers.loaders.single_file_utils import convert_flux3_transformer_checkpoint_to_diffusers
    own = load_file(DATA / "D" / "transformer" / "diffusion_pytorch_model.safetensors")
    tensors = {original_names(k): torch.cat(v.chunk(2)[::-1]) if k == "norm_out.linear.weight" else v
               for k, v in own.items()}
    tensors["repa_projectors.0.weight"] = torch.zeros(2, 2, dtype=torch.bfloat16)
    save_file(tensors, DATA / "original.safetensors")
    back = convert_flux3_transformer_checkpoint_to_diffusers(dict(tensors))
    assert back.keys() == own.keys() and all(torch.equal(back[k], own[k]) for k in own)


def load_model(name: str, dtype: torch.dtype = torch.float32):
    folder = DATA / name
    blocks = Flux3DistilledAutoBlocks() if name == "D" else Flux3AutoBlocks()
    blocks.sub_blocks.pop("prompt_upsampler")
    pipe = blocks.init_pipeline()
    pipe.update_components(
        scheduler=FlowMatchEulerDiscreteScheduler.from_pretrained(folder / "scheduler"),
        vae=AutoencoderKLFlux2.from_pretrained(folder / "vae", torch_dtype=dtype),
        text_encoder=Qwen3VLForConditionalGeneration.from_pretrained(folder / "text_encoder", dtype=dtype).eval(),
        tokenizer=Qwen3VLProcessor.from_pretrained(folder / "tokenizer"),
        transformer=Flux3Transformer2DModel.from_pretrained(folder / "transformer", torch_dtype=dtype).to(dtype))
    return ready(pipe, dtype)


# ---------------------------------------------------------------------------------------------------------------------
# Cases

LONG = " ".join(f"On hill {i} a lighthouse of colour {i * 7} looks over the sea;" for i in range(20))
CAPTION = " ".join(f"In window {i} a lamp is lit;" for i in range(9))
# ref4 is as high as a token, and its reflection is reflected again. None is so large that it is resized.
PICTURES = {"ref1.png": (75, 30), "ref2.png": (48, 70), "ref3.png": (67, 53), "ref4.png": (20, 16)}


def case(name, model, prompt, width=48, height=32, steps=3, guidance=1.0, negative="", seed=0, references=()):
    return dict(name=name, model=model, prompt=prompt, negative=negative, width=width, height=height, steps=steps,
                guidance=guidance, seed=seed, references=list(references))


# A width and height of 0 are not given: they come from the references.
CASES = [
    case("d_plain", "D", "A cat holding a sign that says hello world", seed=42, steps=16),
    case("d_unicode", "D", UNICODE, width=32, height=64, steps=4, seed=2**32 + 5),
    case("d_empty", "D", "", seed=1, steps=1),
    case("d_two_windows", "D", CAPTION, seed=9),
    case("d_long", "D", LONG, seed=2),
    case("b_guided", "B", CAPTION, guidance=3.5, seed=6, steps=5),
    case("b_negative", "B", "a red fox in the snow", guidance=2.5, seed=7, negative="dark; " + CAPTION, width=64),
    case("b_unguided", "B", "a red fox in the snow", seed=6, steps=5),
    case("d_one", "D", "make the sky purple", width=0, height=0, seed=3, references=["ref1.png"]),
    case("d_one_sized", "D", "make the sky purple", seed=3, references=["ref1.png"]),
    case("d_one_small", "D", "make the sky purple", width=0, height=0, seed=4, references=["ref4.png"]),
    case("d_two", "D", "\nput the hat on the dog", width=0, height=0, seed=4, references=["ref3.png", "ref2.png"]),
    case("b_one", "B", "make it blue", width=0, height=0, seed=8, guidance=3.0, references=["ref1.png"]),
    case("b_three", "B", "make it blue", width=32, height=48, seed=8, guidance=3.0, negative="dark",
         references=["ref1.png", "ref3.png", "ref2.png"]),
]


@torch.no_grad()
def run(pipe, c: dict, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    inputs = []
    hook = pipe.transformer.register_forward_pre_hook(
        lambda _, args, kw: inputs.append((kw["hidden_states"], kw["encoder_hidden_states"])), with_kwargs=True)
    options = dict(width=c["width"] or None, height=c["height"] or None)
    if c["references"]:
        options["image"] = [Image.open(DATA / p) for p in c["references"]]
    if c["model"] == "B":
        pipe.update_components(guider=ClassifierFreeGuidance(guidance_scale=c["guidance"]))
        if c["guidance"] > 1:
            options["negative_prompt"] = c["negative"]
    state = pipe(prompt=c["prompt"], num_inference_steps=c["steps"], output_type="pt",
                 generator=torch.Generator("cpu").manual_seed(c["seed"]), max_sequence_length=LENGTH, **options)
    hook.remove()
    latents, image = state.get("latents"), state.get("images")
    noise = torch.randn(latents.shape, generator=torch.Generator("cpu").manual_seed(c["seed"]))
    assert torch.equal(inputs[0][0], noise.flatten(2).transpose(1, 2).to(dtype))
    seen = dict(noise=noise, text=inputs[0][1][:, -100:], sigmas=pipe.scheduler.sigmas, latents=latents, image=image)
    return {k: v.detach().clone().contiguous() for k, v in seen.items()}


@torch.no_grad()
def run_inside(pipe, c: dict) -> dict[str, torch.Tensor]:
    """Values inside the models: the text encoder and the first step of case c."""
    seen, inputs, t = Seen(), [], pipe.transformer
    tokens = c["height"] // 16 * (c["width"] // 16)
    first = lambda out: out[0] if isinstance(out, tuple) else out
    hook = t.register_forward_pre_hook(lambda _, args, kw: inputs.append(kw), with_kwargs=True)
    seen.keep(pipe.text_encoder.model.language_model.layers[0], "text_layer0", first)
    seen.keep(t.timestep_embedder, "time")
    seen.keep(t.timestep_embedder, "time_zero", call=1)
    seen.keep(t.target_timestep_embedder, "time_target")
    seen.keep(t.context_embedder, "text_in")
    seen.keep(t.x_embedders["image"], "x_in")
    seen.keep(t.x_embedders["image_cond"], "references_in")
    for i in range(len(t.txt_mode_blocks)):
        seen.keep(t.txt_mode_blocks[i], f"own{i}_text")
        seen.keep(t.mode_blocks["image"][i], f"own{i}")
        seen.keep(t.mode_blocks["image_cond"][i], f"own{i}_references")
    for i, block in enumerate(t.single_transformer_blocks):
        seen.keep(block, f"single{i}", lambda out: out[1][:, :tokens])
        if i + 1 < len(t.single_transformer_blocks):  # nothing reads the last ones
            seen.keep(block, f"single{i}_text", lambda out: out[0])
            seen.keep(block, f"single{i}_references", lambda out: out[1][:, tokens:])
    seen.keep(t.proj_out, "v")
    run(pipe, c)
    hook.remove()
    seen["text"] = inputs[0]["encoder_hidden_states"]
    seen["references"] = inputs[0]["image_cond_hidden_states"]
    return seen.end()


def write() -> None:
    for name in ("D", "B", "cases"):
        shutil.rmtree(DATA / name, ignore_errors=True)
    (DATA / "cases").mkdir(parents=True)
    make_models()
    write_single_file()
    make_pictures(DATA, PICTURES)
    pipes = {name: load_model(name) for name in "DB"}
    precise = {name: load_model(name, torch.float64) for name in "DB"}
    for c in CASES:
        golden = run(pipes[c["model"]], c)
        exact = run(precise[c["model"]], c, torch.float64)
        store(DATA, c, golden, exact, f"text {tuple(golden['text'].shape)} image {tuple(golden['image'].shape[2:])}")
        if c["name"] == "d_one_sized":
            save_file(run_inside(pipes["D"], c), DATA / "cases" / "d_one_sized_inside.safetensors")
    finish(DATA, CASES, 1.25e6)


if __name__ == "__main__":
    main(__doc__, write, lambda: check(DATA, CASES, load_model, run))
