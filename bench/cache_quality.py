#!/usr/bin/env python3
"""What --cache costs in quality on the demo model: PSNR against the same steps without it, and against 200 steps.

    python3 bench/cache_quality.py build/lazuli                     prints the tables of docs/quality.md (needs numpy, Pillow)
    python3 bench/cache_quality.py build/lazuli --steps 20 --shares 0.5 auto --prompts 5
    ... -- --sampler dpm++2m                                        options of lazuli for all pictures but the 200 steps

A row with `steps` is the plain way to the same speed: fewer steps, without a cache.
"""

import argparse
import json
import math
import pathlib
import subprocess
import tempfile

import numpy as np
from PIL import Image

PROMPTS = [
    "a fox in 3d style on a blue background", "two red apples", "a pizza in line style on a yellow background", "a cat",
    "a hot beverage", "a bicycle", "a house with garden in flat style", "a sunflower in cartoon style",
    "an airplane on a green background", "a mushroom in classic style", "a robot in 3d style",
    "a sailboat on a red background", "three tulips", "a hamburger in line style", "a dog face",
    "a rocket in flat style on a black background", "a penguin", "a guitar in 3d style", "an octopus in cartoon style",
    "a wrapped gift on a purple background", "a red heart", "a butterfly in cartoon style", "a teapot in flat style",
    "a snowman on a blue background",
]


def paint(lazuli, folder, prompts, name, **settings):
    """Pictures of all prompts, one after another by one process -> pixels, number of evaluations."""
    lines = [json.dumps(dict(prompt=p, seed=i + 1, output=f"{name}-{i}.png", **settings)) for i, p in enumerate(prompts)]
    (folder / "list.jsonl").write_text("\n".join(lines) + "\n")
    subprocess.run([lazuli, "batch", "list.jsonl", "-q", "-m", "demo"], cwd=folder, check=True)
    return [np.asarray(Image.open(folder / f"{name}-{i}.png").convert("RGB"), float) for i in range(len(prompts))]


def evaluations(lazuli, **settings):
    words = [w for k, a in settings.items() for w in (f"--{k}", str(a))]
    plan = json.loads(subprocess.run([lazuli, "plan", "a", "-m", "demo", "--json", *words], check=True,
                                     capture_output=True).stdout)
    return plan["evaluations"]


def psnr(a, b):
    values = [10 * math.log10(255**2 / max(np.mean((x - y) ** 2), 1e-3)) for x, y in zip(a, b)]
    return np.mean(values), min(values)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lazuli", type=lambda p: str(pathlib.Path(p).resolve()))
    parser.add_argument("--steps", type=int, nargs="+", default=[20, 50])
    parser.add_argument("--shares", nargs="+", default=["0.3", "0.5", "0.6", "0.66", "0.75", "auto"])
    parser.add_argument("--prompts", type=int, default=len(PROMPTS))
    parser.add_argument("more", nargs="*", metavar="-- OPTION VALUE", help="options of lazuli")
    args = parser.parse_args()
    more = {k.removeprefix("--"): a for k, a in zip(args.more[::2], args.more[1::2])}
    prompts = PROMPTS[: args.prompts]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        truth = paint(args.lazuli, folder, prompts, "truth", steps=200)
        for steps in args.steps:
            full = paint(args.lazuli, folder, prompts, f"full{steps}", steps=steps, **more)
            print(f"{steps} steps, {len(prompts)} prompts: {psnr(full, truth)[0]:.1f} dB against 200 steps\n")
            print("| cache | passes computed | times less work | dB, same steps (worst) | dB, 200 steps | "
                  "as many steps instead: dB, 200 steps |\n|---|---|---|---|---|---|")
            for share in args.shares:
                got = paint(args.lazuli, folder, prompts, f"{steps}-{share}", steps=steps, cache=share, **more)
                n = evaluations(args.lazuli, steps=steps, cache=share, **more)
                fewer = paint(args.lazuli, folder, prompts, f"{steps}-{share}-fewer", steps=n, **more)
                mean, worst = psnr(got, full)
                print(f"| {share} | {n} | {steps / n:.2f} | {mean:.1f} ({worst:.1f}) | {psnr(got, truth)[0]:.1f} | "
                      f"{psnr(fewer, truth)[0]:.1f} |", flush=True)
            print()


if __name__ == "__main__":
    main()
