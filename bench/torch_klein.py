#!/usr/bin/env python3
"""FLUX.2 [klein] by diffusers, stage by stage: the other half of bench/cuda, which starts this and prints the tables.

    torch_klein.py STAGE --results FILE [--model DIR] [--sizes 256 512 1024] [--device cuda] [--seconds 300]
                         [--rest 0.5] [--tokens 11] [--engines recorded graphs blocks]

    ceilings   the highest rates on this machine: a matrix product, attention, copies
    eager      diffusers without torch.compile
    compiled   with the options that its manual advises: torch.compile, cuDNN's attention, a channels-last autoencoder. `blocks`
               compiles block by block and tunes products; `graphs` compiles the whole transformer for CUDA graphs; `recorded`
               compiles block by block and records a step as one CUDA graph, which compiles fastest
    torchao    as compiled, after torchao quantised the linear layers of the transformer's blocks to fp8, with a scale for
               each row of weights and of activations. All other layers stay in bf16, as in Lazuli
    qwen_eager, qwen_compiled
               Qwen-Image's transformer alone, one pass, with weights made here and a prompt of so many tokens: `blocks`
               compiles block by block, `graph` records that as one CUDA graph, `tuned` tunes products

Parts of the pipeline are called with the tensors that the pipeline itself made for them. Times are medians of five or
more after warming up, and the host waits for each; rested_ms is the median of three, each after a pause. Each result is a
line of JSON that is written at once, so it is kept if the program is stopped.
"""

import argparse
import copy
import json
import pathlib
import statistics
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

PROMPT, STEPS = "a red fox in the snow", 4
FASTEST_FIRST = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION,
                 SDPBackend.MATH]
BEGUN = now = time.perf_counter()
now = time.perf_counter


def sync():
    if ARGS.device == "cuda":
        torch.cuda.synchronize()


def emit(what, **fields):
    line = json.dumps(dict(stage=ARGS.stage, what=what, **fields))
    with open(ARGS.results, "a") as file:
        file.write(line + "\n")
    print(line, flush=True)


def one_ms(run, rest=0.0):
    time.sleep(rest)
    start = now()
    run()
    sync()
    return 1e3 * (now() - start)


def median_ms(run, warm=3, least=5, seconds=1.0):
    """The median time of consecutive runs, at least so many, and more while they fit into so many seconds; and that of
    three runs with a pause before each."""
    for _ in range(warm):
        run()
    sync()
    times, begun = [], now()
    while len(times) < least or (now() - begun < seconds and len(times) < 50):
        times.append(one_ms(run))
    rested = [one_ms(run, rest=ARGS.rest) for _ in range(3)]
    return dict(ms=statistics.median(times), least_ms=min(times), runs=len(times), rested_ms=statistics.median(rested))


def relative(got, want):
    got, want = got.double(), want.double()
    return ((got - want).norm() / want.norm()).item()


# ---- the highest rates of the machine ------------------------------------------------------------------------------------------


def ceiling(what, unit, work, run, times=10):
    """work: amount in the unit. Ten runs are queued before the host waits, so that waiting is not measured."""
    try:
        took = median_ms(lambda: [run() for _ in range(times)])
        ms, rested_ms = took["ms"] / times, took["rested_ms"] / times
        emit(what, ms=ms, rate=work / ms * 1e3, rested_rate=work / rested_ms * 1e3, unit=unit)
    except RuntimeError as e:  # a kind of attention that this machine does not have
        emit(what, failed=str(e).splitlines()[0][:200])


def ceilings():
    small = ARGS.device == "cpu"
    n, length, gigabyte = (256, 128, 10**7) if small else (8192, 4608, 10**9)
    kind = dict(device=ARGS.device, dtype=torch.bfloat16)
    a, b = torch.randn(n, n, **kind), torch.randn(n, n, **kind)
    ceiling(f"bf16 product {n}^3", "TFLOP/s", 2e-12 * n**3, lambda: a @ b)
    q, k, v = (torch.randn(1, 24, length, 128, **kind) for _ in range(3))
    for backend in [SDPBackend.MATH] if small else FASTEST_FIRST[:2]:
        with sdpa_kernel(backend):
            ceiling(f"attention 24 x 128, L = {length}, {backend.name.lower()}", "TFLOP/s",
                    4e-12 * length**2 * 24 * 128, lambda: F.scaled_dot_product_attention(q, k, v))
    here = torch.ones(gigabyte, dtype=torch.uint8, pin_memory=not small)
    there, other = (torch.ones(4 * gigabyte, dtype=torch.uint8, device=ARGS.device) for _ in range(2))
    ceiling("copy on the device, read + written", "GB/s", 8e-9 * gigabyte, lambda: other.copy_(there))
    ceiling("copy to the device, pinned memory", "GB/s", 1e-9 * gigabyte, lambda: there[:gigabyte].copy_(here), times=1)


