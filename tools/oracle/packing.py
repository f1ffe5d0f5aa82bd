#!/usr/bin/env python3
"""Golden values of packed weights, tests/data/packing.safetensors: from gguf (blocks of GGUF), mlx (streams of bits), torch
(8-bit floats) and NumPy.

    python tools/oracle/packing.py            (needs numpy, torch, safetensors, gguf, mlx[cpu])

For each case CASE.codes u8 [rows, bytes], CASE.values f32 [rows, columns], and where the case has them CASE.scales and
CASE.offsets. The packing is what stands before the first "-" of CASE. "-rotate64": ConvRot with groups of 64. All
values but those of rotated cases are exact: computed in f32 as the format's own reader does, or in f64 where f32 holds the
result.
"""

import os

import gguf
import mlx.core as mx
import numpy as np
import torch
from safetensors.torch import save_file

rng = np.random.default_rng(17)
tensors = {}
ROWS = 3


def put(case, codes, values, scales=None, offsets=None):
    tensors[case + ".codes"] = torch.from_numpy(np.ascontiguousarray(codes, dtype=np.uint8))
    tensors[case + ".values"] = torch.from_numpy(np.array(values, dtype=np.float32))
    for name, t in (("scales", scales), ("offsets", offsets)):
        if t is not None:
            tensors[f"{case}.{name}"] = t if isinstance(t, torch.Tensor) else torch.from_numpy(np.ascontiguousarray(t))


# Blocks of GGUF: random bytes, with finite numbers in the fields of f16 (offset in the block, lower and upper bound).
F16 = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [], "NVFP4": []
}
for name, fields in F16.items():
    kind = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = 512 // elements
    codes = rng.integers(0, 256, (ROWS, blocks, size), dtype=np.uint8)
    for at in fields:
        numbers = rng.standard_normal((ROWS, blocks, 1)).astype(np.float16) * np.float16(0.01)
        numbers[1, 0] = np.float16(2**-24)  # a subnormal number
        numbers[2, 1] = np.float16(-60000)
        codes[:, :, at:at + 2] = numbers.view(np.uint8)
    if name == "MXFP4":
        codes[:, :, 0] = rng.integers(100, 140, (ROWS, blocks))
        codes[1, :4, 0] = [0, 1, 2, 250]
    if name == "NVFP4":
        codes[:, :, :4] &= 0x7F
        codes[1, 0, :4] = [0, 0x7F, 1, 0x7E]
    codes = codes.reshape(ROWS, -1)
    put(name.lower(), codes, gguf.dequantize(codes, kind))

# Numbers of 8 bits: each code once; a scale for the tensor, the row, or blocks of rows and columns.
every = np.arange(256, dtype=np.uint8).reshape(2, 128)
for name, dtype in (("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)):
    values = torch.from_numpy(every).view(dtype).to(torch.float32)
    put(name, every, values.numpy())
    scale = torch.tensor([[0.0123]])
    put(name + "-tensor", every, (values * scale).numpy(), scale)
    scale = torch.tensor([[0.0123], [-1.75]])
    put(name + "-rows", every, (values * scale).numpy(), scale)
codes = rng.integers(0, 0x78, (6, 96), dtype=np.uint8)
values = torch.from_numpy(codes).view(torch.float8_e4m3fn).to(torch.float32)
scale = torch.from_numpy(rng.standard_normal((3, 2)).astype(np.float32)).to(torch.bfloat16)
put("e4m3-blocks", codes, (values * scale.float().repeat_interleave(2, 0).repeat_interleave(48, 1)).numpy(), scale)
powers = rng.integers(110, 140, (6, 3), dtype=np.uint8)
powers[0] = [0, 1, 127]
scale = np.where(powers == 0, 0.0, np.exp2(powers.astype(np.float64) - 127))
put("e4m3-powers", codes, values.numpy() * np.repeat(scale, 32, 1), powers)

codes = rng.integers(0, 256, (4, 128), dtype=np.uint8)
scale = rng.standard_normal((4, 1)).astype(np.float32)
whole = codes.view(np.int8).astype(np.float32) * scale
put("i8-rows", codes, whole, scale)
h4 = np.array([[1, 1, 1, -1], [1, 1, -1, 1], [1, -1, 1, 1], [-1, 1, 1, 1]], dtype=np.float64)
h = h4
while len(h) < 64:
    h = np.kron(h, h4)
h /= 8.0
assert np.array_equal(h @ h, np.eye(64)) and np.array_equal(h, h.T)
put("i8-rotate64", codes, (whole.astype(np.float64).reshape(4, 2, 64) @ h).reshape(4, 128), scale)

# Two numbers in a byte.
steps = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=np.float32)
codes = rng.integers(0, 256, (4, 32), dtype=np.uint8)
pairs = steps[np.stack([codes >> 4, codes & 15], 2).reshape(4, 64)]
block = torch.from_numpy(rng.integers(1, 0x78, (4, 4), dtype=np.uint8)).view(torch.float8_e4m3fn)
put("e2m1-nvfp4", codes, pairs * block.float().numpy().repeat(16, 1), block)
low_first = np.stack([codes & 15, codes >> 4], 2).reshape(4, 64).astype(np.int32)
scale = torch.from_numpy(rng.standard_normal((4, 2)).astype(np.float16))
put("i4-groups", codes, (low_first - 8) * scale.float().numpy().repeat(32, 1), scale)
scale = rng.standard_normal((4, 2)).astype(np.float32)
offset = rng.standard_normal((4, 2)).astype(np.float32)
put("i4-zeros", codes, (low_first - 8).astype(np.float32) * scale.repeat(32, 1) + offset.repeat(32, 1), scale, offset)
scale = rng.standard_normal((4, 1)).astype(np.float32)
put("s4-rows", codes, np.where(low_first < 8, low_first, low_first - 16).astype(np.float32) * scale, scale)

# MLX: quantised by it. Its own dequantize gives the values, from scales and offsets widened to f32.
for width in (2, 3, 4, 5, 6, 8):
    w = mx.array(rng.standard_normal((ROWS, 192)).astype(np.float32)).astype(mx.bfloat16)
    q, scales, biases = mx.quantize(w, group_size=64, bits=width)
    values = np.array(mx.dequantize(q, scales.astype(mx.float32), biases.astype(mx.float32), group_size=64, bits=width))
    narrow = [torch.from_numpy(np.array(t.astype(mx.float32))).to(torch.bfloat16) for t in (scales, biases)]
    put(f"u{width}-mlx", np.array(q).view(np.uint8), values, *narrow)

path = os.path.join(os.path.dirname(__file__), "..", "..", "tests", "data", "packing.safetensors")
save_file({k: t.clone() for k, t in tensors.items()}, path)
print(f"{len(tensors)} tensors, {os.path.getsize(path)} bytes")
