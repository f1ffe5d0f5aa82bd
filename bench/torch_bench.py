"""The cases of bench.c in PyTorch, printed as lines of the same form. The argument is a part of a case's name."""
import os
import sys
import time

import torch
import torch.nn.functional as F

THREADS = int(os.environ.get("LZ_THREADS", os.cpu_count()))
REPEATS = int(os.environ.get("LZ_REPEATS", "7"))
CLOCK = time.process_time if os.environ.get("LZ_CLOCK") == "cpu" else time.perf_counter
ONLY = sys.argv[1] if len(sys.argv) > 1 else ""


def measure(case, unit, work, run):
    with torch.no_grad():
        run()
        times = []
        for _ in range(REPEATS):
            time.sleep(0.04)
            start = CLOCK()
            run()
            times.append(CLOCK() - start)
    times.sort()
    numbers = [f"{number:.6g}" for number in (work, times[0], times[len(times) // 2])]
    print(case, "torch", unit, *numbers, "", sep="\t", flush=True)


TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def linear(m, k, n, kind):
    case = f"linear {m}x{k}->{n} {kind}"
    if ONLY in case:
        x, w = torch.randn(m, k).to(TYPES[kind]), torch.randn(n, k).to(TYPES[kind])
        measure(case, "GF", 2e-9 * m * k * n, lambda: F.linear(x, w))


def attention(length, kind):
    case = f"attention 24x128 at {length} {kind}"
    if ONLY in case:
        q, k, v = (torch.randn(1, 24, length, 128).to(TYPES[kind]) for _ in range(3))
        measure(case, "GF", 4e-9 * length * length * 24 * 128, lambda: F.scaled_dot_product_attention(q, k, v))


def conv(size, channels, kind):
    case = f"conv 3x3 {channels}->{channels} at {size}x{size} {kind}"
    if ONLY in case:
        x = torch.randn(1, channels, size, size).to(TYPES[kind], memory_format=torch.channels_last)
        w = torch.randn(channels, channels, 3, 3).to(TYPES[kind], memory_format=torch.channels_last)
        measure(case, "GF", 2e-9 * 9 * size * size * channels * channels, lambda: F.conv2d(x, w, padding=1))


def norm(rows, width):
    case = f"modulated norm {rows}x{width}"
    if ONLY in case:
        x, scale = torch.randn(rows, width), torch.randn(width)
        measure(case, "GB", 8e-9 * rows * width, lambda: F.layer_norm(x, (width,), eps=1e-6) * (1 + scale) + scale)


torch.set_num_threads(THREADS)
torch.manual_seed(1)
for kind in TYPES:
    for shape in [(2048, 2048, 2048), (768, 3072, 27648), (768, 12288, 3072), (512, 2560, 9728), (1536, 3072, 27648)]:
        linear(*shape, kind)
    for tokens in (768, 1536, 4608):
        attention(tokens, kind)
    conv(64, 512, kind)
    conv(512, 128, kind)
norm(4608, 3072)
