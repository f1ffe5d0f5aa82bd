"""Writes tests/data/quantised for tests/test_storage.c: small matrices in each quantised format of safetensors files, and
their weights by the formulas of the formats, in NumPy (MLX's compared with mlx.core itself).

    formats.safetensors   a module for each format, all in one file, as files in the wild mix them; offsets are not aligned
    want.safetensors      MODULE.weight in float32

    python tools/oracle/quantised.py
"""

import json
import pathlib

import mlx.core as mx
import numpy as np
import torch
from safetensors.numpy import save_file

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "quantised"
F8 = {"F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2}
random = np.random.default_rng(3)
tensors, want, layers = {}, {}, {}  # name -> (type, shape, bytes); name -> array; module -> format


def put(name, kind, array):
    array = np.asarray(array, order="C")
    tensors[name] = (kind, list(array.shape), array.tobytes())


def put_json(name, value):
    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    put(name, "U8", text)


def f8_codes(x, kind="F8_E4M3"):
    """Codes and their numbers."""
    q = torch.from_numpy(np.ascontiguousarray(x, np.float32)).to(F8[kind])
    return q.view(torch.uint8).numpy(), q.float().numpy()


def bf16(x):
    """Bits and their numbers."""
    t = torch.from_numpy(np.ascontiguousarray(x, np.float32)).to(torch.bfloat16)
    return t.view(torch.int16).numpy().view(np.uint16), t.float().numpy()


def normal(*shape):
    return random.standard_normal(shape).astype(np.float32)


def positive(*shape):
    return random.uniform(1e-3, 4e-3, shape).astype(np.float32)


def blocks(s, rows, columns):
    """Scales spread over the elements: element (o, i) takes s[o // b][i // c]."""
    down, across = -(-rows // s.shape[0]), -(-columns // s.shape[1])
    return np.repeat(np.repeat(s, down, 0)[:rows], across, 1)[:, :columns]


# ---- fp8 -------------------------------------------------------------------------------------------------------------


def fp8(name, scale, shape=(12, 20), kind="F8_E4M3", scale_name="weight_scale", spread=None, scale_kind="F32"):
    codes, numbers = f8_codes(100 * normal(*shape), kind)
    put(f"{name}.weight", kind, codes)
    if scale_kind == "BF16":
        bits, scale = bf16(scale)
        put(f"{name}.{scale_name}", "BF16", bits)
    else:
        put(f"{name}.{scale_name}", "F32", scale)
    want[name] = numbers * (scale if spread is None else spread(scale)).astype(np.float32)


def scaled_fp8():
    fp8("old", np.float32(0.0021), scale_name="scale_weight")
    put("old.scale_input", "F32", np.float32(7.0))  # trap 1: not part of the weight
    tensors["scaled_fp8"] = ("F8_E4M3", [0], b"")
    fp8("new", positive(1), shape=(12, 24))
    put("new.input_scale", "F32", np.float32(9.0))
    put_json("new.comfy_quant", {"format": "float8_e4m3fn", "full_precision_matrix_mult": True})
    fp8("listed", np.float32(0.003))
    layers["listed"] = {"format": "float8_e4m3fn"}
    fp8("listed_old", np.float32(0.004), kind="F8_E5M2")
    layers["listed_old"] = "float8_e5m2"
    fp8("rows", positive(12), spread=lambda s: s[:, None])
    fp8("rows_bf16", positive(12, 1), scale_kind="BF16")
    fp8("blocks", positive(3, 5), spread=lambda s: blocks(s, 12, 20))
    fp8("fine", positive(2, 2), shape=(130, 140), scale_name="weight_scale_inv",
        spread=lambda s: np.repeat(np.repeat(s, 128, 0)[:130], 128, 1)[:, :140])
    fp8("kernel", np.float32(0.5), shape=(4, 3, 3, 3))
    fp8("zero", np.float32(0.0))
    for kind in F8:  # every code, and no scale: infinities are those of E5M2 alone (trap 22)
        codes = np.arange(256, dtype=np.uint8).reshape(8, 32)
        put(f"plain_{kind}.weight", kind, codes)
        want[f"plain_{kind}"] = torch.from_numpy(codes).view(F8[kind]).float().numpy()


# ---- tiled scales ----------------------------------------------------------------------------------------------------


def tile(s):
    """[rows, columns] of bytes to tiles of 128 x 4, padded with 0."""
    rows, columns = s.shape
    across = -(-columns // 4)
    to = np.zeros(-(-rows // 128) * across * 512, np.uint8)
    for o in range(rows):
        for c in range(columns):
            to[(o // 128 * across + c // 4) * 512 + o % 32 * 16 + o // 32 % 4 * 4 + c % 4] = s[o, c]
    return to.reshape(-(-rows // 128) * 128, across * 4)


E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def nvfp4(name, rows, columns, cut=None, marked=True, gains=False, scale_kind="F8_E4M3"):
    codes = random.integers(0, 16, (rows, columns), dtype=np.uint8)
    put(f"{name}.weight", "U8", codes[:, 0::2] << 4 | codes[:, 1::2])  # the high nibble is the even element
    bits, scales = f8_codes(random.uniform(1, 300, (rows, columns // 16)))
    whole = np.float32(0.00037)
    put(f"{name}.weight_scale", scale_kind, tile(bits))
    put(f"{name}.weight_scale_2", "F32", whole)
    if marked:
        put_json(f"{name}.comfy_quant", {"format": "nvfp4"})
    w = np.repeat(scales * whole, 16, 1) * E2M1[codes]
    if gains:
        g, numbers = bf16(positive(columns))
        put(f"{name}.pre_quant_scale", "BF16", g)
        w = w * numbers
    want[name] = w[:cut[0], :cut[1]] if cut else w


def mxfp8():
    codes, numbers = f8_codes(50 * normal(160, 96))
    e = random.integers(110, 130, (160, 3), dtype=np.uint8)
    e[7, 1] = 0  # marks a block of zeros
    put("mxfp8.weight", "F8_E4M3", codes)
    put("mxfp8.weight_scale", "F8_E8M0", tile(e))
    put_json("mxfp8.comfy_quant", {"format": "mxfp8"})
    powers = np.where(e == 0, 0, np.exp2(e.astype(np.float32) - 127)).astype(np.float32)
    want["mxfp8"] = numbers * np.repeat(powers, 32, 1)


# ---- integers --------------------------------------------------------------------------------------------------------


def rotate(w, g):
    h4 = np.array([[1, 1, 1, -1], [1, 1, -1, 1], [1, -1, 1, 1], [-1, 1, 1, 1]], np.float64)
    h = np.ones((1, 1))
    while len(h) < g:
        h = np.kron(h, h4)
    h /= np.sqrt(g)
    assert np.allclose(h @ h, np.eye(g))
    return (w.reshape(len(w), -1, g).astype(np.float64) @ h).reshape(w.shape).astype(np.float32)


def int8(name, scale, options, shape=(10, 64), spread=None, turn=0):
    q = random.integers(-127, 128, shape, dtype=np.int8)
    put(f"{name}.weight", "I8", q)
    put(f"{name}.weight_scale", "F32", scale)
    if options:
        put_json(f"{name}.comfy_quant", options)
    w = (scale if spread is None else spread(scale)) * q.astype(np.float32)
    want[name] = rotate(w, turn) if turn else w


def integers():
    int8("int8", np.float32(0.01), {"format": "int8_tensorwise"})
    int8("int8_rows", positive(10, 1), {"format": "int8_tensorwise", "params": {"convrot": False}})
    int8("int8_turned", positive(10, 1), {"format": "int8_tensorwise", "convrot": True, "convrot_groupsize": 64}, turn=64)
    int8("int8_turned_256", positive(6, 1), {"format": "int8_tensorwise", "params": {"convrot": True}}, shape=(6, 512),
         turn=256)  # trap 19: nested options
    int8("int8_blocks", positive(2, 2), {"format": "int8_blockwise", "group_size": 128}, shape=(130, 140),
         spread=lambda s: np.repeat(np.repeat(s, 128, 0)[:130], 128, 1)[:, :140])
    int8("int8_bare", positive(10, 1), None)

    q = random.integers(-8, 8, (12, 256), dtype=np.int8)
    nibbles = q.view(np.uint8) & 15
    s = positive(12)
    put("w4a4.weight", "I8", (nibbles[:, 0::2] | nibbles[:, 1::2] << 4).view(np.int8))
    put("w4a4.weight_scale", "F32", s)
    put_json("w4a4.comfy_quant", {"format": "convrot_w4a4"})
    want["w4a4"] = rotate(q * s[:, None], 256)

    q = random.integers(0, 16, (12, 128), dtype=np.uint8)
    (sb, s), (zb, z) = bf16(positive(2, 12)), bf16(normal(2, 12))
    put("awq.weight", "I8", (q[:, 0::2] | q[:, 1::2] << 4).view(np.int8))
    put("awq.weight_scale", "BF16", sb)
    put("awq.weight_zeros", "BF16", zb)
    put_json("awq.comfy_quant", {"format": "awq_w4a16"})
    want["awq"] = np.repeat(s.T, 64, 1) * (q.astype(np.float32) - 8) + np.repeat(z.T, 64, 1)

    q = random.integers(0, 16, (6, 64), dtype=np.uint32)
    sb, s = bf16(positive(6, 2))
    put("compressed.weight_packed", "I32", sum(q[:, k::8] << 4 * k for k in range(8)).astype(np.uint32))
    put("compressed.weight_scale", "BF16", sb)
    put("compressed.weight_shape", "I64", np.array([6, 64], np.int64))
    want["compressed"] = np.repeat(s, 32, 1) * (q.astype(np.float32) - 8)


# ---- MLX -------------------------------------------------------------------------------------------------------------


def mlx():
    for bits in (2, 3, 4, 5, 6, 8):
        w, s, b = mx.quantize(mx.array(normal(6, 128)), group_size=64, bits=bits)
        for kind in ("F32", "BF16") if bits in (4, 8) else ("F32",):
            name = f"mlx{bits}" + ("_bf16" if kind == "BF16" else "")
            put(f"{name}.weight", "U32", np.array(w))
            scales, biases = np.array(s), np.array(b)
            if kind == "BF16":  # trap 10
                (sb, scales), (zb, biases) = bf16(scales), bf16(biases)
            put(f"{name}.scales", kind, sb if kind == "BF16" else scales)
            put(f"{name}.biases", kind, zb if kind == "BF16" else biases)
            put(f"{name}.bias", "F32", np.full(6, 3, np.float32))  # trap 10: not the biases
            stream = np.unpackbits(np.array(w).view(np.uint8), axis=1, bitorder="little").reshape(6, 128, bits)
            codes = (stream * 2 ** np.arange(bits)).sum(-1).astype(np.float32)
            want[name] = np.repeat(scales, 64, 1) * codes + np.repeat(biases, 64, 1)
            golden = np.array(mx.dequantize(w, mx.array(scales), mx.array(biases), group_size=64, bits=bits))
            assert np.allclose(want[name], golden, rtol=1e-6, atol=1e-6), name


def save(path):
    """Tensors one after the other, by name, without padding: offsets are odd (trap 21)."""
    header, data = {"__metadata__": {"_quantization_metadata": json.dumps({"layers": layers})}}, b""
    for name in sorted(tensors):
        kind, shape, content = tensors[name]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    scaled_fp8()
    nvfp4("nvfp4", 160, 64)
    nvfp4("nvfp4_bare", 128, 64, marked=False, scale_kind="U8")
    nvfp4("nvfp4_padded", 32, 48, cut=(20, 40))
    nvfp4("nvfp4_gains", 16, 32, gains=True)
    mxfp8()
    integers()
    mlx()
    save(FOLDER / "formats.safetensors")
    save_file({f"{k}.weight": np.ascontiguousarray(v.astype(np.float32)) for k, v in want.items()},
              FOLDER / "want.safetensors")