# ---- the pipeline ----------------------------------------------------------------------------------------------------


def load(**versions):
    start = now()
    import diffusers
    import transformers

    imported = now()
    pipe = diffusers.Flux2KleinPipeline.from_pretrained(ARGS.model, dtype=torch.bfloat16).to(ARGS.device)
    pipe.set_progress_bar_config(disable=True)
    sync()
    emit("load", import_s=imported - start, load_s=now() - imported, torch=torch.__version__,
         cuda=torch.version.cuda, cudnn=torch.backends.cudnn.version(), diffusers=diffusers.__version__,
         transformers=transformers.__version__, **versions)
    return pipe


def picture(pipe, size, steps=STEPS, **options):
    return pipe(prompt=PROMPT, width=size, height=size, num_inference_steps=steps, guidance_scale=1.0,
                generator=torch.Generator("cpu").manual_seed(1), **options).images


def capture(pipe, size):
    """The tensors with which the pipeline calls its transformer and its autoencoder."""
    seen, decode = {}, pipe.vae.decode
    hook = pipe.transformer.register_forward_pre_hook(lambda _, args, kw: seen.update(step=kw), with_kwargs=True)

    def keep(z, **options):
        seen["latents"] = z
        return decode(z, **options)

    pipe.vae.decode = keep
    picture(pipe, size, steps=1)
    hook.remove()
    del pipe.vae.decode
    return seen


def tail_ms(pipe, size, runs=5):
    """The work after the last step: from latents to 8-bit pixels on the host."""
    times = []
    for _ in range(runs + 1):
        marks = []

        def on_step(*_):
            sync()
            marks.append(now())
            return {}

        picture(pipe, size, callback_on_step_end=on_step)
        times.append(1e3 * (now() - marks[-1]))
    return dict(ms=statistics.median(times[1:]), runs=runs)


def parts(pipe, seen):
    """A dictionary from (name, size) to a function that runs this part."""
    run = {("text", 0): lambda: pipe.encode_prompt(PROMPT, device=ARGS.device)[0]}
    for size, s in seen.items():
        run["step", size] = lambda s=s: pipe.transformer(**s["step"])[0]
    z = seen[ARGS.sizes[-1]]["latents"]
    run["vae", ARGS.sizes[-1]] = lambda: pipe.vae.decode(z, return_dict=False)[0]
    return run


