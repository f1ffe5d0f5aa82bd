"""Trains the second edition in pieces, each of a given number of minutes, from the weights of the last one.

    python tools/demo-model/train2.py --smoke --cache .demo-cache --work /tmp/smoke         everything, tiny, on a CPU
    python tools/demo-model/train2.py --vae 2.5 --base 3 --out OUT                         a piece on a GPU; README.md has the plan

A piece takes <work>/weights if they exist, else <cache>/weights (paint.py pack: the first edition). It leaves text, transformer, vae
(and student) in bf16 there and in --out, every 150 seconds too. Drawings, latents and compiled kernels stay in <work>, so a
piece on the same machine starts sooner.
"""

import argparse
import copy
import json
import math
import os
import pathlib
import random
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import torch
import torch.nn.functional as F

import data
import export
import model
import paint
import scenes
from train import Clock, Ema, Muon, to_bytes

PROMPTS = [
    "a fox in 3d style on a blue background",
    "a cup of coffee",
    "a bike",
    "a cute cat",
    "a blue dog",
    "a green cat on a yellow background",
    "five balloons",
    "six eggs",
    "🦊",
    "a red car and a blue bus",
    "a quantum fox",
    "a pizza, line style",
    "a small penguin on a light blue background",
    "three green frogs",
    "a guitar in classic style",
    "a purple elephant in cartoon style",
    "draw me a whale, 8k",
    "a computer",
]
EDITS = ["in line style", "on a red background", "make it blue", "two of them", "in cartoon style on yellow", "make it small"]
ROWS = 768 * (256 + model.SECOND_LENGTH)  # of a batch: the tokens of all its pictures, texts and references


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
    return Clock(minutes, 3 if A.smoke else 60 if A.quick else 10**9)


def cast():
    return torch.autocast(DEVICE, torch.bfloat16, enabled=not A.smoke)  # slow on most CPUs


def pixels(x):
    """uint8 -> -1 to 1"""
    return x.to(torch.float32 if A.smoke else torch.bfloat16) / 127.5 - 1


def compiled(f):
    """One compilation for all sizes: batch and tokens are symbols. `static` compiles each size, half a minute each."""
    if A.compile == "no":
        return f
    fast = torch.compile(f, dynamic=A.compile == "dynamic")

    def call(*args):
        nonlocal fast
        try:
            return (fast or f)(*args)
        except Exception as e:  # slower without, but a piece is not lost
            if fast is None:
                raise
            log(not_compiled=repr(e)[:600])
            fast = None
        return f(*args)

    return call


def optimisers(nets, lr: float, muon: float):
    """Muon for the matrices inside the blocks, AdamW for the rest. The last layer of the text encoder is never run."""
    inside, rest = [], []
    for net in nets:
        for name, p in net.named_parameters():
            blocks = ("layers." in name or "transformer_blocks." in name) and p.ndim == 2
            (inside if blocks and not name.startswith(f"model.layers.{model.TAPS[-1]}.") else rest).append(p)
    both = [torch.optim.AdamW(rest, lr=lr, betas=(0.9, 0.98), weight_decay=0.0, fused=DEVICE == "cuda"), Muon(inside, muon)]
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


# ---------------------------------------------------------------------------------------------------------------------
# 1. Autoencoder: from the first edition, for all sizes


def vae_pictures(pool, painter, deck, n: int, kind: str, seed: int) -> dict:
    found = {}
    for job in pool.map(scenes.make, scenes.jobs(deck, seed, n, kind, 1, A.tokenizer, model.SECOND_LENGTH, 200)):
        found.setdefault(job["bucket"], []).append(painter.paint(job["rows"], job["colours"], job["bucket"]))
    return {b: torch.cat(parts) for b, parts in found.items()}


