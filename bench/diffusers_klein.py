#!/usr/bin/env python3
"""Pictures with FLUX.2 [klein] by diffusers on the CPU, for bench/klein: seconds of each stage, one line of JSON for a picture.

    diffusers_klein.py DIR [--size 256] [--steps 4] [--precision bf16] [--int8] [--compile] [--runs 1] [--out FILE.png]

--int8 quantises the layers of the transformer and the text encoder with torchao, weights and activations. The model is loaded before the measurement. With --runs 2, the second picture is measured after everything was used once.
"""

import argparse
import json
import time

import torch
from diffusers import Flux2KleinPipeline


def timed(module, name, seconds, method="forward"):
    """Adds up the seconds that a method of a module takes."""
    call = getattr(module, method)

    def wrapper(*args, **kwargs):
        begun = time.perf_counter()
        result = call(*args, **kwargs)
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - begun
        return result

    setattr(module, method, wrapper)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dir")
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--precision", choices=["bf16", "f32"], default="bf16")
    parser.add_argument("--int8", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--prompt", default="a red fox in the snow")
    parser.add_argument("--out")
    args = parser.parse_args()

    if args.threads:
        torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    begun = time.perf_counter()
    dtype = torch.bfloat16 if args.precision == "bf16" else torch.float32
    pipe = Flux2KleinPipeline.from_pretrained(args.dir, torch_dtype=dtype)
    pipe.set_progress_bar_config(disable=True)
    if args.int8:
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_
        for part in (pipe.transformer, pipe.text_encoder):
            quantize_(part, Int8DynamicActivationInt8WeightConfig())
    load = time.perf_counter() - begun
    if args.compile:
        if args.int8:
            pipe.text_encoder.forward = torch.compile(pipe.text_encoder.forward)
        pipe.transformer.forward = torch.compile(pipe.transformer.forward)  # without the timer inside, which would cause repeated compilation
    seconds = {}
    timed(pipe.text_encoder, "text", seconds)
    timed(pipe.transformer, "steps", seconds)
    timed(pipe.vae, "decode", seconds, "decode")
    for _ in range(args.runs):
        seconds.clear()
        begun = time.perf_counter()
        image = pipe(prompt=args.prompt, height=args.size, width=args.size, num_inference_steps=args.steps,
                     generator=torch.Generator("cpu").manual_seed(42)).images[0]
        whole = time.perf_counter() - begun
        print(json.dumps({"load": load, "text": seconds["text"], "step": seconds["steps"] / args.steps,
                          "decode": seconds["decode"], "whole": whole, "threads": torch.get_num_threads(),
                          "torch": torch.__version__}), flush=True)
    if args.out:
        image.save(args.out)


if __name__ == "__main__":
    main()
