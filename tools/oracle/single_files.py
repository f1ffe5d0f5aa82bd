#!/usr/bin/env python3
"""Small models with the constants of the published ones, for tests of single files, and GGUF files made of them.

    python3 tools/oracle/single_files.py     writes tests/data/parts (needs requirements.txt)

A file has no configuration, so what shapes cannot tell (groups of norms, sizes of heads, rotary axes) is as published. The
models of tests/data/flux2 and tests/data/qwen are not, but for the transformer and the text encoder of flux2/A:

    klein_vae/   an autoencoder that goes with flux2/A
    qwen/        Qwen-Image-Edit-2509 in the layout of diffusers
    *.gguf       the transformer and the text encoder of flux2/A, and the text encoder of qwen/, written by the package
                 gguf, with the names of llama.cpp and of Black Forest Labs; the tokenizers are inside
"""

import json
import pathlib
import shutil

import gguf
import numpy
import torch
from diffusers import (AutoencoderKLFlux2, AutoencoderKLQwenImage, FlowMatchEulerDiscreteScheduler,
                       QwenImageTransformer2DModel)
from safetensors.torch import load_file
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

import qwen
from common import TESTS, make_tokenizer, randomise, save_tokenizer

DATA = TESTS / "parts"
KLEIN = TESTS / "flux2" / "A"

TEXT = dict(hidden_size=128, intermediate_size=48, num_hidden_layers=2, num_attention_heads=1, num_key_value_heads=1,
            mrope_section=[16, 24, 24])
VISION = dict(depth=2, hidden_size=80, intermediate_size=36, num_heads=1, fullatt_block_indexes=[7, 15, 23, 31])


def make_models() -> None:
    generator = torch.Generator("cpu").manual_seed(21)
    klein_vae = AutoencoderKLFlux2(block_out_channels=(32, 32, 64, 64), layers_per_block=1, latent_channels=32,
                                   norm_num_groups=32, down_block_types=("DownEncoderBlock2D",) * 4,
                                   up_block_types=("UpDecoderBlock2D",) * 4)
    randomise(klein_vae, generator, {"decoder.conv_out": 0.5})
    klein_vae.to(torch.bfloat16).save_pretrained(DATA / "klein_vae")

    tokenizer, folder = make_tokenizer(special=qwen.SPECIAL, matched=()), DATA / "qwen"
    text = qwen.make_text(dict(text=TEXT, vision=VISION), tokenizer)
    transformer = QwenImageTransformer2DModel(in_channels=64, out_channels=16, num_layers=2, attention_head_dim=32,
                                              num_attention_heads=1, axes_dims_rope=(4, 14, 14), patch_size=2,
                                              guidance_embeds=False, joint_attention_dim=128)
    vae = AutoencoderKLQwenImage(base_dim=4, z_dim=16, dim_mult=[1, 2, 4, 4], num_res_blocks=2, attn_scales=[],
                                 temperal_downsample=[False, True, True], dropout=0.0)
    for module, name in ((text, "text_encoder"), (transformer, "transformer"), (vae, "vae")):
        randomise(module, generator, qwen.GAINS)
        module.to(torch.bfloat16).save_pretrained(folder / name)
    qwen.rename(folder / "text_encoder", True)
    FlowMatchEulerDiscreteScheduler(**qwen.SCHEDULER).save_pretrained(folder / "scheduler")
    save_tokenizer(tokenizer, folder / "tokenizer", with_merges=False)
    Qwen2VLImageProcessorPil(min_pixels=3136, max_pixels=12845056).save_pretrained(folder / "processor")
    (folder / "model_index.json").write_text(json.dumps(dict(_class_name="QwenImageEditPlusPipeline"), indent=2) + "\n")


def tensors(folder: pathlib.Path) -> dict[str, torch.Tensor]:
    return {k: v for file in sorted(folder.glob("*.safetensors")) for k, v in load_file(file).items()}


def add(writer: gguf.GGUFWriter, name: str, value: torch.Tensor) -> None:
    """bf16 as it is; vectors as f32, as llama.cpp does it."""
    value = value.contiguous()
    if value.dtype == torch.bfloat16 and value.ndim > 1:
        data = value.view(torch.int16).numpy().view(numpy.uint8)
        writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType.BF16)
    else:
        writer.add_tensor(name, value.float().numpy())


