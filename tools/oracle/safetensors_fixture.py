"""Writes tests/data/python.safetensors and tests/data/python-shards with the reference implementation of safetensors,
for tests/test_safetensors.c, which knows the numbers: element i of every tensor is i % 7 - 2 (u8: i % 7; bool: i % 7 > 2).

With a path, reads a file that tests/test_safetensors.c wrote, by the same rule, and says whether all is as it should be.

    python tools/oracle/safetensors_fixture.py [FILE]
"""

import json
import pathlib
import sys

import torch
from safetensors import safe_open
from safetensors.torch import save_file

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data"
TYPES = {
    "bool": torch.bool,
    "u8": torch.uint8,
    "i8": torch.int8,
    "i32": torch.int32,
    "i64": torch.int64,
    "f8": torch.float8_e4m3fn,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
}
SHAPES = {"matrix": (3, 5), "vector": (11,), "scalar": (), "empty": (0, 4)}


def values(dtype, shape):
    count = int(torch.tensor(shape).prod()) if shape else 1
    numbers = torch.arange(count) % 7 - 2
    if dtype == torch.bool:
        return (numbers > 0).reshape(shape)
    if dtype == torch.uint8:
        numbers = numbers + 2
    return numbers.to(torch.float32).to(dtype).reshape(shape)


def write():
    tensors = {f"{kind}.{name}": values(dtype, shape) for name, dtype in TYPES.items() for kind, shape in SHAPES.items()}
    tensors['odd "name"\n\u00e9\U0001f600'] = values(torch.float32, (2,))
    tensors["unknown.i16"] = torch.arange(3, dtype=torch.int16)
    save_file(tensors, DATA / "python.safetensors", metadata={"format": "pt", "tab\t": "\u00e9"})

    shards = DATA / "python-shards"
    shards.mkdir(exist_ok=True)
    files = {"model-00001-of-00002.safetensors": ["a.weight", "a.bias"], "model-00002-of-00002.safetensors": ["b.weight"]}
    for file, names in files.items():
        save_file({name: values(torch.bfloat16, (4, 3)) for name in names}, shards / file, metadata={"format": "pt"})
    index = {"metadata": {"total_size": 72}, "weight_map": {name: file for file in files for name in files[file]}}
    (shards / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def check(path):
    with safe_open(path, "pt") as file:
        assert file.metadata() == {"made by": "lazuli", "\u00e9": 'quote " and \\'}, file.metadata()
        names = {f"{kind}.{name}" for name in TYPES for kind in SHAPES} | {'odd "name"\n\u00e9'}
        assert set(file.keys()) == names, set(file.keys()) ^ names
        for name, dtype in TYPES.items():
            for kind, shape in SHAPES.items():
                got, want = file.get_tensor(f"{kind}.{name}"), values(dtype, shape)
                assert got.dtype == want.dtype and got.shape == want.shape, (name, kind, got)
                assert torch.equal(got.to(torch.float64), want.to(torch.float64)), (name, kind, got)
    print(f"{path}: {len(names)} tensors as they should be")


if __name__ == "__main__":
    check(sys.argv[1]) if len(sys.argv) > 1 else write()
