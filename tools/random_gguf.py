"""Writes a part of a model as a GGUF file of random weights, at full size and without making the wide weights first.

    lazuli-synth --list qwen-image | python tools/random_gguf.py transformer Q4_K qwen_image OUT.gguf

The columns of the list are part, name, shape and type. Matrices whose rows fill whole blocks get the given type, with random
bytes as their numbers and scales that make them of the size that a trained matrix has; other tensors are F32.
Needs numpy and gguf.
"""
import sys

import gguf
import numpy as np

part, kind, architecture, path = sys.argv[1:]
kind = gguf.GGMLQuantizationType[kind]
block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
# The bytes of a block that hold a half-precision scale, and how large the numbers are that it multiplies.
SCALES = {"Q8_0": ([0], 70.0), "Q4_0": ([0], 4.6), "Q4_K": ([0, 2], 9.0 * 31), "Q6_K": ([208], 18.0 * 70)}
offsets, size = SCALES[kind.name]

tensors = []
for line in sys.stdin.read().splitlines()[1:]:
    where, name, shape, _ = line.split("\t")
    if where == part and shape != "scalar" and not name.startswith("visual."):  # GGUF has the vision part in a file of its own
        tensors.append((name, [int(d) for d in shape.split("x")]))

random = np.random.Generator(np.random.SFC64(1))


def packed(shape):
    blocks = int(np.prod(shape)) // block
    data = random.integers(0, 256, (blocks, block_bytes), dtype=np.uint8)
    scale = np.float16(shape[-1] ** -0.5 / size).tobytes()
    for at in offsets:
        data[:, at:at + 2] = np.frombuffer(scale, np.uint8)
    return data.reshape(*shape[:-1], -1)


def wide(shape, name):
    deviation = int(np.prod(shape[1:])) ** -0.5 if len(shape) > 1 else 0.02
    values = random.standard_normal(shape, dtype=np.float32) * np.float32(deviation)
    if len(shape) == 1 and name.endswith("weight"):
        values += 1
    return values


writer = gguf.GGUFWriter(path, architecture)
fits = [len(shape) == 2 and shape[-1] % block == 0 for _, shape in tensors]
for (name, shape), packs in zip(tensors, fits):
    if packs:
        row = shape[-1] // block * block_bytes
        writer.add_tensor_info(name, [*shape[:-1], row], np.dtype(np.uint8), int(np.prod(shape[:-1])) * row, raw_dtype=kind)
    else:
        writer.add_tensor_info(name, shape, np.dtype(np.float32), 4 * int(np.prod(shape)))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_ti_data_to_file()
for (name, shape), packs in zip(tensors, fits):
    writer.write_tensor_data(packed(shape) if packs else wide(shape, name))
writer.close()