def train_vae(pool, painter, deck, vae):
    pictures = vae_pictures(pool, painter, deck, 16 if A.smoke else 2000 if A.quick else 24000, "plain", 1)
    test = vae_pictures(pool, painter, deck, 16 if A.smoke else 400, "held out", 2)
    vae = vae.train().requires_grad_(True).to(memory_format=torch.channels_last)
    optimiser = torch.optim.AdamW(vae.parameters(), lr=6e-4, betas=(0.9, 0.98), weight_decay=1e-4, fused=DEVICE == "cuda")
    average, time_, progress, seen = Ema(vae, 0.998), clock(A.vae), 0.0, []
    buckets = list(pictures)
    odds = [len(pictures[b]) * b[0] * b[1] for b in buckets]
    log(stage="vae", pictures=sum(map(len, pictures.values())), before=vae_dB(vae, test))
    while progress < 1:
        b = random.choices(buckets, odds)[0]
        batch = 2 if A.smoke else max(16, 64 * 256 // (b[0] * b[1]))
        x = pixels(pictures[b][torch.randint(len(pictures[b]), (batch,), device=DEVICE)])
        x = x.contiguous(memory_format=torch.channels_last)
        with cast():
            mean, logvar = vae.moments(x)
            logvar = logvar.clamp(-20, 10)
            y = vae.decode(mean + torch.randn_like(mean) * (0.5 * logvar).exp())
        d = y - x.float()
        kl = 0.5 * (mean**2 + logvar.exp() - 1 - logvar).mean()
        edges = (d[..., 1:] - d[..., :-1]).abs().mean() + (d[..., 1:, :] - d[..., :-1, :]).abs().mean()
        mse = (d**2).mean()
        optimiser.zero_grad(set_to_none=True)
        (d.abs().mean() + 3 * mse + 0.5 * edges + 1e-3 * kl).backward()
        torch.nn.utils.clip_grad_norm_(vae.parameters(), 1.0)
        optimiser.param_groups[0]["lr"] = 6e-4 * rate(progress, time_.step, 200, 0.4)
        optimiser.step()
        average.update()
        progress = time_.tick()
        if time_.step % 20 == 0:
            seen.append(mse.detach())
        if time_.step % 300 == 0:
            log(stage="vae", step=time_.step, progress=round(progress, 3), dB=10 * math.log10(4 / torch.stack(seen).mean().item()))
            seen = []
    vae = rounded(average.average)
    with torch.no_grad(), cast():  # statistics of the latents, each size by its tokens
        means = [
            model.patchify(vae.moments(pixels(p))[0]).transpose(0, 1).flatten(1)
            for b in buckets
            for p in pictures[b][: 2000 if not A.smoke else 4].split(chunk_of(b))
        ]
        means = torch.cat(means, 1).float()
        vae.bn.running_mean.copy_(means.mean(1).bfloat16().float())
        vae.bn.running_var.copy_(means.var(1).bfloat16().float())
    log(stage="vae", done=time_.step, each=time_.each(), held_out_dB=vae_dB(vae, test))
    keep(vae, "vae")
    return vae


@torch.no_grad()
def vae_dB(vae, test: dict) -> dict:
    found = {}
    for b, pictures in test.items():
        with cast():
            again = torch.cat([to_bytes(vae.decode(vae.moments(pixels(p))[0])) for p in pictures.split(chunk_of(b))])
        error = ((again.float() - pictures.float()) ** 2).mean((1, 2, 3)).clamp_min(1e-3)
        found[f"{16 * b[1]}x{16 * b[0]}"] = round((10 * torch.log10(255**2 / error)).mean().item(), 2)
    return found


# ---------------------------------------------------------------------------------------------------------------------
# 2. Latents of scenes and edits


def latents(pool, painter, deck, vae) -> dict:
    """(bucket, kind) -> z [n,L,C], before [n,L,C] (edits), ids, lengths. Made once on a machine, at most --pool-seconds long."""
    path = WORK / f"pool-{A.pool_seed}.pt"
    if path.exists():
        return torch.load(path, map_location=DEVICE, weights_only=False)
    n = 64 if A.smoke else 4000 if A.quick else A.pool
    args = (3, A.tokenizer, model.SECOND_LENGTH)
    jobs = scenes.jobs(deck, A.pool_seed, n, "plain", *args) + scenes.jobs(deck, A.pool_seed + 1, int(n * A.edits), "edit", *args)
    random.Random(A.pool_seed).shuffle(jobs)
    vae = copy.deepcopy(vae).to(torch.float32 if A.smoke else torch.bfloat16).to(memory_format=torch.channels_last)
    vae.bn.float()
    found, start, said = {}, time.time(), []

    @torch.no_grad()
    def encode(rows, colours, b):
        size, parts = chunk_of(b), []
        for i in range(0, len(rows), size):
            x = pixels(painter.paint(rows[i : i + size], colours[i : i + size], b))
            parts.append(vae.to_tokens(vae.moments(x.contiguous(memory_format=torch.channels_last))[0]).bfloat16())
        return torch.cat(parts)

    for k, made in enumerate(pool.map(scenes.make, jobs)):
        here = found.setdefault((made["bucket"], made["kind"]), {})
        here.setdefault("z", []).append(encode(made["rows"], made["colours"], made["bucket"]))
        if made["kind"] == "edit":
            here.setdefault("before", []).append(encode(made["before_rows"], made["before_colours"], made["bucket"]))
        for name in ("ids", "lengths"):
            here.setdefault(name, []).append(torch.from_numpy(made[name]).to(DEVICE))
        said += made["said"][:1]
        if time.time() - start > A.pool_seconds:
            pool.shutdown(wait=False, cancel_futures=True)
            break
    found = {key: {name: torch.cat(parts) for name, parts in here.items()} for key, here in found.items()}
    some = torch.cat([here["z"][:200].flatten(0, 1) for here in found.values()]).float()
    log(stage="latents", jobs=[k + 1, len(jobs)], n=sum(len(h["z"]) for h in found.values()), deviation=some.std().item(), said=said[:24])
    if not A.smoke:
        torch.save(found, path)
    return found


class Batches:
    """Batches of one size each, of about ROWS tokens; every scene is drawn equally often."""

    def __init__(self, found: dict, transformer):
        self.found, self.keys = found, list(found)
        self.size, self.rope, odds = {}, {}, []
        for bucket, kind in self.keys:
            references = [bucket] if kind == "edit" else []
            rows = model.SECOND_LENGTH + bucket[0] * bucket[1] * (1 + len(references))
            self.size[bucket, kind] = 2 if A.smoke else max(16, A.rows // rows // 16 * 16)
            self.rope[bucket, kind] = transformer.rope(model.SECOND_LENGTH, bucket, references, DEVICE)
            odds.append(len(found[bucket, kind]["z"]) / self.size[bucket, kind])
        self.odds = odds

    def draw(self):
        key = random.choices(self.keys, self.odds)[0]
        return key, torch.randint(len(self.found[key]["z"]), (self.size[key],), device=DEVICE)


def tokens_of(captions):
    ids, lengths = data.tokenize(data.load_tokenizer(A.tokenizer), captions, model.SECOND_LENGTH)
    return torch.from_numpy(ids).to(DEVICE).long(), torch.from_numpy(lengths).to(DEVICE).long()


# ---------------------------------------------------------------------------------------------------------------------
# 3. Text encoder and transformer


def shift_of(bucket) -> float:
    """More noise for larger pictures, in which it hides less"""
    return 2.5 * min(max(bucket[0] * bucket[1] / 256, 0.5), 2.6) ** 0.5


def train_base(text, transformer, found, vae, examples):
    batches, averages = Batches(found, transformer), (Ema(text, 0.9995), Ema(transformer, 0.9995))
    both, parameters = optimisers((text, transformer), A.lr, A.muon), [*text.parameters(), *transformer.parameters()]
    empty_ids, empty_length = tokens_of([""])

    def loss_of(x, target, weight, t, ids, n, cos, sin):
        with cast():
            v = transformer(x, t, text(ids, n), rope=(cos, sin))
        return ((v - target).square().mean(-1) * weight).sum(1).mean()

    step_loss, time_, progress, seen, saved = compiled(loss_of), clock(A.base), 0.0, [], time.time()
    while progress < 1:
        key, k = batches.draw()
        here, bucket = found[key], key[0]
        batch, which = len(k), torch.randint(here["ids"].shape[1], (len(k),), device=DEVICE)
        drop = torch.rand(batch, device=DEVICE) < 0.1
        ids = torch.where(drop[:, None], empty_ids, here["ids"][k, which].long())
        n = torch.where(drop, empty_length, here["lengths"][k, which].long())
        z = here["z"][k].float()
        noise = torch.randn_like(z)
        u = torch.sigmoid(torch.randn(batch, device=DEVICE))
        u = torch.where(torch.rand(batch, device=DEVICE) < 0.1, torch.rand(batch, device=DEVICE), u)
        t = shift_of(bucket) * u / (1 + (shift_of(bucket) - 1) * u)
        s = t[:, None, None]
        x, target = (1 - s) * z + s * noise, noise - z
        weight = torch.full((x.shape[1],), 1 / x.shape[1], device=DEVICE)
        if "before" in here:  # clean tokens of the reference after the noisy ones; their output does not count
            x, target = torch.cat([x, here["before"][k].float()], 1), torch.cat([target, torch.zeros_like(target)], 1)
            weight = torch.cat([weight, torch.zeros_like(weight)])
        loss = step_loss(x, target, weight, t, ids, n, *batches.rope[key])
        step(both, loss, parameters, rate(progress, time_.step, 150, A.hold))
        for a in averages:
            a.update()
        progress = time_.tick()
        if time_.step % 10 == 0:
            seen.append((key[1], bucket[0] * bucket[1], loss.detach()))
        if time_.step % 500 == 0:
            mean = lambda rows: torch.stack(rows).mean().item() if rows else None  # noqa: E731
            log(
                stage="base",
                step=time_.step,
                progress=round(progress, 3),
                loss=mean([x for kind, size, x in seen if kind == "plain" and size == 256]),
                other_sizes=mean([x for kind, size, x in seen if kind == "plain" and size != 256]),
                edits=mean([x for kind, _, x in seen if kind == "edit"]),
            )
            seen = []
        if time.time() - saved > 150:
            saved = time.time()
            keep(averages[0].average, "text")
            keep(averages[1].average, "transformer")
    log(stage="base", done=time_.step, each=time_.each())
    text, transformer = (rounded(a.average) for a in averages)
    keep(text, "text")
    keep(transformer, "transformer")
    if not A.distil or A.smoke:  # a piece has few files, see --out
        show(text, guided(transformer), transformer, vae, "sheet-base.jpg", examples, lambda tokens: even(2 if A.smoke else 24))
    return text, transformer


# ---------------------------------------------------------------------------------------------------------------------
# Sampling


def guided(transformer):
    def velocity(x, t, text, empty, cos, sin):
        both = transformer(torch.cat([x, x]), torch.cat([t, t]), torch.cat([text, empty.expand(len(x), -1, -1)]), rope=(cos, sin))
        a, b = both.chunk(2)
        return b + A.guidance * (a - b)

    return velocity


def plain(transformer):
    return lambda x, t, text, empty, cos, sin: transformer(x, t, text, rope=(cos, sin))


@torch.no_grad()
def walk(velocity, x, before, text, empty, rope, stops):
    """before: tokens of the reference or None"""
    n = x.shape[1]
    with cast():
        for a, b in zip(stops, stops[1:]):
            inside = x if before is None else torch.cat([x, before], 1)
            x = x + (b - a) * velocity(inside, torch.full((len(x),), a, device=x.device), text, empty, *rope)[:, :n]
    return x


def even(n):
    return [2.5 * u / (1 + 1.5 * u) for u in np.linspace(1, 0, n + 1).tolist()]


@torch.no_grad()
def show(text_encoder, velocity, transformer, vae, name, examples, stops_of):
    """A sheet: prompts at 256x256, some of them at other sizes, and edits of real drawings (a reference, then the edit)."""
    from PIL import Image

    few = PROMPTS[:2] if A.smoke else PROMPTS
    main_size = (4, 4) if A.smoke else (16, 16)
    groups = [(main_size, few, None)] + [(b, few[:6], None) for b in ([(4, 8)] if A.smoke else [(8, 8), (32, 32), (16, 32)])]
    groups.append((main_size, EDITS[:2] if A.smoke else EDITS, examples))
    tiles = []
    for bucket, prompts, before in groups:
        size, n = bucket[0] * bucket[1], len(prompts)
        with cast():
            text, empty = text_encoder(*tokens_of(prompts)), text_encoder(*tokens_of([""]))
        noise = torch.cat([torch.randn(1, 64, *bucket, generator=torch.Generator().manual_seed(i)) for i in range(n)])
        rope = transformer.rope(model.SECOND_LENGTH, bucket, [bucket] if before is not None else [], DEVICE)
        x = walk(velocity, noise.to(DEVICE).flatten(2).transpose(1, 2), before[:n] if before is not None else None, text, empty, rope, stops_of(size))
        both = [x] if before is None else [before[:n].float(), x]
        with cast():
            pictures = [torch.cat([to_bytes(vae.decode(z)) for z in vae.from_tokens(y, bucket).split(8)]) for y in both]
        for k in range(n):
            for p in pictures:
                picture = Image.fromarray(p[k].permute(1, 2, 0).cpu().numpy())
                picture.thumbnail((160, 160))
                tiles.append(picture)
    page = Image.new("RGB", (12 * 160, -(-len(tiles) // 12) * 160), "white")
    for k, picture in enumerate(tiles):
        page.paste(picture, (k % 12 * 160, k // 12 * 160))
    page.save(A.out / name, quality=88)


# ---------------------------------------------------------------------------------------------------------------------
# 4. Student: 4 steps without guidance; pairs of levels of 2 to 8 steps

COUNTS = {2: 0.08, 3: 0.1, 4: 0.55, 6: 0.12, 8: 0.15}


def levels_of(tokens: int):
    """-> noise levels of all schedules of COUNTS, from 1 to 0, and the pairs (from, to, share) that the student learns"""
    levels = sorted({s for n in COUNTS for s in model.sigmas(n, tokens)}, reverse=True)
    where, pairs = {s: k for k, s in enumerate(levels)}, []
    for n, share in COUNTS.items():
        stops = model.sigmas(n, tokens)
        for a, b in zip(stops, stops[1:]):
            pairs.append((where[a], where[b], share * (0.5 / n + 0.5 * (a - b))))
    return levels, pairs


def distil(text_encoder, teacher, found, vae, minutes, examples):
    batches = Batches(found, teacher)
    with torch.no_grad(), cast():
        empty = text_encoder(*tokens_of([""]))
    velocity, bank, start, walks = compiled(guided(teacher)), {}, time.time(), 0
    while (time.time() - start < 0.45 * 60 * minutes and walks < (3 if A.smoke else 20 if A.quick else 10**9)) or not bank:
        key, k = batches.draw()
        k, here, tokens = k[: max(len(k) // 2, 1)], found[key], key[0][0] * key[0][1]
        ids, lengths = here["ids"][k, 0].long(), here["lengths"][k, 0].long()
        with torch.no_grad(), cast():
            text = text_encoder(ids, lengths)
        before = here["before"][k].float() if "before" in here else None
        x = torch.randn(len(k), tokens, model.SECOND["in_channels"], device=DEVICE)
        levels, states = levels_of(tokens)[0], [x.bfloat16()]
        for a, b in zip(levels, levels[1:]):
            parts = 6 if b == 0 else 1 + int((a - b) / 0.08)
            x = walk(velocity, x, before, text, empty, batches.rope[key], np.linspace(a, b, parts + 1).tolist())
            states.append(x.bfloat16())
        bank.setdefault(key, []).append(dict(k=k, ids=ids, lengths=lengths, states=torch.stack(states, 1)))
        walks += 1
    bank = {key: {n: torch.cat([p[n] for p in parts]) for n in parts[0]} for key, parts in bank.items()}
    log(stage="walks", batches=walks, n=sum(len(h["k"]) for h in bank.values()), seconds=time.time() - start)
    minutes -= (time.time() - start) / 60
    student = copy.deepcopy(teacher).requires_grad_(True)
    average, both = Ema(student, 0.998), optimisers((student,), 0.5 * A.lr, 0.5 * A.muon)
    tables = {}
    for key in bank:
        levels, pairs = levels_of(key[0][0] * key[0][1])
        tables[key] = torch.tensor(levels, device=DEVICE), *(torch.tensor(c, device=DEVICE) for c in zip(*pairs))
    keys = list(bank)
    odds = [len(bank[key]["k"]) / batches.size[key] for key in keys]

    def loss_of(x, target, weight, t, text, cos, sin):
        with cast():
            v = student(x, t, text, rope=(cos, sin))
        return ((v - target).square().mean(-1) * weight).sum(1).mean()

    step_loss, time_, progress, seen, saved = compiled(loss_of), clock(minutes), 0.0, [], time.time()
    while progress < 1:
        key = random.choices(keys, odds)[0]
        here, (levels, first, last, share) = bank[key], tables[key]
        i = torch.randint(len(here["k"]), (batches.size[key],), device=DEVICE)
        pair = torch.multinomial(share, len(i), replacement=True)
        a, b = first[pair], last[pair]
        with torch.no_grad(), cast():
            text = text_encoder(here["ids"][i], here["lengths"][i])
        x, y, t = here["states"][i, a].float(), here["states"][i, b].float(), levels[a]
        target = (x - y) / (t - levels[b])[:, None, None]
        weight = torch.full((x.shape[1],), 1 / x.shape[1], device=DEVICE)
        if "before" in found[key]:
            x, target = torch.cat([x, found[key]["before"][here["k"][i]].float()], 1), torch.cat([target, torch.zeros_like(target)], 1)
            weight = torch.cat([weight, torch.zeros_like(weight)])
        loss = step_loss(x, target, weight, t, text, *batches.rope[key])
        step(both, loss, student.parameters(), rate(progress, time_.step, 50, 0.3))
        average.update()
        progress = time_.tick()
        if time_.step % 10 == 0:
            seen.append(loss.detach())
        if time_.step % 200 == 0:
            log(stage="distil", step=time_.step, progress=round(progress, 3), loss=torch.stack(seen).mean().item())
            seen = []
        if time.time() - saved > 150:
            saved = time.time()
            keep(average.average, "student")
    log(stage="distil", done=time_.step, each=time_.each())
    student = rounded(average.average)
    keep(student, "student")
    for n in [4] if A.smoke else [2, 4]:
        show(text_encoder, plain(student), student, vae, f"sheet-{n}-steps.jpg", examples, lambda tokens: model.sigmas(n, tokens))


# ---------------------------------------------------------------------------------------------------------------------


def prepare():
    """Drawings -> painter and deck"""
    rows, index, pixels = paint.drawings(A.cache, WORK, 64 if A.smoke else paint.SIDE, 40 if A.smoke else None, 2 if A.smoke else 16)
    painter = paint.Painter(pixels, DEVICE)
    deck = painter.deck(rows, index)
    log(drawings=len(pixels), on_gpu=torch.cuda.memory_allocated() / 1e9 if DEVICE == "cuda" else 0, can_be_recoloured=float(deck.tintable.mean()))
    return painter, deck


@torch.no_grad()
def example_references(painter, deck, vae):
    """Six single things on white in 3-D, as references of the sheets"""
    r, rows, colours, bucket = random.Random(7), [], [], (4, 4) if A.smoke else (16, 16)
    for _ in range(6):
        thing, _ = deck.pick(r, False, 0)
        scene = dict(kind="single", things=[thing], style=data.NAMES[0], tints=[None], ground=None, line=None, scale=None, place=None, count=1)
        row, colour = scenes.layout(r, deck, scene, bucket)
        rows.append(row)
        colours.append(colour)
    with cast():
        return vae.to_tokens(vae.moments(pixels(painter.paint(np.stack(rows), np.stack(colours), bucket)))[0]).float()


def main():
    torch.manual_seed(A.pool_seed)
    random.seed(A.pool_seed)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    painter, deck = prepare()
    vae, text, transformer = model.Autoencoder().to(DEVICE), model.TextEncoder().to(DEVICE), model.Transformer(model.SECOND).to(DEVICE)
    vae.load_state_dict(stored("vae"))
    vae = vae.eval().requires_grad_(False)
    text.load_state_dict(stored("text"))
    transformer.load_state_dict(model.grow(stored("transformer"), model.SECOND["num_single_layers"]))
    log(parameters=[model.count(m) for m in (text, transformer, vae)])
    with ProcessPoolExecutor(2 if A.smoke else 15) as pool:
        if A.vae > 0:
            vae = train_vae(pool, painter, deck, vae)
        examples = example_references(painter, deck, vae)
        found = latents(pool, painter, deck, vae) if A.base > 0 or A.distil > 0 else None
    painter.levels = None
    torch.cuda.empty_cache()
    if A.base > 0:
        text, transformer = train_base(text, transformer, found, vae, examples)
    if A.distil > 0:
        distil(rounded(text), rounded(transformer), found, vae, A.distil, examples)
    log(finished=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cache", type=pathlib.Path, default=".demo-cache")
    parser.add_argument("--work", type=pathlib.Path, default="/tmp/demo2")
    parser.add_argument("--out", type=pathlib.Path, help="where copies of weights, log and sheets go, at most eight files a piece")
    for name, default in dict(vae=0.0, base=0.0, distil=0.0, lr=1e-3, muon=0.01, guidance=3.0, hold=1.0, edits=0.25).items():
        parser.add_argument(f"--{name}", type=float, default=default)
    for name, default in dict(pool=240000, rows=ROWS).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--pool-seconds", type=float, default=80)
    parser.add_argument("--pool-seed", type=int, default=1, help="other scenes for another session")
    parser.add_argument("--compile", choices=["dynamic", "static", "no"], default="dynamic")
    parser.add_argument("--smoke", action="store_true", help="a few steps of everything on the CPU")
    parser.add_argument("--quick", action="store_true", help="60 steps of everything: does it run, and how fast?")
    A = parser.parse_args()
    DEVICE, WORK, START = "cpu" if A.smoke else "cuda", A.work, time.time()
    A.out, A.tokenizer = A.out or A.work, str(A.cache / "tokenizer")
    if A.smoke:
        A.compile, A.vae, A.base, A.distil = "no", 1.0, 1.0, 1.0
        scenes.BUCKETS = {(4, 4): 0.7, (4, 8): 0.3}
    for folder in (A.out, WORK / "weights"):
        folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(WORK / "inductor"))
    main()
