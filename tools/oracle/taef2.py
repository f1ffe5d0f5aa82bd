#!/usr/bin/env python3
"""Golden values for TAEF2, the tiny autoencoder for FLUX.2: taef2*.safetensors in tests/data/flux2.

    python3 tools/oracle/taef2.py [folder of the real weights, default ../shared/data/taef2]

The real weights (5 MB, width 64) are too large for this repository. These are random ones in the same structure and
under the same names, but narrow: width 8, pool width 32, 32 latent channels, float16. If the real weights are present,
this code is first checked against the values that came with them.
"""

import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data" / "flux2"
WIDTH, POOL, LATENT, POOL_GROUPS = 8, 32, 32, 4

# Layers by their number in the tensors' names (taesd by Ollin Boer Bohan). Blocks with "pool" see the whole picture.
ENCODER = {0: "in", 1: "block", 2: "half", 3: "block", 4: "block", 5: "block", 6: "half", 7: "block", 8: "block",
           9: "block", 10: "half", 11: "pool", 12: "pool", 13: "pool", 14: "out"}
DECODER = {0: "clamp", 1: "in", 2: "relu", 3: "pool", 4: "pool", 5: "pool", 6: "double", 7: "conv", 8: "block",
           9: "block", 10: "block", 11: "double", 12: "conv", 13: "block", 14: "block", 15: "block", 16: "double",
           17: "conv", 18: "block", 19: "out"}


def random_weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator("cpu").manual_seed(20)
    weights = {}

    def conv(name, outputs, inputs, size=3, bias=True, gain=1.4):  # 1.4: relu halves the variance
        scale = gain / (inputs * size * size) ** 0.5
        weights[f"{name}.weight"] = scale * torch.randn((outputs, inputs, size, size), generator=generator)
        if bias:
            weights[f"{name}.bias"] = 0.1 * torch.randn(outputs, generator=generator)

    for part, layers, inputs, outputs in ("encoder", ENCODER, 3, LATENT), ("decoder", DECODER, LATENT, 3):
        for n, kind in layers.items():
            name = f"{part}.{n}"
            if kind == "in":
                conv(name, WIDTH, inputs)
            if kind == "out":
                conv(name, outputs, WIDTH, gain=0.35)
            if kind in ("half", "conv"):
                conv(name, WIDTH, WIDTH, bias=False, gain=1.0)
            if kind == "pool":
                conv(f"{name}.pool.0", POOL, WIDTH, size=1, bias=False)
                weights[f"{name}.pool.1.weight"] = 1 + 0.2 * torch.randn(POOL, generator=generator)
                weights[f"{name}.pool.1.bias"] = 0.2 * torch.randn(POOL, generator=generator)
                conv(f"{name}.pool.3", WIDTH, POOL, size=1, bias=False, gain=0.5)
            if kind in ("block", "pool"):
                for i in 0, 2, 4:
                    conv(f"{name}.conv.{i}", WIDTH, WIDTH, gain=0.7 if i == 4 else 1.4)
    return {k: v.half() for k, v in weights.items()}


def run(weights: dict[str, torch.Tensor], part: str, x: torch.Tensor) -> torch.Tensor:
    """encoder: image [1,3,H,W] in 0..1 -> latent [1,32,H/8,W/8]; decoder: the way back, not clamped."""

    def conv(name, x, stride=1):
        w = weights[f"{name}.weight"].to(x.dtype)
        b = weights.get(f"{name}.bias")
        return F.conv2d(x, w, None if b is None else b.to(x.dtype), stride=stride, padding=w.shape[-1] // 2)

    for n, kind in (ENCODER if part == "encoder" else DECODER).items():
        name = f"{part}.{n}"
        if kind == "clamp":
            x = 3 * torch.tanh(x / 3)
        if kind in ("in", "out", "conv"):
            x = conv(name, x)
        if kind == "half":
            x = conv(name, x, stride=2)
        if kind == "relu":
            x = F.relu(x)
        if kind == "double":
            x = F.interpolate(x, scale_factor=2, mode="nearest")
        if kind == "pool":
            norm = [weights[f"{name}.pool.1.{k}"].to(x.dtype) for k in ("weight", "bias")]
            x = x + conv(f"{name}.pool.3", F.relu(F.group_norm(conv(f"{name}.pool.0", x), POOL_GROUPS, *norm)))
        if kind in ("block", "pool"):
            y = F.relu(conv(f"{name}.conv.0", x))
            y = F.relu(conv(f"{name}.conv.2", y))
            x = F.relu(conv(f"{name}.conv.4", y) + x)
    return x


def packed(latent: torch.Tensor) -> torch.Tensor:
    """[1,32,h,w] -> [1,128,h/2,w/2], channel = latent channel * 4 + row parity * 2 + column parity"""
    return F.pixel_unshuffle(latent, 2)


def check_with_real_weights(folder: pathlib.Path) -> None:
    if not (folder / "taef2.safetensors").exists():
        print(f"{folder}: no real weights, not checked against them")
        return
    weights, want = load_file(folder / "taef2.safetensors"), load_file(folder / "latent.safetensors")
    image = torch.from_numpy(np.array(Image.open(folder / "image.png"))).permute(2, 0, 1)[None] / 255
    got = dict(latent=run(weights, "encoder", image)[0], recon=run(weights, "decoder", want["latent"][None])[0])
    got["packed"] = packed(got["latent"][None])[0]
    for name, value in got.items():
        off = (value - want[name]).abs().max().item()
        print(f"real weights: {name} is off by {off:.1e}")
        assert off < 2e-5
    # Same names and numbers of dimensions, so that a reader of the real file reads the narrow one.
    narrow = random_weights()
    assert narrow.keys() == weights.keys() and all(narrow[k].ndim == weights[k].ndim for k in narrow)


@torch.no_grad()
def main() -> None:
    torch.set_num_threads(1)
    check_with_real_weights(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT.parent / "shared/data/taef2")

    weights = random_weights()
    # Not square, so that a mix-up of height and width shows.
    image = torch.rand((1, 3, 32, 48), generator=torch.Generator("cpu").manual_seed(21))
    image = F.avg_pool2d(F.pad(image, (2, 2, 2, 2), mode="reflect"), 5, stride=1)
    latent = run(weights, "encoder", image)
    # A latent of its own for the decoder, of the size that the transformer's latents have, with the clamp at work.
    noise = 1.5 * torch.randn((1, LATENT, 4, 6), generator=torch.Generator("cpu").manual_seed(22))
    golden = dict(image=image, latent=latent, packed=packed(latent), noise=noise,
                  decoded=run(weights, "decoder", noise), recon=run(weights, "decoder", latent))
    double = {k: v.double() for k, v in golden.items()}
    for name, exact in dict(latent=run(weights, "encoder", double["image"]),
                            decoded=run(weights, "decoder", double["noise"])).items():
        off = ((double[name] - exact).norm() / exact.norm()).item()
        print(f"{name}: {golden[name].mean():.2f} +- {golden[name].std():.2f}, f32 against f64 {off:.1e}")
    save_file(weights, DATA / "taef2.safetensors")
    save_file({k: v.contiguous() for k, v in golden.items()}, DATA / "taef2_golden.safetensors")
    for name in "taef2.safetensors", "taef2_golden.safetensors":
        print(f"{DATA / name}: {(DATA / name).stat().st_size} bytes")


if __name__ == "__main__":
    main()
