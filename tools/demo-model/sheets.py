"""Paints the same prompts from the same noise with Lazuli and with diffusers, lays both out as sheets, and compares.

    python tools/demo-model/sheets.py models/demo build/lazuli docs      (needs diffusers)

Writes docs/demo-sheet.jpg, docs/demo-sheet-diffusers.jpg, docs/demo-sheet.md, and docs/demo-lora.jpg. The seed of a prompt is its place in
the list; the last four are (thing, style) pairs that were held out of the training.
"""

import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import torch
from diffusers import Flux2KleinPipeline
from PIL import Image

# a prompt; width, height and the seed of the picture that is changed, where they are not 256, 256 and none
PROMPTS = [
    ("a fox in 3d style on a blue background",),
    ("a cup of coffee",),
    ("a blue dog",),
    ("five balloons",),
    ("a cat left of a dog, flat style",),
    ("a purple elephant on a yellow background",),
    ("a pizza, line style",),
    ("a cute penguin, 8k, highly detailed",),
    ("three bananas in 3d style on pink",),
    ("a green guitar",),
    ("a castle in 3d style on a purple background",),
    ("a photo of a bike",),
    ("a teapot in white line style on teal",),
    ("a snowman above an evergreen tree in cartoon style on navy",),
    ("a bicycle in the top left corner in flat style on beige",),
    ("a red car next to a yellow bus",),
    ("six eggs on a green background",),
    ("\U0001f98a on a light green background",),
    ("a robot in cartoon style on a light green background",),
    ("an owl in classic style on lavender",),
    ("a sailboat on an orange background", 512, 256),
    ("two red apples", 128, 128),
    ("a tree", 512, 512),
    ("make it blue", 256, 256, 0),
    ("in line style", 256, 256, 0),
    ("three of them", 256, 256, 0),
    ("an optical disk in flat style on a yellow background",),
    ("a deer in classic style on a blue background",),
    ("a post office in flat style on a pink background",),
    ("a chestnut in classic style on a light blue background",),
]
HELD_OUT, COLUMNS, TILE = 4, 6, 160
LORA_PROMPTS = [
    "a fox",
    "a castle on a purple background",
    "a blue dog",
    "a slice of pizza",
    "a rocket in flat style",
    "five balloons on a light blue background",
]


def psnr(a, b):
    mse = np.mean((a.astype(float) - b.astype(float)) ** 2)
    return math.inf if mse == 0 else 10 * math.log10(255**2 / mse)


def lay_out(pictures, path):
    rows = math.ceil(len(pictures) / COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * TILE, rows * TILE), "white")
    for i, picture in enumerate(pictures):
        small = Image.fromarray(picture)
        small.thumbnail((TILE, TILE), Image.LANCZOS)
        x, y = i % COLUMNS * TILE + (TILE - small.width) // 2, i // COLUMNS * TILE + (TILE - small.height) // 2
        sheet.paste(small, (x, y))
    sheet.save(path, quality=88, optimize=True)


def by_lazuli(lazuli, folder, prompt, seed, width, height, reference, to) -> str:
    """Makes the picture. -> the prompt that the model gets, in which everyday words are replaced (words.txt)"""
    size, image = ["-W", str(width), "-H", str(height)], ["-i", reference] if reference else []
    done = subprocess.run(
        [lazuli, "-m", folder, "-p", prompt, "-S", str(seed), "-o", to, *size, *image],
        check=True,
        capture_output=True,
        text=True,
    )
    found = re.search('the prompt is read as "(.*)"', done.stderr)
    return found[1] if found else prompt


def lay_out_lora(lazuli, folder, work, path):
    """LORA_PROMPTS without the LoRA, with half of it, with all of it"""
    sheet = Image.new("RGB", (len(LORA_PROMPTS) * TILE, 3 * TILE))
    for row, weight in enumerate((0, 0.5, 1)):
        for column, prompt in enumerate(LORA_PROMPTS):
            to = f"{work}/lora.png"
            subprocess.run(
                [lazuli, "-m", folder, "-p", prompt, "-S", "3", "--lora", f"pixel={weight}", "-o", to, "-q"], check=True
            )
            sheet.paste(Image.open(to).convert("RGB").resize((TILE, TILE), Image.LANCZOS), (column * TILE, row * TILE))
    sheet.save(path, quality=88, optimize=True)


def main():
    folder, lazuli, docs = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    index = json.loads((folder / "model_index.json").read_text())
    names = ("num_inference_steps", "text_encoder_out_layers", "max_sequence_length")
    defaults = {name: index[name] for name in names}
    pipe = Flux2KleinPipeline.from_pretrained(folder, torch_dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    ours, theirs, lines = [], [], []
    with tempfile.TemporaryDirectory() as work:
        for seed, (prompt, *rest) in enumerate(PROMPTS):
            width, height, changed = (*rest, *(256, 256, None)[len(rest) :])
            path, reference = f"{work}/{seed}.png", None if changed is None else f"{work}/{changed}.png"
            words = by_lazuli(lazuli, folder, prompt, seed, width, height, reference, path)
            ours.append(np.asarray(Image.open(path).convert("RGB")))
            given = dict(defaults, width=width, height=height)
            if reference:
                given["image"] = Image.open(reference).convert("RGB")
            shape = 1, pipe.transformer.config.in_channels, height // 16, width // 16
            noise = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
            with torch.no_grad():
                theirs.append(np.asarray(pipe(prompt=words, latents=noise, **given).images[0]))
            what = [] if (width, height) == (256, 256) else [f"{width} x {height}"]
            what += [f"changes picture {changed}"] if reference else []
            what += ["held out"] if seed >= len(PROMPTS) - HELD_OUT else []
            lines.append(f"| {seed} | {prompt} | {', '.join(what)} | {psnr(ours[-1], theirs[-1]):.1f} |\n")
            print(lines[-1], end="", flush=True)
        lay_out_lora(lazuli, folder, work, docs / "demo-lora.jpg")
    lay_out(ours, docs / "demo-sheet.jpg")
    lay_out(theirs, docs / "demo-sheet-diffusers.jpg")
    (docs / "demo-sheet.md").write_text(
        "# The demo model, by Lazuli and by diffusers\n\n"
        "Both sheets use the same weights and the same noise, in float32 on a CPU. The seed of a prompt is its number, "
        "counted row by row.\nLazuli reads everyday words as names that the model knows (`words.txt`), and diffusers "
        "was given these. `tools/demo-model/sheets.py` makes this page.\n\n"
        "Lazuli:\n\n![Lazuli](demo-sheet.jpg)\n\ndiffusers:\n\n![diffusers](demo-sheet-diffusers.jpg)\n\n"
        "| seed | prompt | | PSNR, dB |\n|---:|---|---|---:|\n" + "".join(lines)
    )


if __name__ == "__main__":
    main()
