"""What the stages of train2.py share: settings, log, clock, compiling, optimisers, stored weights."""

import json
import time

import torch

import data
import export
import model
from train import Clock, Muon

A = DEVICE = WORK = START = None  # the arguments, "cuda" or "cpu", the working folder, the time; set by train2.py


def log(**row):
    row["at"] = round(time.time() - START, 1)
    print(json.dumps(row), flush=True)
    for folder in {WORK, A.out}:
        with open(folder / "log.jsonl", "a") as file:
            file.write(json.dumps(row) + "\n")


def rate(progress: float, step: int, warm: int, hold: float) -> float:
    """Warms up, holds, falls to nearly nothing. hold 1: never falls."""
    fall = 1.0 if hold >= 1 else min(1.0, (1 - progress) / (1 - hold))
    return min(1.0, (step + 1) / warm) * (0.02 + 0.98 * fall)


def clock(minutes: float) -> Clock:
    """Runs from now, with compiling"""
    made = Clock(max(minutes, 0.01), 3 if A.smoke else 60 if A.quick else 10**9)
    made.start = time.time()
    return made


def cast():
    return torch.autocast(DEVICE, torch.bfloat16, enabled=not A.smoke)  # slow on most CPUs


def pixels(x):
    """uint8 -> -1 to 1"""
    return x.to(torch.float32 if A.smoke else torch.bfloat16) / 127.5 - 1


def compile_blocks(*nets):
    """Each kind of block is compiled once for all sizes. Compiling a whole step with symbols for the sizes fails."""
    blocks = (model.TextLayer, model.DoubleBlock, model.SingleBlock)
    for block in (m for net in nets for m in net.modules() if isinstance(m, blocks)):
        if A.compile:
            block.compile(dynamic=True)


def load_kernels():
    """Compiled kernels of the last piece, which save two minutes"""
    torch._dynamo.config.suppress_errors = True  # slower without a kernel, but a piece is not lost
    torch._dynamo.config.recompile_limit = 64  # base, teacher and student share the code of the blocks
    for folder in (WORK, A.cache):
        if A.compile and (folder / "kernels.bin").exists():
            torch.compiler.load_cache_artifacts((folder / "kernels.bin").read_bytes())
            return


def keep_kernels():
    found = torch.compiler.save_cache_artifacts() if A.compile else None
    for folder in {WORK, A.out} if found else ():
        (folder / "kernels.bin").write_bytes(found[0])


def optimisers(nets, lr: float, muon: float):
    """Muon for the matrices inside the blocks, AdamW for the rest. The last layer of the text encoder is never run."""
    inside, rest = [], []
    for net in nets:
        for name, p in net.named_parameters():
            blocks = ("layers." in name or "transformer_blocks." in name) and p.ndim == 2
            (inside if blocks and not name.startswith(f"model.layers.{model.TAPS[-1]}.") else rest).append(p)
    both = [
        torch.optim.AdamW(rest, lr=lr, betas=(0.9, 0.98), weight_decay=0.0, fused=DEVICE == "cuda"),
        Muon(inside, muon),
    ]
    for o in both:
        o.param_groups[0]["full"] = o.param_groups[0]["lr"]
    return both


def step(both, loss, parameters, factor: float):
    for o in both:
        o.zero_grad(set_to_none=False)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    for o in both:
        o.param_groups[0]["lr"] = o.param_groups[0]["full"] * factor
        o.step()


def stored(stem: str):
    for folder in (WORK / "weights", A.cache / "weights"):
        state = export.load_parts(folder, stem)
        if state:
            log(weights=str(folder), stem=stem)
            return {k: v.float() if v.is_floating_point() else v for k, v in state.items()}
    return None


def keep(net, stem: str):
    for folder in {WORK / "weights", A.out}:
        export.save_parts(net.state_dict(), folder, stem)
        (folder / f"{stem}.safetensors.index.json").unlink(missing_ok=True)  # the files come back one by one


def rounded(net):
    """As it will be stored"""
    for p in net.parameters():
        p.data = p.data.bfloat16().float()
    return net.eval().requires_grad_(False)


def chunk_of(bucket) -> int:
    """Pictures painted at once"""
    return max(8, 400 * 256 // (bucket[0] * bucket[1]))


def tokens_of(captions):
    ids, lengths = data.tokenize(data.load_tokenizer(A.tokenizer), captions, model.SECOND_LENGTH)
    return torch.from_numpy(ids).to(DEVICE).long(), torch.from_numpy(lengths).to(DEVICE).long()
