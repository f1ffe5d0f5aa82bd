"""Trains the second edition in pieces, each of a given number of minutes, from the weights of the last one.

    python tools/demo-model/train2.py --smoke --cache .demo-cache --work /tmp/smoke         everything, tiny, on a CPU
    python tools/demo-model/train2.py --vae 2.5 --base 3 --out OUT               a piece on a GPU; second.sh has a whole training

A piece takes <work>/weights if they exist, else <cache>/weights (paint.py pack: the first edition). It leaves text,
transformer, vae (and student) in bf16 there and in --out, every minute too. Drawings, compiled
kernels and, without --until, latents stay in <work>, so a piece on the same machine starts sooner.
"""

import argparse
import copy
import itertools
import os
import pathlib
import random
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import torch
from torch._dynamo.utils import counters

import data
import model
import paint
import piece
import scenes
import translate
from piece import cast, chunk_of, clock, compile_blocks, keep, log, optimisers, pixels, rate, rounded, step, stored
from piece import tokens_of
from sample2 import even, guided, plain, show, walk
from train import Ema
from vae2 import train_vae

ROWS = 768 * (256 + model.SECOND_LENGTH)  # of a batch: the tokens of all its pictures, texts and references


# ---------------------------------------------------------------------------------------------------------------------
# 1. Latents of scenes and edits


def latents(pool, painter, deck, vae) -> dict:
    """(bucket, kind) -> z [n,L,C], before [n,L,C] (edits), ids, lengths. Made once on a machine, in --pool-seconds."""
    a = piece.A
    path = piece.WORK / f"pool-{'-'.join([f'{x:g}' for x in (a.pool_seed, a.focus, a.edits, a.translate)] + a.styles)}.pt"
    if path.exists():
        return torch.load(path, map_location=piece.DEVICE, weights_only=False)
    n = 64 if piece.A.smoke else 4000 if piece.A.quick else piece.A.pool
    args = (3, piece.A.tokenizer, model.SECOND_LENGTH)
    jobs = scenes.jobs(deck, piece.A.pool_seed, n, "plain", *args)
    jobs += scenes.jobs(deck, piece.A.pool_seed + 1, int(n * piece.A.edits), "edit", *args, shares=scenes.EDIT_BUCKETS)
    random.Random(piece.A.pool_seed).shuffle(jobs)
    vae = (
        copy.deepcopy(vae).to(torch.float32 if piece.A.smoke else torch.bfloat16).to(memory_format=torch.channels_last)
    )
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
            here.setdefault(name, []).append(torch.from_numpy(made[name]).to(piece.DEVICE))
        said += made["said"][:1]
        if time.time() - start > piece.A.pool_seconds:
            pool.shutdown(wait=False, cancel_futures=True)
            break
    found = {key: {name: torch.cat(parts) for name, parts in here.items()} for key, here in found.items()}
    some = torch.cat([here["z"][:200].flatten(0, 1) for here in found.values()]).float()
    log(
        stage="latents",
        jobs=[k + 1, len(jobs)],
        n=sum(len(h["z"]) for h in found.values()),
        deviation=some.std().item(),
        said=said[:24],
    )
    if not piece.A.smoke and not piece.A.until:  # second.sh has no second use for them
        torch.save(found, path)
    return found


def unseen_captions(pool, deck) -> dict:
    """bucket -> ids, lengths of captions of held-out pairs, for walks of the teacher: no drawing of these is used"""
    n = 16 if piece.A.smoke else 20000
    jobs = scenes.jobs(deck, piece.A.pool_seed + 2, n, "held out", 1, piece.A.tokenizer, model.SECOND_LENGTH)
    found = {}
    for made in pool.map(scenes.make, jobs):
        found.setdefault(made["bucket"], []).append((made["ids"][:, 0], made["lengths"][:, 0]))
    return {
        bucket: [torch.from_numpy(np.concatenate(part)).to(piece.DEVICE).long() for part in zip(*parts)]
        for bucket, parts in found.items()
    }


