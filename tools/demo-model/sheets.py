"""Paints the same prompts from the same noise with Lazuli and with diffusers, lays both out as sheets, and compares.

    python tools/demo-model/sheets.py models/demo build/lazuli docs      (needs diffusers)

Writes docs/demo-sheet.jpg, docs/demo-sheet-diffusers.jpg and docs/demo-sheet.md. The seed of a prompt is its place in
the list; the last six are (thing, style) pairs that were held out of the training.
"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
from diffusers import Flux2KleinPipeline
from PIL import Image

PROMPTS = [
    "a fox in 3d style on a blue background",
    "a red apple",
    "two red apples",
    "a cat left of a dog, flat style",
    "a rocket in flat style on a dark blue background",
    "an octopus in cartoon style on yellow",
    "a pizza, line style",
    "a small penguin on a light blue background",
    "three bananas in 3d style on pink",
    "a guitar in 3d style",
    "a castle in 3d style on a purple background",
    "a big strawberry on a white background",
    "a teapot in white line style on teal",
    "a snowman above an evergreen tree in cartoon style on navy",
    "a bicycle in the top left corner in flat style on beige",
    "a tiger and an elephant, 3d style, green background",
    "four mushrooms in cartoon style",
    "a sailboat on an orange background",
    "a robot in cartoon style on a light green background",
    "an owl in classic style on lavender",
    "a cup of hot beverage in flat style on a brown background",
    "a snail at the bottom on a yellow background",
    "a sunflower in flat style on a dark green background",
    "a lion left of a bear",
    "an optical disk in flat style on a yellow background",
    "a deer in classic style on a blue background",
    "a horizontal traffic light in cartoon style on a white background",
    "a post office in flat style on a pink background",
    "an open file folder in cartoon style on a green background",
    "a chestnut in classic style on a light blue background",
]
HELD_OUT, COLUMNS, TILE = 6, 6, 160


def psnr(a, b):
    mse = np.mean((a.astype(float) - b.astype(float)) ** 2)
    return math.inf if mse == 0 else 10 * math.log10(255**2 / mse)


def lay_out(pictures, path):
    rows = math.ceil(len(pictures) / COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * TILE, rows * TILE), "white")
    for i, picture in enumerate(pictures):
        small = Image.fromarray(picture).resize((TILE, TILE), Image.LANCZOS)
        sheet.paste(small, (i % COLUMNS * TILE, i // COLUMNS * TILE))
    sheet.save(path, quality=88, optimize=True)


def main():
    folder, lazuli, docs = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    index = json.loads((folder / "model_index.json").read_text())
    names = ("num_inference_steps", "width", "height", "text_encoder_out_layers", "max_sequence_length")
    defaults = {name: index[name] for name in names}
    pipe = Flux2KleinPipeline.from_pretrained(folder, torch_dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    shape = 1, pipe.transformer.config.in_channels, index["height"] // 16, index["width"] // 16
    ours, theirs, lines = [], [], []
    for seed, prompt in enumerate(PROMPTS):
        noise = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            theirs.append(np.asarray(pipe(prompt=prompt, latents=noise, **defaults).images[0]))
        with tempfile.NamedTemporaryFile(suffix=".png") as file:
            subprocess.run([lazuli, "-m", folder, "-p", prompt, "-S", str(seed), "-o", file.name, "-q"], check=True)
            ours.append(np.asarray(Image.open(file.name).convert("RGB")))
        held = "held out" if seed >= len(PROMPTS) - HELD_OUT else ""
        lines.append(f"| {seed} | {prompt} | {held} | {psnr(ours[-1], theirs[-1]):.1f} |\n")
        print(lines[-1], end="", flush=True)
    lay_out(ours, docs / "demo-sheet.jpg")
    lay_out(theirs, docs / "demo-sheet-diffusers.jpg")
    (docs / "demo-sheet.md").write_text(
        "# The demo model, by Lazuli and by diffusers\n\n"
        "Both sheets use the same weights and the same noise, in float32 on a CPU. The seed of a prompt is its number, "
        "counted row by row.\n`tools/demo-model/sheets.py` makes this page.\n\n"
        "Lazuli:\n\n![Lazuli](demo-sheet.jpg)\n\ndiffusers:\n\n![diffusers](demo-sheet-diffusers.jpg)\n\n"
        "| seed | prompt | | PSNR, dB |\n|---:|---|---|---:|\n" + "".join(lines)
    )


if __name__ == "__main__":
    main()
