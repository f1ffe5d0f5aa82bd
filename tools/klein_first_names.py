#!/usr/bin/env python3
"""The transformer of FLUX.2 [klein] under the names it was first published with, for programs that do not know diffusers'.

    klein_first_names.py FROM.safetensors TO.safetensors

FROM is transformer/diffusion_pytorch_model.safetensors of a model folder, in one file. Numbers are copied as they are:
q, k and v, which are one matrix under the first names, must lie one behind the other, as lazuli-synth writes them.
"""

import json
import os
import shutil
import struct
import sys

SINGLE = {"x_embedder": "img_in", "context_embedder": "txt_in", "norm_out.linear": "final_layer.adaLN_modulation.1",
          "proj_out": "final_layer.linear", "time_guidance_embed.timestep_embedder.linear_1": "time_in.in_layer",
          "time_guidance_embed.timestep_embedder.linear_2": "time_in.out_layer",
          "double_stream_modulation_img.linear": "double_stream_modulation_img.lin",
          "double_stream_modulation_txt.linear": "double_stream_modulation_txt.lin",
          "single_stream_modulation.linear": "single_stream_modulation.lin"}
DOUBLE_BLOCK = {("attn.to_q", "attn.to_k", "attn.to_v"): "img_attn.qkv", ("attn.to_out.0",): "img_attn.proj",
                ("attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj"): "txt_attn.qkv",
                ("attn.to_add_out",): "txt_attn.proj", ("ff.linear_in",): "img_mlp.0", ("ff.linear_out",): "img_mlp.2",
                ("ff_context.linear_in",): "txt_mlp.0", ("ff_context.linear_out",): "txt_mlp.2"}
DOUBLE_NORMS = {"attn.norm_q": "img_attn.norm.query_norm", "attn.norm_k": "img_attn.norm.key_norm",
                "attn.norm_added_q": "txt_attn.norm.query_norm", "attn.norm_added_k": "txt_attn.norm.key_norm"}
SINGLE_BLOCK = {("attn.to_qkv_mlp_proj",): "linear1", ("attn.to_out",): "linear2"}
SINGLE_NORMS = {"attn.norm_q": "norm.query_norm", "attn.norm_k": "norm.key_norm"}


def rename(tensors):
    """The same tensors under their first names."""
    named = {}

    def put(new, *old):
        if missing := [name for name in old if name + ".weight" not in tensors]:
            raise ValueError(f"there is no {missing[0]}.weight: it is not a transformer of FLUX.2 [klein] in one file")
        parts = [tensors[name + ".weight"] for name in old]
        for before, after in zip(parts, parts[1:]):
            if before["data_offsets"][1] != after["data_offsets"][0]:
                raise ValueError(f"{old[0]} and what belongs to it do not lie one behind the other")
        named[new] = {"dtype": parts[0]["dtype"],
                      "shape": [sum(part["shape"][0] for part in parts), *parts[0]["shape"][1:]],
                      "data_offsets": [parts[0]["data_offsets"][0], parts[-1]["data_offsets"][1]]}

    for old, new in SINGLE.items():
        put(new + ".weight", old)
    for kind, first, parts, norms in (("transformer_blocks", "double_blocks", DOUBLE_BLOCK, DOUBLE_NORMS),
                                      ("single_transformer_blocks", "single_blocks", SINGLE_BLOCK, SINGLE_NORMS)):
        for i in sorted({int(name.split(".")[1]) for name in tensors if name.startswith(kind + ".")}):
            for old, new in parts.items():
                put(f"{first}.{i}.{new}.weight", *(f"{kind}.{i}.{name}" for name in old))
            for old, new in norms.items():
                put(f"{first}.{i}.{new}.scale", f"{kind}.{i}.{old}")
    return named


def main(source, target):
    with open(source, "rb") as here:
        bytes_of_head = struct.unpack("<Q", here.read(8))[0]
        if bytes_of_head > os.path.getsize(source):
            raise ValueError("is not a safetensors file, or a truncated one")
        tensors = json.loads(here.read(bytes_of_head))
        tensors.pop("__metadata__", None)
        head = json.dumps(rename(tensors)).encode()
        head += b" " * (-len(head) % 8)
        try:
            with open(target, "xb") as there:
                there.write(struct.pack("<Q", len(head)) + head)
                shutil.copyfileobj(here, there, 1 << 26)
        except OSError as e:
            if not isinstance(e, FileExistsError) and os.path.exists(target):
                os.unlink(target)
            raise


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except OSError as e:
        sys.exit(f"klein_first_names.py: {e.filename or sys.argv[2]}: {e.strerror}")
    except (ValueError, struct.error) as e:
        sys.exit(f"klein_first_names.py: {sys.argv[1]}: {e}")
