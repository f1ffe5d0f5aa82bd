#!/usr/bin/env python3
"""Is Lazuli as exact as diffusers? The same model, prompt and noise; the reference is diffusers in float32 (TF32 off).

    klein_parity.py --model DIR --lazuli build/lazuli [--sizes 512 1024] [--steps 1 4] [--device cuda] [--results FILE]

For each size and number of steps, how far Lazuli and diffusers in bf16 are from the reference, and Lazuli in f32:

    text      ||x - ref|| / ||ref|| of what the prompt became
    velocity  the same of the first velocity, (noise - latents) after one step from sigma 1 to 0
    latents   the same of the last latents
    image     PSNR in dB, pixels in 0..1 before rounding

bf16 passes with at most 1.2 times diffusers' own bf16 error (1.6 dB less), f32 with 1e-3 and 50 dB. Where many steps of
a random model blow up rounding, one step tells more. Exit code 1: something did not pass.
"""

import argparse
import contextlib
import json
import math
import pathlib
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import torch
from safetensors.torch import load_file, save_file
from torch.nn.attention import SDPBackend, sdpa_kernel

PROMPT, SEED = "a red fox in the snow", 42
MOST, F32_ERROR, F32_DB = 1.2, 1e-3, 50.0


def lazuli(args, size, steps, precision, folder):
    """Its tensors as --dump writes them: text, noise, latents, image."""
    dump = folder / f"{precision}-{size}-{steps}.safetensors"
    command = [args.lazuli, "-m", args.model, "-p", PROMPT, "-W", size, "-H", size, "-s", steps, "-q", "--noise",
               folder / f"noise-{size}.safetensors", "--device", args.lazuli_device, "--precision", precision,
               "--dump", dump, "-o", folder / "picture.png"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"lazuli {precision} {size} x {size}: {done.stderr.strip()}")
    tensors = load_file(dump)
    dump.unlink()
    return tensors


def diffusers(args, dtype, folder):
    """(size, steps): the same tensors"""
    from diffusers import Flux2KleinPipeline

    pipe = Flux2KleinPipeline.from_pretrained(args.model, dtype=dtype).to(args.device)
    pipe.set_progress_bar_config(disable=True)
    index = json.loads((pathlib.Path(args.model) / "model_index.json").read_text())
    options = {k: index[k] for k in ("text_encoder_out_layers", "max_sequence_length") if k in index}
    made = {}
    for size, steps in args.cases:
        seen, noise = {}, load_file(folder / f"noise-{size}.safetensors")["noise"]
        hook = pipe.transformer.register_forward_pre_hook(
            lambda _, a, kw: seen.update(text=kw["encoder_hidden_states"]), with_kwargs=True)

        def on_step(_, i, t, tensors):
            seen["latents"] = tensors["latents"].permute(0, 2, 1).reshape(noise.shape)  # [1, h w, c] -> [1, c, h, w]
            return {}

        # In float32 attention is the plain one: the faster kinds may round inside.
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH) if dtype == torch.float32 else contextlib.nullcontext():
            seen["image"] = pipe(prompt=PROMPT, width=size, height=size, num_inference_steps=steps, guidance_scale=1.0,
                                 latents=noise.to(args.device, dtype), output_type="pt", callback_on_step_end=on_step,
                                 **options).images
        hook.remove()
        made[size, steps] = dict({k: v.float().cpu() for k, v in seen.items()}, noise=noise)
    return made


def relative(got, want):
    got, want = got.double(), want.double()
    return ((got - want).norm() / want.norm()).item()


def measure(what, got, want):
    """Its error; for a picture the PSNR, which is larger when better."""
    if what == "image":
        square = (got[what].double() - want[what].double()).square().mean().item()
        return -10 * math.log10(square) if square else math.inf
    if what == "velocity":
        return relative(want["noise"] - got["latents"], want["noise"] - want["latents"])
    return relative(got[what], want[what])


def show(what, x):
    return f"{x:.2f} dB" if what == "image" else f"{x:.2e}"


def tell(args, line, **fields):
    print(line, flush=True)
    if args.results:
        with open(args.results, "a") as file:
            file.write(json.dumps(dict(stage="parity", **fields)) + "\n")
    return fields["passed"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--lazuli", default="build/lazuli")
    parser.add_argument("--sizes", type=int, nargs="+", default=[512, 1024])
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--lazuli-device", default="cuda")
    parser.add_argument("--results", help="lines of JSON are added to this file")
    args = parser.parse_args()
    args.cases = [(size, steps) for size in args.sizes for steps in args.steps]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False

    passed = True
    channels = json.loads((pathlib.Path(args.model) / "transformer" / "config.json").read_text())["in_channels"]
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(1) as beside:  # Lazuli runs while Python loads
        folder = pathlib.Path(name)
        for size in args.sizes:
            noise = torch.randn(1, channels, size // 16, size // 16, generator=torch.Generator().manual_seed(SEED))
            save_file({"noise": noise}, folder / f"noise-{size}.safetensors")
        ours = {(p, c): beside.submit(lazuli, args, *c, p, folder) for c in args.cases for p in ("bf16", "f32")}
        reference, theirs = (diffusers(args, dtype, folder) for dtype in (torch.float32, torch.bfloat16))
        row = "{:>5} {:>5} {:9} {:>11} {:>11} {:>6} {:>11}  {}".format
        print(row("size", "steps", "", "lazuli bf16", "diffusers", "ratio", "lazuli f32", ""))
        for case in args.cases:
            want = reference[case]
            try:
                bf16, f32 = ours["bf16", case].result(), ours["f32", case].result()
            except RuntimeError as e:
                passed = tell(args, row(*case, "", "", "", "", "", f"FAIL: {e}"), what="failed", passed=False)
                continue
            for what in ("text", "velocity" if case[1] == 1 else "latents", "image"):
                a, b, c = (measure(what, x, want) for x in (bf16, theirs[case], f32))
                ratio = 10 ** ((b - a) / 20) if what == "image" else a / b
                fine, exact = ratio <= MOST, c >= F32_DB if what == "image" else c <= F32_ERROR
                verdict = ("pass" if fine else "FAIL") + ("" if exact else ", f32 FAIL")
                passed = passed and fine and exact
                tell(args, row(*case, what, show(what, a), show(what, b), f"{ratio:.2f}", show(what, c), verdict),
                     what=what, size=case[0], steps=case[1], bf16=a, diffusers=b, ratio=ratio, f32=c,
                     passed=fine and exact)
    print("parity: " + ("pass" if passed else "FAIL"))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