@torch.no_grad()
def eager():
    pipe, size = load(), ARGS.sizes[-1]
    start = now()
    picture(pipe, size)
    emit("first", engine="eager", size=size, ms=1e3 * (now() - start))
    for (what, side), run in parts(pipe, {size: capture(pipe, size) for size in ARGS.sizes}).items():
        emit(what, engine="eager", size=side, **median_ms(run))
    emit("decode", engine="eager", size=size, **tail_ms(pipe, size))
    for side in ARGS.sizes:
        if ARGS.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        fields = median_ms(lambda: picture(pipe, side), warm=2)
        if ARGS.device == "cuda":
            fields["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
        emit("whole", engine="eager", size=side, **fields)


def record(call):
    """call, recorded as a CUDA graph: a function that replays it."""
    if ARGS.device == "cpu":  # a test of this script
        return call
    call()
    sync()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = call()

    def replay():
        graph.replay()
        return got

    return replay


def record_by_shape(forward):
    """forward, recorded once for each set of shapes. The tensors of a call are copied to where the recording reads them."""
    made = {}

    def replay(**arguments):
        tensors = {k: v for k, v in arguments.items() if torch.is_tensor(v)}
        key = tuple((k, v.shape) for k, v in tensors.items())
        if key not in made:
            fixed = {k: v.clone() for k, v in tensors.items()}
            made[key] = fixed, record(lambda: forward(**{**arguments, **fixed}))
        fixed, call = made[key]
        for k, v in tensors.items():
            fixed[k].copy_(v)
        return call()

    return replay


def forget(part):
    for module in part.modules():
        module._compiled_call_impl = None


@torch.no_grad()
def compiled():
    pipe = load()
    measure_compiled(pipe, {size: capture(pipe, size) for size in ARGS.sizes}, "bf16")


def quantise(transformer):
    """fp8 by torchao, for the linear layers of the blocks. Returns their number."""
    from torchao.quantization import Float8DynamicActivationFloat8WeightConfig, PerRow, PerTensor, quant_api, quantize_

    scales = PerRow()
    if ARGS.device == "cpu":  # a test of this script: PyTorch has fp8 products on a CPU, but only with one scale
        quant_api._check_hardware_support = lambda *_: None
        scales = PerTensor()
    layers = []

    def is_narrow(module, name):
        narrow = isinstance(module, torch.nn.Linear) and "transformer_blocks." in name
        layers.extend([name] if narrow else [])
        return narrow

    quantize_(transformer, Float8DynamicActivationFloat8WeightConfig(granularity=scales), filter_fn=is_narrow)
    return len(layers)


@torch.no_grad()
def torchao():
    import torchao as package

    pipe, size = load(torchao=package.__version__), ARGS.sizes[0 if len(ARGS.sizes) == 1 else -2]
    seen = {size: capture(pipe, size) for size in ARGS.sizes}
    inputs = seen[size]["step"]
    exact = copy.deepcopy(pipe.transformer).cpu()
    velocity = {"bf16": pipe.transformer(**inputs)[0]}
    want = {key: call() for key, call in parts(pipe, seen).items()}
    start = now()
    layers = quantise(pipe.transformer)
    sync()
    emit("quantise", seconds=now() - start, layers=layers)
    velocity["fp8"] = pipe.transformer(**inputs)[0]
    measure_compiled(pipe, seen, "fp8", want)
    in_f32 = {k: v.float() if torch.is_tensor(v) and v.is_floating_point() else v for k, v in inputs.items()}
    of_f32 = exact.to(ARGS.device).float()(**in_f32)[0]  # last, since times matter more than errors if time is short
    for precision, got in velocity.items():
        emit("velocity", precision=precision, size=size, error=relative(got, of_f32))


def measure_compiled(pipe, seen, precision, want=None):
    """want: what eager bf16 gives for each part; without it, it is computed here."""
    torch._dynamo.config.recompile_limit = 64
    largest = ARGS.sizes[-1]
    run = parts(pipe, seen)
    want = want or {key: run[key]() for key in run}
    torch.backends.cudnn.benchmark = True
    pipe.vae.to(memory_format=torch.channels_last)
    pipe.vae.decoder.compile(dynamic=False)
    for layer in pipe.text_encoder.model.layers:
        layer.compile(dynamic=False)

    def blocks():
        forget(pipe.transformer)
        pipe.transformer.compile_repeated_blocks(mode="max-autotune-no-cudagraphs", dynamic=False)

    def graphs():
        forget(pipe.transformer)
        pipe.transformer.compile(mode="reduce-overhead", dynamic=False)

    def recorded():
        forget(pipe.transformer)
        pipe.transformer.compile_repeated_blocks(dynamic=False)
        pipe.transformer.forward = record_by_shape(pipe.transformer.forward)

    def attempt(engine, what, size, need, part=None, measure=median_ms):
        """The first call compiles. need: with fewer seconds left it is not started. After a failure the part is measured
        without being compiled."""
        left = ARGS.seconds - (now() - BEGUN)
        call = run.get((what, size), lambda: picture(pipe, size))
        try:
            if left < need:
                raise TimeoutError(f"left out, {left:.0f} s were left")
            start = now()
            got = call()
            sync()
            fields = dict(compile_s=now() - start)
            if (what, size) in want:
                fields["error"] = relative(got, want[what, size])  # against eager; only roundings may differ
            emit(what, engine=engine, precision=precision, size=size, **(measure(call) | fields))
            return True
        except Exception as e:
            emit(what, engine=engine, precision=precision, size=size, failed=f"{type(e).__name__}: {' '.join(str(e).split())[:100]}")
            if part:
                forget(part)
            return False

    def whole_transformer(engine):  # the parts that compile fastest come first
        fine = {size: attempt(engine, "step", size, 40) for size in reversed(ARGS.sizes)}
        attempt(engine, "vae", largest, 45, pipe.vae)
        attempt(engine, "text", 0, 30, pipe.text_encoder)
        if fine[largest]:
            attempt(engine, "decode", largest, 10, measure=lambda _: tail_ms(pipe, largest))
        for size in reversed(ARGS.sizes):
            if fine[size]:  # the autoencoder is compiled for each size
                attempt(engine, "whole", size, 10 if size == largest else 40)

    def block_by_block():
        for size in reversed(ARGS.sizes):
            if attempt("blocks", "step", size, 120):
                attempt("blocks", "whole", size, 10 if size == largest else 40)

    with sdpa_kernel(FASTEST_FIRST, set_priority=True):
        for engine in ARGS.engines:
            {"graphs": graphs, "recorded": recorded, "blocks": blocks}[engine]()
            block_by_block() if engine == "blocks" else whole_transformer(engine)
            pipe.transformer.__dict__.pop("forward", None)  # that of recorded()


# ---- Qwen-Image's transformer ----------------------------------------------------------------------------------------


def qwen_passes():
    """The transformer, and a dictionary from the size to a function that runs it with the tensors of QwenImagePipeline
    (nothing is padded, so there is no mask)."""
    start = now()
    import diffusers
    import transformers

    imported = now()
    config = pathlib.Path(ARGS.model, "transformer/config.json")
    config = json.loads(config.read_text()) if config.exists() else {}  # the defaults of the class are those of the published model
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(ARGS.device):
        model = diffusers.QwenImageTransformer2DModel.from_config(config).eval().requires_grad_(False)
        text = torch.randn(1, ARGS.tokens, model.config.joint_attention_dim)
        latents = {size: torch.randn(1, (size // 16) ** 2, model.config.in_channels) for size in ARGS.sizes}
        time_ = torch.full([1], 0.5)
    torch.set_default_dtype(torch.float32)
    sync()
    emit("load", import_s=imported - start, load_s=now() - imported, torch=torch.__version__,
         cuda=torch.version.cuda, cudnn=torch.backends.cudnn.version(), diffusers=diffusers.__version__,
         transformers=transformers.__version__, parameters=sum(p.numel() for p in model.parameters()),
         types=sorted({str(p.dtype) for p in model.parameters()}), tokens=ARGS.tokens)

    def one(size):
        return model(hidden_states=latents[size], timestep=time_, guidance=None, encoder_hidden_states_mask=None,
                     encoder_hidden_states=text, img_shapes=[[(1, size // 16, size // 16)]], attention_kwargs={},
                     return_dict=False)[0]

    return model, {size: lambda size=size: one(size) for size in ARGS.sizes}


@torch.no_grad()
def qwen_eager():
    _, run = qwen_passes()
    for size, call in run.items():
        if ARGS.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        fields = median_ms(call)
        if ARGS.device == "cuda":
            fields["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
        emit("forward", engine="eager", size=size, finite=bool(call().isfinite().all()), **fields)


@torch.no_grad()
def qwen_compiled():
    torch._dynamo.config.recompile_limit = 64
    model, run = qwen_passes()
    want = {size: call() for size, call in run.items()}

    def attempt(engine, size, need, prepare=lambda call: call):
        """As for klein: the first call compiles, and is not started with fewer than need seconds left."""
        left = ARGS.seconds - (now() - BEGUN)
        try:
            if left < need:
                raise TimeoutError(f"left out, {left:.0f} s were left")
            start = now()
            call = prepare(run[size])
            got = call()
            sync()
            fields = dict(compile_s=now() - start, error=relative(got, want[size]))
            emit("forward", engine=engine, size=size, **(median_ms(call) | fields))
        except Exception as e:
            emit("forward", engine=engine, size=size, failed=f"{type(e).__name__}: {' '.join(str(e).split())[:100]}")

    with sdpa_kernel(FASTEST_FIRST, set_priority=True):
        model.compile_repeated_blocks(dynamic=False)
        for size in ARGS.sizes:
            attempt("blocks", size, 30)
        for size in ARGS.sizes:
            attempt("graph", size, 10, record)
        forget(model)
        torch._dynamo.reset()
        model.compile_repeated_blocks(mode="max-autotune-no-cudagraphs", dynamic=False)
        for size in ARGS.sizes:
            attempt("tuned", size, 60)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["ceilings", "eager", "compiled", "torchao", "qwen_eager", "qwen_compiled"])
    parser.add_argument("--results", required=True)
    parser.add_argument("--model")
    parser.add_argument("--sizes", type=int, nargs="+", default=[256, 512, 1024])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--rest", type=float, default=0.5)
    parser.add_argument("--tokens", type=int, default=11)
    parser.add_argument("--engines", nargs="+", choices=["recorded", "graphs", "blocks"], default=["graphs", "blocks"])
    ARGS = parser.parse_args()
    globals()[ARGS.stage]()
