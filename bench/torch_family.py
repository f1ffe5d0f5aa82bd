#!/usr/bin/env python3
"""A model folder by diffusers on a GPU, beside what cuda_klein measures of Lazuli with the same folder.

    torch_family.py MODEL [--size 1024] [--steps 8] [--guidance 0] [--seconds 300] [--device cuda]

Prints lines of JSON: a pass of the transformer and the whole picture (prompt to bytes), as diffusers comes (eager) and with its
repeated blocks compiled (compiled). The pass is called with the arguments that the pipeline gave it. Times are medians of
five after two to warm up, each waited for.
"""

import argparse
import json
import statistics
import time

import torch

BEGUN = time.perf_counter()


def median_ms(run, warm=2, runs=5):
    times = []
    for i in range(warm + runs):
        start = time.perf_counter()
        run()
        if ARGS.device == "cuda":
            torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return dict(first_ms=times[0], ms=statistics.median(times[warm:]))


def emit(**fields):
    print(json.dumps(dict(size=ARGS.size, steps=ARGS.steps, **fields, seconds=time.perf_counter() - BEGUN)), flush=True)


def capture(transformer, run):
    """The arguments of the first call of the transformer in run()."""
    calls = []
    hook = transformer.register_forward_pre_hook(lambda _, args, kwargs: calls.append((args, kwargs)), with_kwargs=True)
    run()
    hook.remove()
    return calls[0]


def measure(engine, pipe, picture):
    with torch.no_grad():
        args, kwargs = capture(pipe.transformer, picture)
        emit(engine=engine, what="pass", **median_ms(lambda: pipe.transformer(*args, **kwargs)))
    emit(engine=engine, what="whole", **median_ms(picture, warm=1, runs=3))


def main():
    from diffusers import DiffusionPipeline

    pipe = DiffusionPipeline.from_pretrained(ARGS.model, torch_dtype=torch.bfloat16).to(ARGS.device)
    pipe.set_progress_bar_config(disable=True)

    def picture():
        return pipe(prompt="a red fox in the snow", width=ARGS.size, height=ARGS.size, num_inference_steps=ARGS.steps,
                    guidance_scale=ARGS.guidance).images[0].tobytes()

    measure("eager", pipe, picture)
    if ARGS.device == "cuda":
        emit(engine="eager", what="peak_gib", ms=torch.cuda.max_memory_allocated() / 2**30)
    if time.perf_counter() - BEGUN > ARGS.seconds:
        return
    pipe.transformer.compile_repeated_blocks(fullgraph=False)
    pipe.vae.decode = torch.compile(pipe.vae.decode)
    measure("compiled", pipe, picture)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--guidance", type=float, default=0)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--device", default="cuda")
    ARGS = parser.parse_args()
    main()
