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
from PIL import Image

# name, seed, width, height, name of the reference or -, prompt: one thing, several, a style without colours, other sizes, an edit
CASES = [
    ("fox", 1, 256, 256, "-", "a fox in 3d style on a blue background"),
    ("apples", 2, 256, 256, "-", "two red apples"),
    ("pizza", 3, 256, 256, "-", "a pizza in line style on a yellow background"),
    ("line", 7, 256, 256, "fox", "in line style"),
    ("dog", 4, 128, 128, "-", "a blue dog"),
    ("balloons", 5, 512, 256, "-", "five balloons"),
    ("castle", 6, 512, 512, "-", "a castle on a purple background"),
]
# the same with a LoRA that comes with the model: name of the picture and of the LoRA, seed, prompt
ADAPTED = [("pixel", 8, "a panda in flat style on a green background")]


def paint(pipe, given: dict, seed: int, prompt: str):
    """A picture from the noise of the seed. given: what the folder names as its defaults, which diffusers takes as arguments"""
    shape = 1, pipe.transformer.config.in_channels, given["height"] // 16, given["width"] // 16
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        return pipe(prompt=prompt, latents=noise, **given).images[0]


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else root / "models/demo"
    to = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else root / "tests/data/demo"
    index = json.loads((folder / "model_index.json").read_text())
    names = ("num_inference_steps", "width", "height", "text_encoder_out_layers", "max_sequence_length")
    defaults = {name: index[name] for name in names}
    pipe = Flux2KleinPipeline.from_pretrained(folder, torch_dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)

    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    lines = ["# Made by tools/demo-model/goldens.py with diffusers: name, seed, width, height, reference or -, prompt\n"]
    for name, seed, width, height, reference, prompt in CASES:
        given = dict(defaults, width=width, height=height)
        if reference != "-":
            given["image"] = Image.open(to / f"{reference}.png").convert("RGB")
        paint(pipe, given, seed, prompt).save(to / f"{name}.png", optimize=True)
        lines.append(f"{name} {seed} {width} {height} {reference} {prompt}\n")
        print(f"{to / name}.png: {(to / f'{name}.png').stat().st_size} bytes", flush=True)
    (to / "cases.txt").write_text("".join(lines))
    for name, seed, prompt in ADAPTED:
        pipe.load_lora_weights(folder / "loras", weight_name=f"{name}.safetensors")
        paint(pipe, defaults, seed, prompt).save(to / f"{name}.png", optimize=True)
        pipe.unload_lora_weights()


if __name__ == "__main__":
    main()
