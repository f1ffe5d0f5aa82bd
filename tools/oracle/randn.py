#!/usr/bin/env python3
"""Writes tests/data/randn.json: what torch.randn gives on a CPU with AVX2, for lz_randn to be compared with.

Each case has the first and last 20 numbers (all, up to 40 of them) as the bits of their f32, and the f64 sum of all.
Run it with a python that has torch: python3 tools/oracle/randn.py
"""

import json
import pathlib

import torch

SEEDS = [0, 1, 42, 2**31, 2**32 - 1, 2**32 + 5, 2**63]
SIZES = [1, 2, 3, 15, 16, 17, 31, 32, 33, 100, 1000]
LARGE = [(42, 100003), (2**32 + 5, 1 << 16)]
END = 20


def case(seed: int, size: int) -> dict:
    x = torch.randn(size, generator=torch.Generator("cpu").manual_seed(seed))
    bits = [f"{b & 0xFFFFFFFF:08x}" for b in x.view(torch.int32).tolist()]
    first, last = (bits, []) if size <= 2 * END else (bits[:END], bits[-END:])
    # seed as text: beyond 2^53 a JSON number is not safe
    total = x.double().sum().item()
    return {"seed": str(seed), "size": size, "first": " ".join(first), "last": " ".join(last), "sum": total}


def main() -> None:
    # Without AVX2 torch computes randn in another way, with other numbers.
    assert torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512"), "needs a CPU with AVX2"
    pairs = [(seed, size) for seed in SEEDS for size in SIZES] + LARGE
    lines = ",\n".join(json.dumps(case(seed, size)) for seed, size in pairs)
    path = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "randn.json"
    path.write_text(f'{{"torch": "{torch.__version__}", "cases": [\n{lines}\n]}}\n')
    print(f"{path}: {len(pairs)} cases, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
