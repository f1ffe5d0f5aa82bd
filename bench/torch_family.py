#!/usr/bin/env python3
"""A model folder by diffusers on a GPU, beside what cuda_klein measures of Lazuli with the same folder.

    torch_family.py MODEL [--size 1024] [--steps 8] [--guidance 0] [--seconds 300] [--device cuda]

Prints lines of JSON: a pass of the transformer and the whole picture (prompt to bytes), as diffusers comes (eager) and with its
repeated blocks compiled (compiled). The pass is called with the arguments that the pipeline gave it. Times are medians of
five after two to warm up, each waited for.
"""

import argparse
import inspect
import json
import pathlib
import statistics
import time

import torch

BEGUN = time.perf_counter()
# For messages whose content is a list of texts; a folder of lazuli-synth has a template for plain texts only.
CHAT = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{% for part in m.content %}{{ part.text }}{% endfor %}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


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


def load_processor(folder):
    """Its tokenizer is read; images are not used, so the image processors may have their defaults."""
    from transformers import AutoTokenizer, Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor

    tokenizer = AutoTokenizer.from_pretrained(folder)
    return Qwen3VLProcessor(image_processor=Qwen2VLImageProcessor(), tokenizer=tokenizer,
                            video_processor=Qwen3VLVideoProcessor(), chat_template=CHAT)


def load_modular(folder):
    """FLUX.3 [klein], which diffusers has as modular blocks. The prompt upsampler is left out."""
    from diffusers import (AutoencoderKLFlux2, FlowMatchEulerDiscreteScheduler, Flux3DistilledAutoBlocks,
                           Flux3Transformer2DModel)
    from transformers import Qwen3VLForConditionalGeneration

    blocks = Flux3DistilledAutoBlocks()
    blocks.sub_blocks.pop("prompt_upsampler")
    pipe = blocks.init_pipeline()
    pipe.update_components(
        scheduler=FlowMatchEulerDiscreteScheduler.from_pretrained(folder / "scheduler"),
        vae=AutoencoderKLFlux2.from_pretrained(folder / "vae", torch_dtype=torch.bfloat16),
        text_encoder=Qwen3VLForConditionalGeneration.from_pretrained(folder / "text_encoder", dtype=torch.bfloat16).eval(),
        tokenizer=load_processor(folder / "tokenizer"),
        transformer=Flux3Transformer2DModel.from_pretrained(folder / "transformer", torch_dtype=torch.bfloat16))
    return pipe


def main():
    from diffusers import DiffusionPipeline

    folder = pathlib.Path(ARGS.model)
    modular = (folder / "modular_model_index.json").exists()
    own = {"processor": load_processor(folder / "processor")} if (folder / "processor").exists() else {}
    pipe = load_modular(folder) if modular else DiffusionPipeline.from_pretrained(folder, torch_dtype=torch.bfloat16, **own)
    pipe.to(ARGS.device)
    pipe.set_progress_bar_config(disable=True)
    options = dict(prompt="a red fox in the snow", width=ARGS.size, height=ARGS.size, num_inference_steps=ARGS.steps)
    known = [] if modular else inspect.signature(pipe.__call__).parameters
    options |= {name: ARGS.guidance for name in ("guidance_scale", "true_cfg_scale") if name in known}

    def picture():
        with torch.no_grad():
            made = pipe(**options)
        return (made.get("images") if modular else made.images)[0].tobytes()

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