def random_latents(n: int = 2000) -> dict:
    """A pool of noise in all sizes, with which --warm compiles the kernels of all stages"""
    tokens, found = model.SECOND["in_channels"], {}
    for bucket, kind in [(b, "plain") for b in scenes.BUCKETS] + [(b, "edit") for b in scenes.EDIT_BUCKETS]:
        z = torch.randn(n, bucket[0] * bucket[1], tokens, device=piece.DEVICE).bfloat16()
        ids = torch.randint(2000, (n, 3, model.SECOND_LENGTH), device=piece.DEVICE)
        here = found[bucket, kind] = dict(z=z, ids=ids, lengths=torch.randint(8, 40, (n, 3), device=piece.DEVICE))
        if kind == "edit":
            here["before"] = z
    return found


class Batches:
    """Batches of one size each, of about ROWS tokens; every scene is drawn equally often."""

    def __init__(self, found: dict, transformer):
        self.found, self.keys = found, list(found)
        self.size, self.rope, odds = {}, {}, []
        for bucket, kind in self.keys:
            references = [bucket] if kind == "edit" else []
            rows = model.SECOND_LENGTH + bucket[0] * bucket[1] * (1 + len(references))
            self.size[bucket, kind] = 2 if piece.A.smoke else max(16, piece.A.rows // rows // 16 * 16)
            self.rope[bucket, kind] = transformer.rope(model.SECOND_LENGTH, bucket, references, piece.DEVICE)
            odds.append(len(found[bucket, kind]["z"]) / self.size[bucket, kind])
        self.odds, self.turn = odds, itertools.cycle(self.keys)

    def draw(self):
        key = next(self.turn) if piece.A.warm else random.choices(self.keys, self.odds)[0]
        return key, torch.randint(len(self.found[key]["z"]), (self.size[key],), device=piece.DEVICE)


# ---------------------------------------------------------------------------------------------------------------------
# 2. Text encoder and transformer


def shift_of(bucket) -> float:
    """More noise for larger pictures, in which it hides less"""
    return 2.5 * min(max(bucket[0] * bucket[1] / 256, 0.5), 2.6) ** 0.5


def train_base(text, transformer, found, vae, examples):
    batches, averages = Batches(found, transformer), (Ema(text, 0.9995), Ema(transformer, 0.9995))
    both, parameters = optimisers((text, transformer), piece.A.lr, piece.A.muon), [
        *text.parameters(),
        *transformer.parameters(),
    ]
    empty_ids, empty_length = tokens_of([""])

    def loss_of(x, target, weight, t, ids, n, cos, sin):
        with cast():
            v = transformer(x, t, text(ids, n), rope=(cos, sin))
        return ((v - target).square().mean(-1) * weight).sum(1).mean()

    compile_blocks(text, transformer)
    minutes = (piece.A.until - time.time()) / 60 if piece.A.until else piece.A.base
    time_, progress, seen, saved = clock(minutes), 0.0, [], time.time()
    while progress < 1:
        key, k = batches.draw()
        here, bucket = found[key], key[0]
        batch, which = len(k), torch.randint(here["ids"].shape[1], (len(k),), device=piece.DEVICE)
        drop = torch.rand(batch, device=piece.DEVICE) < 0.1
        ids = torch.where(drop[:, None], empty_ids, here["ids"][k, which].long())
        n = torch.where(drop, empty_length, here["lengths"][k, which].long())
        z = here["z"][k].float()
        noise = torch.randn_like(z)
        u = torch.sigmoid(torch.randn(batch, device=piece.DEVICE))
        u = torch.where(torch.rand(batch, device=piece.DEVICE) < 0.1, torch.rand(batch, device=piece.DEVICE), u)
        t = shift_of(bucket) * u / (1 + (shift_of(bucket) - 1) * u)
        s = t[:, None, None]
        x, target = (1 - s) * z + s * noise, noise - z
        weight = torch.full((x.shape[1],), 1 / x.shape[1], device=piece.DEVICE)
        if "before" in here:  # clean tokens of the reference after the noisy ones; their output does not count
            x, target = torch.cat([x, here["before"][k].float()], 1), torch.cat([target, torch.zeros_like(target)], 1)
            weight = torch.cat([weight, torch.zeros_like(weight)])
        loss = loss_of(x, target, weight, t, ids, n, *batches.rope[key])
        step(both, loss, parameters, rate(progress, time_.step, 150, piece.A.hold))
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
        if time.time() - saved > 60:
            saved = time.time()
            keep(averages[0].average, "text")
            keep(averages[1].average, "transformer")
    log(stage="base", done=time_.step, each=time_.each(), graphs=dict(counters["inductor"]))
    text, transformer = (rounded(a.average) for a in averages)
    keep(text, "text")
    keep(transformer, "transformer")
    if examples is not None:
        show(
            text,
            guided(transformer),
            transformer,
            vae,
            "sheet-base.jpg",
            examples,
            even(2 if piece.A.smoke else 24),
        )
    return text, transformer


# ---------------------------------------------------------------------------------------------------------------------
# 3. Student: 4 steps without guidance; pairs of levels of 4 and 8 steps

COUNTS = {4: 0.8, 8: 0.2}
WALKING = 0.3  # part of the student's time in which the teacher walks
UNSEEN = 0.1  # part of the teacher's pictures of held-out pairs, so that the student follows it there too


def noise_levels():
    """-> noise levels of all schedules of COUNTS, from 1 to 0, and the pairs (from, to, share) of the student"""
    levels = sorted({s for n in COUNTS for s in model.second_sigmas(n)}, reverse=True)
    where, pairs = {s: k for k, s in enumerate(levels)}, []
    for n, share in COUNTS.items():
        stops = model.second_sigmas(n)
        for a, b in zip(stops, stops[1:]):
            pairs.append((where[a], where[b], share * (0.5 / n + 0.5 * (a - b))))
    return levels, pairs


def distil(text_encoder, teacher, found, unseen, vae, minutes, examples):
    batches = Batches(found, teacher)
    with torch.no_grad(), cast():
        empty = text_encoder(*tokens_of([""]))
    compile_blocks(text_encoder, teacher)
    velocity, bank, start, walks = guided(teacher), {}, time.time(), 0
    levels, pairs = noise_levels()
    while (
        time.time() - start < WALKING * 60 * minutes and walks < (3 if piece.A.smoke else 20 if piece.A.quick else 10**9)
    ) or not bank:
        key, k = batches.draw()
        k, here, tokens = k[: max(len(k) // 2, 1)], found[key], key[0][0] * key[0][1]
        ids, lengths = here["ids"][k, 0].long(), here["lengths"][k, 0].long()
        if key[1] == "plain" and key[0] in unseen:
            other, many = unseen[key[0]], int(UNSEEN * len(k))
            j = torch.randint(len(other[0]), (many,), device=piece.DEVICE)
            ids, lengths = (torch.cat([o[j], mine[many:]]) for o, mine in zip(other, (ids, lengths)))
        with torch.no_grad(), cast():
            text = text_encoder(ids, lengths)
        before = here["before"][k].float() if "before" in here else None
        x = torch.randn(len(k), tokens, model.SECOND["in_channels"], device=piece.DEVICE)
        states = [x.bfloat16()]
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
    average, both = Ema(student, 0.998), optimisers((student,), 0.5 * piece.A.lr, 0.5 * piece.A.muon)
    levels, first, last, share = (torch.tensor(c, device=piece.DEVICE) for c in (levels, *zip(*pairs)))
    keys = list(bank)
    odds = [len(bank[key]["k"]) / batches.size[key] for key in keys]

    def loss_of(x, target, weight, t, text, cos, sin):
        with cast():
            v = student(x, t, text, rope=(cos, sin))
        return ((v - target).square().mean(-1) * weight).sum(1).mean()

    compile_blocks(student)
    time_, progress, seen, saved = clock(minutes), 0.0, [], time.time()
    while progress < 1:
        key = random.choices(keys, odds)[0]
        here = bank[key]
        i = torch.randint(len(here["k"]), (batches.size[key],), device=piece.DEVICE)
        pair = torch.multinomial(share, len(i), replacement=True)
        a, b = first[pair], last[pair]
        with torch.no_grad(), cast():
            text = text_encoder(here["ids"][i], here["lengths"][i])
        x, y, t = here["states"][i, a].float(), here["states"][i, b].float(), levels[a]
        target = (x - y) / (t - levels[b])[:, None, None]
        weight = torch.full((x.shape[1],), 1 / x.shape[1], device=piece.DEVICE)
        if "before" in found[key]:
            x, target = torch.cat([x, found[key]["before"][here["k"][i]].float()], 1), torch.cat(
                [target, torch.zeros_like(target)], 1
            )
            weight = torch.cat([weight, torch.zeros_like(weight)])
        loss = loss_of(x, target, weight, t, text, *batches.rope[key])
        step(both, loss, student.parameters(), rate(progress, time_.step, 50, 0.3))
        average.update()
        progress = time_.tick()
        if time_.step % 10 == 0:
            seen.append(loss.detach())
        if time_.step % 200 == 0:
            log(stage="distil", step=time_.step, progress=round(progress, 3), loss=torch.stack(seen).mean().item())
            seen = []
        if time.time() - saved > 60:
            saved = time.time()
            keep(average.average, "student")
    log(stage="distil", done=time_.step, each=time_.each(), graphs=dict(counters["inductor"]))
    student = rounded(average.average)
    keep(student, "student")
    if examples is not None:
        show(
            text_encoder,
            plain(student),
            student,
            vae,
            "sheet-student.jpg",
            examples,
            model.second_sigmas(model.SECOND_STEPS),
        )


# ---------------------------------------------------------------------------------------------------------------------


def prepare():
    """Drawings -> painter and deck"""
    rows, index, pixels = paint.drawings(
        piece.A.cache,
        piece.WORK,
        64 if piece.A.smoke else paint.SIDE,
        40 if piece.A.smoke else None,
        2 if piece.A.smoke else 16,
    )
    real = index
    if piece.A.translate > 0:
        side = 32 if piece.A.smoke else 192
        index, pixels = translate.fill(rows, index, pixels, piece.DEVICE, piece.A.translate, side, lambda row: log(**row))
    painter = paint.Painter(pixels, piece.DEVICE)
    deck = painter.deck(rows, index)
    deck.out = data.held_out_pairs(rows, real)
    deck.trained = (index >= 0) & ~(deck.out & (index == real))  # no real drawing of a held-out pair
    log(
        drawings=len(pixels),
        on_gpu=torch.cuda.memory_allocated() / 1e9 if piece.DEVICE == "cuda" else 0,
        can_be_recoloured=float(deck.tintable.mean()),
    )
    return painter, deck


@torch.no_grad()
def example_references(painter, deck, vae):
    """Six single things on white in 3-D, as references of the sheets"""
    r, rows, colours, bucket = random.Random(7), [], [], (4, 4) if piece.A.smoke else (16, 16)
    for _ in range(6):
        thing, _ = deck.pick(r, False, 0)
        scene = dict(
            kind="single",
            things=[thing],
            style=data.NAMES[0],
            tints=[None],
            ground=None,
            line=None,
            scale=None,
            place=None,
            count=1,
        )
        row, colour = scenes.layout(r, deck, scene, bucket)
        rows.append(row)
        colours.append(colour)
    with cast():
        return vae.to_tokens(vae.moments(pixels(painter.paint(np.stack(rows), np.stack(colours), bucket)))[0]).float()


def main():
    torch.manual_seed(piece.A.pool_seed)
    random.seed(piece.A.pool_seed)
    torch.set_float32_matmul_precision("high")
    piece.load_kernels()
    vae, text, transformer = (
        model.Autoencoder().to(piece.DEVICE),
        model.TextEncoder().to(piece.DEVICE),
        model.Transformer(model.SECOND).to(piece.DEVICE),
    )
    vae.load_state_dict(stored("vae"))
    vae = vae.eval().requires_grad_(False)
    piece.keep(vae, "vae")  # so that --out has all parts
    text.load_state_dict(stored("text"))
    transformer.load_state_dict(model.grow(stored("transformer"), model.SECOND["num_single_layers"]))
    log(parameters=[model.count(m) for m in (text, transformer, vae)])
    if piece.A.warm:
        examples, found, unseen = None, random_latents(), {}
    else:
        painter, deck = prepare()
        with ProcessPoolExecutor(2 if piece.A.smoke else 15) as pool:
            if piece.A.vae > 0:
                vae = train_vae(pool, painter, deck, vae)
            examples = example_references(painter, deck, vae)
            unseen = unseen_captions(pool, deck) if piece.A.distil > 0 else {}
            found = latents(pool, painter, deck, vae) if piece.A.base > 0 or piece.A.distil > 0 else None
        painter.levels = None
        torch.cuda.empty_cache()
    if piece.A.base > 0:
        text, transformer = train_base(text, transformer, found, vae, examples)
    if piece.A.kernels:
        piece.keep_kernels()
    if piece.A.distil > 0:
        distil(rounded(text), rounded(transformer), found, unseen, vae, piece.A.distil, examples)
    log(finished=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cache", type=pathlib.Path, default=".demo-cache")
    parser.add_argument("--work", type=pathlib.Path, default="/tmp/demo2")
    parser.add_argument(
        "--out", type=pathlib.Path, help="where copies of weights, log and sheets go"
    )
    for name, default in dict(
        vae=0.0, base=0.0, distil=0.0, lr=1e-3, muon=0.01, guidance=3.0, hold=0.3, edits=0.35, focus=1.0, translate=0.0
    ).items():
        parser.add_argument(f"--{name}", type=float, default=default)
    for name, default in dict(pool=240000, rows=ROWS).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--pool-seconds", type=float, default=80)
    parser.add_argument("--styles", nargs="*", default=[], metavar="STYLE=FACTOR", help="draw a style FACTOR times as often")
    parser.add_argument("--until", type=float, help="the base ends at this time (seconds since 1970), instead of after --base minutes")
    parser.add_argument("--kernels", action="store_true", help="leave compiled kernels in --out, for the next machine")
    parser.add_argument("--pool-seed", type=int, default=1, help="another number: other scenes")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="steps take 2.3 times as long")
    parser.add_argument("--smoke", action="store_true", help="a few steps of everything on the CPU")
    parser.add_argument("--warm", action="store_true", help="compile the kernels of base and student with noise, beside a piece that shares TORCHINDUCTOR_CACHE_DIR")
    parser.add_argument("--quick", action="store_true", help="60 steps of everything: does it run, and how fast?")
    A = piece.A = parser.parse_args()
    piece.DEVICE, piece.WORK, piece.START = "cpu" if A.smoke else "cuda", A.work, time.time()
    A.out, A.tokenizer = A.out or A.work, str(A.cache / "tokenizer")
    if A.warm:
        A.quick, A.base, A.distil = True, 1.0, 1.0
    if A.smoke:
        A.compile, A.vae, A.base, A.distil, A.translate = False, 1.0, 1.0, 1.0, 0.05
        scenes.BUCKETS = scenes.EDIT_BUCKETS = {(4, 4): 0.7, (4, 8): 0.3}
    for word in A.styles:
        style, _, factor = word.partition("=")
        if style not in data.STYLES or not factor.replace(".", "", 1).isdigit():
            parser.error(f"--styles {word}: not of the form STYLE=FACTOR, STYLE one of {', '.join(data.NAMES)}")
        data.STYLES[style] = data.STYLES[style][0] * float(factor), data.STYLES[style][1]
    for shares, which in ((scenes.SHARES, "single"), (scenes.BUCKETS, (16, 16))):
        if which in shares:
            shares[which] *= A.focus  # --focus 3: 84 % single things instead of 63 %, 73 % at 256x256 instead of 48 %
    for folder in (A.out, A.work / "weights"):
        folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(A.work / "inductor"))
    main()
