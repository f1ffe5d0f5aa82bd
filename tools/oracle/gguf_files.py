"""Writes tests/data/gguf with the reference implementation of GGUF (gguf of PyPI), for tests/test_gguf.c.

    types.gguf          a tensor of each type, keys of each type, alignment 64, a tensor that was flattened
    types.safetensors   what gguf.quants.dequantize makes of them
    split-*.gguf        a model in three files
    bare.gguf           a file without keys, as stable-diffusion.cpp writes

    python tools/oracle/gguf_files.py
"""

import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFValueType as Value
from safetensors.numpy import save_file

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "gguf"
PLAIN = [Type.F32, Type.F16, Type.BF16]
PACKED = [Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0, Type.Q2_K, Type.Q3_K, Type.Q4_K, Type.Q5_K, Type.Q6_K,
          Type.IQ4_NL, Type.IQ4_XS, Type.MXFP4]
OTHER = [Type.IQ2_XXS, Type.IQ3_S]  # listed, and refused by name
# Where f16 numbers lie in a block: random bytes would make them infinite.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0]}


def blocks(random, kind, rows, columns):
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    raw = random.integers(0, 256, (rows * columns // elements, size), dtype=np.uint8)
    for place in HALVES.get(kind.name, []):
        halves = random.uniform(0.01, 0.1, len(raw)).astype(np.float16)
        raw[:, place:place + 2] = halves.view(np.uint8).reshape(-1, 2)
    if kind == Type.MXFP4:
        raw[:, 0] = random.integers(120, 130, len(raw))
    return raw.reshape(rows, -1)


def add_keys(w):
    w.add_string("general.name", "a small file: \u00e9")
    w.add_custom_alignment(64)
    for kind, value in {Value.UINT8: 200, Value.INT8: -100, Value.UINT16: 60000, Value.INT16: -30000,
                        Value.UINT32: 4000000000, Value.INT32: -2000000000, Value.FLOAT32: 1e-6, Value.BOOL: True,
                        Value.UINT64: 2**63, Value.INT64: -2**62, Value.FLOAT64: 0.1}.items():
        w.add_key_value("test." + kind.name.lower(), value, kind)
    w.add_array("tokenizer.ggml.tokens", ["a", "", "\u0120the", "x" * 300])
    w.add_array("tokenizer.ggml.token_type", [1, 3, -4])
    w.add_array("test.floats", [0.5, -1.25])
    w.add_array("comfy.gguf.orig_shape.flattened", [4, 8, 2, 2])


def write(path, add, **options):
    w = gguf.GGUFWriter(path, "flux", **options)
    add(w)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def write_types():
    random, want = np.random.default_rng(17), {}

    def add(w):
        add_keys(w)
        for kind in PLAIN:
            x = random.standard_normal((3, 8)).astype(np.float32)
            raw = gguf.quants.quantize(x, kind)
            w.add_tensor(kind.name, raw, raw_dtype=None if kind in (Type.F32, Type.F16) else kind)
            want[kind.name] = gguf.quants.dequantize(raw, kind)
        for kind in PACKED + OTHER:
            raw = blocks(random, kind, 2, 256)
            w.add_tensor(kind.name, raw, raw_dtype=kind)
            if kind in PACKED:
                want[kind.name] = gguf.quants.dequantize(raw, kind)
        w.add_tensor("I32", np.arange(-3, 3, dtype=np.int32).reshape(1, 2, 3))
        raw = blocks(random, Type.Q8_0, 1, 128)
        w.add_tensor("flattened", raw, raw_dtype=Type.Q8_0)
        want["flattened"] = gguf.quants.dequantize(raw, Type.Q8_0).reshape(4, 8, 2, 2)

    write(FOLDER / "types.gguf", add)
    save_file({k: np.ascontiguousarray(v) for k, v in want.items()}, FOLDER / "types.safetensors")


def write_split():
    def add(w):
        for i in range(5):
            w.add_tensor(f"blk.{i}.weight", np.full((2, 4), i, dtype=np.float32))

    write(FOLDER / "split.gguf", add, split_max_tensors=2)


def write_bare():
    tensors = [(b"model.diffusion_model.a", np.arange(6, dtype="<f4").reshape(2, 3)), (b"b", np.ones(4, dtype="<f2"))]
    head, offset = b"GGUF" + np.uint32(3).tobytes() + np.uint64(len(tensors)).tobytes() + np.uint64(0).tobytes(), 0
    data = b""
    for name, x in tensors:
        head += np.uint64(len(name)).tobytes() + name + np.uint32(x.ndim).tobytes()
        head += np.array(x.shape[::-1], "<u8").tobytes() + np.uint32(0 if x.itemsize == 4 else 1).tobytes()
        head += np.uint64(len(data)).tobytes()
        data += x.tobytes() + bytes(-x.nbytes % 32)
    (FOLDER / "bare.gguf").write_bytes(head + bytes(-len(head) % 32) + data)
    assert len(gguf.GGUFReader(FOLDER / "bare.gguf").tensors) == 2


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    write_types()
    write_split()
    write_bare()
