"""Writes what tests/test_demo.c compares with: pictures of the demo model as diffusers paints them, in float32 on the
CPU, from the noise of torch's seed, which is also Lazuli's. To be run again whenever the weights change.

python tools/demo-model/goldens.py [models/demo [tests/data/demo]]      (needs diffusers)
"""

import json
import pathlib
import shutil
import sys

import torch
from diffusers import Flux2KleinPipeline

# name, seed, prompt: one thing, several, and a style without colours
CASES = [
    ("fox", 1, "a fox in 3d style on a blue background"),
    ("apples", 2, "two red apples"),
    ("pizza", 3, "a pizza in line style on a yellow background"),
]


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else root / "models/demo"
    to = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else root / "tests/data/demo"
    # diffusers takes as arguments of the call what the folder names as its defaults
    index = json.loads((folder / "model_index.json").read_text())
    names = ("num_inference_steps", "width", "height", "text_encoder_out_layers", "max_sequence_length")
    defaults = {name: index[name] for name in names}
    pipe = Flux2KleinPipeline.from_pretrained(folder, torch_dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    channels = pipe.transformer.config.in_channels

    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    lines = ["# Made by tools/demo-model/goldens.py with diffusers: name, seed, prompt\n"]
    for name, seed, prompt in CASES:
        shape = 1, channels, index["height"] // 16, index["width"] // 16
        noise = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            picture = pipe(prompt=prompt, latents=noise, **defaults).images[0]
        picture.save(to / f"{name}.png", optimize=True)
        lines.append(f"{name} {seed} {prompt}\n")
        print(f"{to / name}.png: {(to / f'{name}.png').stat().st_size} bytes", flush=True)
    (to / "cases.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
