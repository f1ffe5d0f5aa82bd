"""What a precision costs: scores and distances of the demo model's pictures, and the error of a large model's velocity.

    python tools/quality.py run OUT --reference own --axis precision=bf16,int8 --prompts 500 --judge judge.safetensors
    python tools/quality_precision.py table OUT                  # scores, and how far pictures are from those in f32
    python tools/quality_precision.py sheet OUT int8 TO.jpg      # the pictures that differ most: f32 above, int8 below
    python tools/quality_precision.py velocity MODEL --precisions bf16,int8      # a folder of any size, on a CPU
    python tools/quality_precision.py velocity MODEL --precisions bf16,fp8 --device cuda

The demo model's own settings are f32, so `own` is the reference. The gate of a precision is: the share of right things and
of right backgrounds is at most 0.5 points below that of f32, and the error of the velocity at most four times that of bf16.
Velocity: of the first step, (noise - latents) after one step from sigma 1 to 0; text: the features of the prompt. Both are
||x - f32|| / ||f32||.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import numpy as np
from PIL import Image, ImageDraw

HERE = pathlib.Path(__file__).resolve().parent
GATE_POINTS, GATE_VELOCITY = 0.5, 4.0


def read_measures(out: pathlib.Path) -> dict:
    """-> precision -> seed -> measures"""
    kept = {}
    for line in (out / "measures.jsonl").read_text().splitlines():
        m = json.loads(line)
        kept.setdefault(m.pop("settings").removeprefix("precision="), {})[m.pop("seed")] = m
    return kept


def table(arguments):
    lines = [json.loads(line) for line in (HERE / "demo-model/prompts.jsonl").read_text().splitlines()]
    held_out = {line["seed"] for line in lines if line["held_out"]}
    kept = read_measures(arguments.out)
    seeds = sorted(set.intersection(*(set(v) for v in kept.values())))
    print(f"{len(seeds)} prompts, {len(held_out & set(seeds))} of them of held-out pairs\n")
    print("| precision | right, % | of held-out pairs | background, % | PSNR, dB: mean (5 %, worst) | SSIM | gate |")
    print("|---|---:|---:|---:|---:|---:|---|")

    def share(measures, key, of):
        return 100 * float(np.mean([measures[s][key] for s in of])) if of else float("nan")

    for name, measures in kept.items():
        db, like = (np.array([measures[s][key] for s in seeds]) for key in ("psnr", "ssim"))
        right, ground = share(measures, "right", seeds), share(measures, "ground", seeds)
        far = f"{db.mean():.1f} ({np.percentile(db, 5):.1f}, {db.min():.1f})"
        near = f"{like.mean():.4f} ({np.percentile(like, 5):.3f}, {like.min():.3f})"
        lost = max(share(kept["own"], "right", seeds) - right, share(kept["own"], "ground", seeds) - ground)
        gate = "passes" if lost <= GATE_POINTS else f"{lost:.1f} points lost"
        held = share(measures, "right", [s for s in seeds if s in held_out])
        distances = ("", "", "") if name == "own" else (far, near, gate)
        title = "f32" if name == "own" else name
        print(f"| {title} | {right:.1f} | {held:.1f} | {ground:.1f} | " + " | ".join(distances) + " |")


def sheet(arguments):
    measures, side = read_measures(arguments.out)[arguments.precision], arguments.side
    worst = sorted(measures, key=lambda s: measures[s]["psnr"])[: arguments.n]
    page = Image.new("RGB", (len(worst) * side, 2 * side + 16), "white")
    for x, seed in enumerate(worst):
        ImageDraw.Draw(page).text((x * side + 4, 2), f"{measures[seed]['psnr']:.1f} dB", "black")
        for y, folder in enumerate(("own", f"precision={arguments.precision}")):
            picture = Image.open(arguments.out / folder / f"{seed}.png").convert("RGB")
            page.paste(picture.resize((side - 2, side - 2), Image.LANCZOS), (x * side, 16 + y * side))
    page.save(arguments.to, quality=85, optimize=True)


def dump(arguments, precision: str, folder: str) -> dict:
    from safetensors.numpy import load_file

    to = pathlib.Path(folder) / f"{precision}.safetensors"
    given = arguments.dumps / f"vel_{precision}.safetensors" if arguments.dumps else to
    if not given.exists():
        command = [arguments.lazuli, "-m", arguments.model, "-p", "a red fox in the snow", "-S", "1", "-s", "1", "-q"]
        size = ["-W", str(arguments.size), "-H", str(arguments.size), "--device", arguments.device]
        subprocess.run(
            [*command, *size, "--precision", precision, "--dump", str(to), "-o", str(to.with_suffix(".png"))], check=True
        )
    return load_file(given if given.exists() else to)


def velocity(arguments):
    def error(x, reference):
        return float(np.linalg.norm(x - reference) / np.linalg.norm(reference))

    with tempfile.TemporaryDirectory() as folder:
        exact = dump(arguments, "f32", folder)
        errors = {}
        print("| precision | text, % | velocity, % | times bf16 | gate |\n|---|---:|---:|---:|---|")
        for precision in arguments.precisions.split(","):
            got = dump(arguments, precision, folder)
            errors[precision] = error(got["noise"] - got["latents"], exact["noise"] - exact["latents"])
            times = errors[precision] / errors["bf16"] if "bf16" in errors else float("nan")
            gate = "passes" if times <= GATE_VELOCITY else "does not pass"
            text = error(got["text"], exact["text"])
            print(f"| {precision} | {100 * text:.2f} | {100 * errors[precision]:.2f} | {times:.2f} | {gate} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    table_, sheet_, velocity_ = (commands.add_parser(c) for c in ("table", "sheet", "velocity"))
    table_.add_argument("out", type=pathlib.Path)
    sheet_.add_argument("out", type=pathlib.Path)
    sheet_.add_argument("precision")
    sheet_.add_argument("to", type=pathlib.Path)
    sheet_.add_argument("--n", type=int, default=8)
    sheet_.add_argument("--side", type=int, default=128)
    velocity_.add_argument("model")
    velocity_.add_argument("--precisions", default="bf16,int8")
    velocity_.add_argument("--size", type=int, default=256)
    velocity_.add_argument("--lazuli", default="build/lazuli")
    velocity_.add_argument("--device", default="cpu")
    velocity_.add_argument("--dumps", type=pathlib.Path, help="a folder with vel_PRECISION.safetensors of --dump")
    arguments = parser.parse_args()
    dict(table=table, sheet=sheet, velocity=velocity)[arguments.command](arguments)


if __name__ == "__main__":
    main()