def close(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tokenizer(writer: gguf.GGUFWriter, folder: pathlib.Path, vocabulary: int) -> None:
    whole = json.loads((folder / "tokenizer.json").read_text())
    tokens, kinds = [f"[PAD{i}]" for i in range(vocabulary)], [gguf.TokenType.UNUSED] * vocabulary
    for text, i in whole["model"]["vocab"].items():
        tokens[i], kinds[i] = text, gguf.TokenType.NORMAL
    for token in whole["added_tokens"]:
        tokens[token["id"]] = token["content"]
        kinds[token["id"]] = gguf.TokenType.CONTROL if token["special"] else gguf.TokenType.USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in whole["model"]["merges"]])
    writer.add_pad_token_id(next(t["id"] for t in whole["added_tokens"] if t["content"] == "<|endoftext|>"))


LANGUAGE = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
            "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
            "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
            "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def language_name(name: str) -> str | None:
    name = name.removeprefix("model.")
    if name.startswith("layers."):
        _, i, rest = name.split(".", 2)
        module, ending = rest.rsplit(".", 1)
        return f"blk.{i}.{LANGUAGE[module]}.{ending}"
    return {"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight"}.get(name)


def write_language(path: str, architecture: str, folder: pathlib.Path, theta: float) -> None:
    writer = gguf.GGUFWriter(DATA / path, architecture)
    found = tensors(folder / "text_encoder")
    writer.add_rope_freq_base(theta)
    writer.add_block_count(1 + max(int(k.split(".")[2]) for k in found if k.startswith("model.layers.")))
    add_tokenizer(writer, folder / "tokenizer", found["model.embed_tokens.weight"].shape[0])
    for name, value in found.items():
        if language_name(name):
            add(writer, language_name(name), value)
    close(writer)


def write_vision(path: str, folder: pathlib.Path) -> None:
    """The mmproj file, with up and down exchanged as in older ones."""
    writer = gguf.GGUFWriter(DATA / path, "clip")
    modules = {"norm1": "ln1", "norm2": "ln2", "attn.proj": "attn_out", "mlp.gate_proj": "ffn_gate",
               "mlp.up_proj": "ffn_down", "mlp.down_proj": "ffn_up"}
    for name, value in tensors(folder / "text_encoder").items():
        if not name.startswith("visual."):
            continue
        name = name.removeprefix("visual.")
        module, ending = name.rsplit(".", 1)
        if module.startswith("blocks."):
            _, i, module = module.split(".", 2)
            if module == "attn.qkv":
                for letter, part in zip("qkv", value.chunk(3)):
                    add(writer, f"v.blk.{i}.attn_{letter}.{ending}", part)
            else:
                add(writer, f"v.blk.{i}.{modules[module]}.{ending}", value)
        elif module == "patch_embed.proj":
            for frame in range(2):
                add(writer, "v.patch_embd.weight" + (".1" if frame else ""), value[:, :, frame].contiguous().float())
        else:
            add(writer, {"merger.ln_q": "v.post_ln", "merger.mlp.0": "mm.0", "merger.mlp.2": "mm.2"}[module] + "." +
                ending, value)
    close(writer)


def write_klein(path: str) -> None:
    """The transformer of flux2/A in the names of Black Forest Labs, by the table of these names."""
    writer, found, parts = gguf.GGUFWriter(DATA / path, "flux"), tensors(KLEIN / "transformer"), {}
    lines = (TESTS / "names" / "flux2-klein-4b.tsv").read_text().splitlines()[1:]
    for original, _, name, operation in (line.split("\t") for line in lines):
        if name in found:
            first = int(operation.split("[")[1].split(":")[0]) if operation.startswith("rows") else 0
            value = found[name].roll(found[name].shape[0] // 2, 0) if operation.startswith("swap") else found[name]
            parts.setdefault(original, []).append((first, value))
    for original, pieces in parts.items():
        add(writer, original, torch.cat([value for _, value in sorted(pieces, key=lambda p: p[0])]))
    close(writer)


def main() -> None:
    shutil.rmtree(DATA, ignore_errors=True)
    DATA.mkdir(parents=True)
    make_models()
    write_klein("klein.gguf")
    write_language("qwen3.gguf", "qwen3", KLEIN, 1000000.0)
    write_language("qwen2.5-vl.gguf", "qwen2vl", DATA / "qwen", 1000000.0)
    write_vision("mmproj-qwen2.5-vl.gguf", DATA / "qwen")


main()
