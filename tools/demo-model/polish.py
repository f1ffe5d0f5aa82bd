"""Polishes the student of the second edition: makes it show the right thing more often, in more styles.

    python tools/demo-model/polish.py --scenes 16000 --net-minutes 15 --minutes 60 --out OUT      # two cores; a GPU is found by itself
    python tools/demo-model/polish.py --smoke --work /tmp/smoke                                   # a check

1. Scenes of single things are composed from real drawings and encoded. Held-out pairs (data.held_out) are left out.
2. A net learns to name the thing and the style in the noisy latents of these scenes (Namer). It shares nothing with the
   judges that score the model (judge.py, judge2.py): they see 64x64 pixels, have other weights and other scenes.
3. The student walks from noise for captions of any thing in any style, also of pairs without a drawing. Where the namer
   does not find what the caption says, the gradient of its loss goes back through the last steps of the walk.
   Beside that, the student is held to what it was in walks of its own of all kinds: pairs, counts, colours, sizes, edits.

Text encoder and autoencoder stay as they are. OUT gets student.safetensors and log-polish.jsonl.
"""

import argparse
import copy
import json
import pathlib
import random
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import captions
import data
import export
import judge
import lora
import model
import paint
import scenes

BUCKET = (16, 16)
STOPS = model.second_sigmas(model.SECOND_STEPS)
NOISIEST = 0.7  # noise level up to which the namer names


def log(a, **row):
    row["at"] = round(time.time() - a.start, 1)
    print(json.dumps(row), flush=True)
    with open(a.out / "log-polish.jsonl", "a") as file:
        file.write(json.dumps(row) + "\n")


# ---------------------------------------------------------------------------------------------------------------------
# 1. Latents of real drawings


def single(r: random.Random, deck: scenes.Deck, thing: int, number: int) -> dict:
    """A scene of one thing in one style, as scenes.draw_scene draws them"""
    style, ground = data.NAMES[number], scenes.draw_ground(r)
    has_drawing = deck.index[thing, number] >= 0
    tint = scenes.draw_tint(r, deck, thing, style, ground, 0.3) if has_drawing else None
    s = dict(kind="single", things=[thing], style=style, ground=ground, line=None, scale=None, place=None)
    how = r.random()
    if how < 0.05:
        s["scale"] = "small"
    elif how < 0.12:
        s["scale"] = "big"
    elif how < 0.17:
        s["place"] = r.choice(list(data.PLACES))
    return dict(s, tints=[tint], own=[None], relation=None, count=1, say_style=True)


@torch.no_grad()
def encode(a, vae) -> dict:
    """-> z [n,L,C] bf16, thing [n], style [n] of scenes in which all drawings are equally frequent, and the deck"""
    path = a.work / f"latents-{a.scenes}.pt"
    rows, index, pixels = paint.drawings(a.cache, a.work, 64 if a.smoke else 256, 40 if a.smoke else None, 2)
    if path.exists():
        found = torch.load(path, weights_only=False)
        return found
    painter = paint.Painter(pixels, a.device)
    deck, r = painter.deck(rows, index), random.Random(5)
    found = dict(deck=deck)
    vae = copy.deepcopy(vae).to(memory_format=torch.channels_last)
    for name, out, n in (("seen", False, a.scenes), ("unseen", True, min(800, a.scenes // 8))):
        pairs = np.argwhere((deck.index >= 0) & (deck.out == out)).tolist()
        order = [p for _ in range(-(-n // len(pairs))) for p in r.sample(pairs, len(pairs))][:n]
        parts = []
        for i in range(0, n, 32):
            made = [scenes.layout(r, deck, single(r, deck, *p), a.bucket) for p in order[i : i + 32]]
            x = painter.paint(*(np.stack(m) for m in zip(*made)), a.bucket).float() / 127.5 - 1
            with a.half():
                x = vae.moments(x.contiguous(memory_format=torch.channels_last))[0]
            parts.append(vae.to_tokens(x.float()).bfloat16().cpu())
            if i % 3200 == 0:
                log(a, stage="encode", kind=name, done=i)
        thing, style = torch.tensor(order).T
        found[name] = dict(z=torch.cat(parts), thing=thing, style=style)
    torch.save(found, path)
    return found


# ---------------------------------------------------------------------------------------------------------------------
# 2. The namer


class Namer(nn.Module):
    """Names the thing and the style in noisy latents"""

    def __init__(self, things: int):
        super().__init__()
        self.things = things
        self.body = nn.Sequential(
            nn.Conv2d(16, 96, 3, 1, 1), judge.Block(96, 192), judge.Block(192, 320), judge.Block(320, 448)
        )
        self.head = nn.Linear(448 * 4, things + len(data.NAMES))

    def forward(self, tokens, grid):
        """[B,L,C] -> scores of the things, of the styles"""
        x = F.pixel_shuffle(tokens.transpose(1, 2).unflatten(2, grid), 2)
        x = self.body(x.contiguous(memory_format=torch.channels_last))
        x = F.adaptive_avg_pool2d(x, 2).flatten(1)
        return self.head(F.dropout(x, 0.3, self.training)).float().split([self.things, len(data.NAMES)], 1)


def disturb(z, grid):
    """Shifted by up to three latent pixels, which is a token and a half, and noisy"""
    x = F.pixel_shuffle(z.transpose(1, 2).unflatten(2, grid), 2)
    down, right = (random.randrange(7) for _ in "yx")
    x = F.pad(x, (3, 3, 3, 3), mode="replicate")[:, :, down : down + 2 * grid[0], right : right + 2 * grid[1]]
    x = F.pixel_unshuffle(x, 2).flatten(2).transpose(1, 2)
    s = (torch.rand(len(x), 1, 1, device=x.device) * NOISIEST) * (torch.rand(len(x), 1, 1, device=x.device) < 0.8)
    return (1 - s) * x + s * torch.randn_like(x)


@torch.no_grad()
def rightness(a, namer, part) -> float:
    namer.eval()
    with a.half():
        said = [namer(z.float().to(a.device), a.bucket)[0].argmax(1).cpu() for z in part["z"].split(100)]
    namer.train()
    return (torch.cat(said) == part["thing"]).float().mean().item()


def train_namer(a, found):
    path, deck = a.work / "namer.pt", found["deck"]
    namer = Namer(len(deck.names.names)).to(a.device).to(memory_format=torch.channels_last)
    if path.exists():
        namer.load_state_dict(torch.load(path))
        return namer.eval().requires_grad_(False)
    part, unseen = found["seen"], found["unseen"]
    optimiser = torch.optim.AdamW(namer.parameters(), lr=2e-3, weight_decay=0.03)
    start, steps, progress, seen = time.time(), 0, 0.0, []
    while progress < 1:
        k = torch.randint(len(part["thing"]), (8 if a.smoke else 256,))
        z = disturb(part["z"][k].float().to(a.device), a.bucket)
        with a.half():
            thing, style = namer(z, a.bucket)
        loss = F.cross_entropy(thing, part["thing"][k].to(a.device), label_smoothing=0.05)
        loss = loss + 0.3 * F.cross_entropy(style, part["style"][k].to(a.device), label_smoothing=0.05)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.param_groups[0]["lr"] = 2e-3 * min(1, (steps + 1) / 60) * min(1.0, 0.01 + 1.25 * (1 - progress))
        optimiser.step()
        steps, seen = steps + 1, seen + [loss.item()]
        progress = steps / 3 if a.smoke else min(1.0, (time.time() - start) / 60 / a.net_minutes)
        if steps % 100 == 0:
            log(a, stage="namer", step=steps, loss=np.mean(seen), held_out=rightness(a, namer, unseen))
            seen = []
    log(a, stage="namer", done=steps, held_out_drawings=rightness(a, namer, unseen))
    torch.save(namer.state_dict(), path)
    return namer.eval().requires_grad_(False)


# ---------------------------------------------------------------------------------------------------------------------
# 3. The student


class Words:
    """Captions as token ids, of a deck whose things are called by their names alone: other words may mean several things"""

    def __init__(self, a, deck: scenes.Deck):
        self.a, self.deck, self.tokenizer = a, deck, data.load_tokenizer(str(a.cache / "tokenizer"))
        self.names = copy.copy(deck.names)
        self.names.ways = [([n], [1.0]) for n in deck.names.names]

    def tokens(self, said: list):
        pair = data.tokenize(self.tokenizer, said, model.SECOND_LENGTH)
        return [torch.from_numpy(t).to(self.a.device).long() for t in pair]

    def singles(self, r: random.Random, n: int):
        """n captions of one thing each, half of them of any thing in any style: -> ids, lengths, things, styles"""
        pairs = []
        while len(pairs) < n:
            style = r.choices(range(len(data.NAMES)), [data.STYLES[s][0] for s in data.NAMES])[0]
            thing = r.randrange(len(self.names.names))
            pairs.append((thing, style) if r.random() < 0.5 else self.deck.pick(r, False, style))
        made = [single(r, self.deck, *p) for p in pairs]
        said = [captions.describe(r, self.names, dict(s, tints=s["tints"])) for s in made]
        return [*self.tokens(said), *(torch.tensor(c).to(self.a.device) for c in zip(*pairs))]

    def mixed(self, r: random.Random, n: int, edit: bool):
        """n captions of all kinds, or of edits: -> ids, lengths"""
        said = []
        while len(said) < n:
            s = scenes.draw_scene(r, self.deck, False, dict(single=0.85, count=0.15) if edit else scenes.SHARES)
            if not edit:
                said.append(scenes.say(r, self.deck, s))
                continue
            after, changed = scenes.change(r, self.deck, s)
            if changed:
                said.append(captions.instruct(r, self.deck.names, s, after, changed))
        return self.tokens(said)


def walk(a, net, x, text, rope, before=None, stops=STOPS):
    """-> the states at all stops"""
    states = [x]
    with a.half():
        for high, low in zip(stops, stops[1:]):
            inside = x if before is None else torch.cat([x, before], 1)
            v = net(inside, torch.full((len(x),), high, device=x.device), text, rope=rope)[:, : x.shape[1]]
            x = x + (low - high) * v
            states.append(x)
    return states


@torch.no_grad()
def memories(a, text, student, words: Words) -> list:
    """Walks of the student as it was, of all kinds and sizes: batches of (bucket, features, states, reference)"""
    kept, r = [], random.Random(9)
    buckets = dict(scenes.BUCKETS)
    for _ in range(3 if a.smoke else a.memories):
        edit = r.random() < 0.3
        shares = scenes.EDIT_BUCKETS if edit else buckets
        bucket = a.bucket if a.smoke else r.choices(list(shares), list(shares.values()))[0]
        rows = model.SECOND_LENGTH + bucket[0] * bucket[1] * (1 + edit)
        n = 2 if a.smoke else max(2, a.batch * 304 // rows)
        rope = student.rope(model.SECOND_LENGTH, bucket, [bucket] if edit else [], a.device)
        noise = lambda: torch.randn(n, bucket[0] * bucket[1], model.SECOND["in_channels"], device=a.device)  # noqa: E731
        with a.half():
            features = text(*words.mixed(r, n, edit))
        before = None
        if edit:  # a picture of the student itself is the reference
            with a.half():
                first = text(*words.mixed(r, n, False))
            plain = student.rope(model.SECOND_LENGTH, bucket, (), a.device)
            before = walk(a, student, noise(), first, plain)[-1]
        states = walk(a, student, noise(), features, rope, before)
        kept.append((bucket, features.bfloat16(), torch.stack(states, 1).bfloat16(), before))
    return kept


def remember(a, student, memory):
    """How far one step of the student is from the same step of the one it was"""
    bucket, features, states, before = memory
    rope = student.rope(model.SECOND_LENGTH, bucket, [bucket] if before is not None else [], a.device)
    level = torch.randint(len(STOPS) - 1, (len(states),), device=a.device)
    stops, at = torch.tensor(STOPS, device=a.device), torch.arange(len(states), device=a.device)
    x, y, t = states[at, level].float(), states[at, level + 1].float(), stops[level]
    inside = x if before is None else torch.cat([x, before], 1)
    with a.half():
        v = student(inside, t, features.float(), rope=rope)[:, : x.shape[1]]
    return (v - (x - y) / (t - stops[level + 1])[:, None, None]).square().mean()


def wrongness(a, namer, x, thing, style):
    """Loss of the namer for each picture, at a random noise level and shift"""
    with a.half():
        said = namer(disturb(x, a.bucket), a.bucket)
    losses = [F.cross_entropy(s, w, reduction="none") for s, w in zip(said, (thing, style))]
    return losses[0] + 0.5 * losses[1]


@torch.no_grad()
def screen(a, namer, text, student, words, r, rope, n: int):
    """Walks for n captions -> those whose picture is not named with certainty: (ids, lengths, thing, style, noise), and how
    many of all were named right"""
    kept, right = [], []
    for _ in range(-(-n // a.batch)):
        ids, lengths, thing, style = words.singles(r, a.batch)
        noise = torch.randn(a.batch, a.bucket[0] * a.bucket[1], model.SECOND["in_channels"], device=a.device)
        with a.half():
            features = text(ids, lengths)
        x = walk(a, student, noise, features, rope)[-1]
        with a.half():
            said = namer(x, a.bucket)
        sure = said[0].softmax(1).gather(1, thing[:, None])[:, 0] * said[1].softmax(1).gather(1, style[:, None])[:, 0]
        right += (said[0].argmax(1) == thing).tolist()
        hard = sure < a.sure
        kept.append([t[hard] for t in (ids, lengths, thing, style, noise)])
    return [torch.cat(c) for c in zip(*kept)], float(np.mean(right))


def polish(a, namer, text, student, words):
    """In rounds: find captions that go wrong, learn from each of them a.epochs times"""
    rope = student.rope(model.SECOND_LENGTH, a.bucket, (), a.device)
    kept = memories(a, text, student, words)
    log(a, stage="memories", batches=len(kept))
    student = copy.deepcopy(student).requires_grad_(True)
    average = copy.deepcopy(student).requires_grad_(False)
    parameters = list(student.parameters())
    optimiser = torch.optim.AdamW(parameters, lr=a.lr, betas=(0.9, 0.98), weight_decay=0.0)
    r, steps, start, progress, saved = random.Random(a.seed), 0, time.time(), 0.0, time.time()
    while progress < 1:
        (ids, lengths, thing, style, noise), right = screen(a, namer, text, student, words, r, rope, a.screen)
        order = torch.cat([torch.randperm(len(thing)) for _ in range(a.epochs)])
        moved, held = [], []
        for k in order.split(a.batch):
            with torch.no_grad(), a.half():
                features = text(ids[k], lengths[k])
            last = random.randint(2, len(STOPS) - 1)  # so many steps get a gradient
            with torch.no_grad():
                x = walk(a, student, noise[k], features, rope, stops=STOPS[: len(STOPS) - last])[-1]
            x = walk(a, student, x, features, rope, stops=STOPS[len(STOPS) - last - 1 :])[-1]
            loss = wrongness(a, namer, x, thing[k], style[k]).mean()
            optimiser.zero_grad(set_to_none=True)
            (loss * len(k) / a.batch).backward()
            hold = remember(a, student, random.choice(kept))
            (a.hold * hold).backward()
            torch.nn.utils.clip_grad_norm_(parameters, a.clip)
            optimiser.param_groups[0]["lr"] = a.lr * min(1, (steps + 1) / 20) * min(1.0, 0.02 + 1.6 * (1 - progress))
            optimiser.step()
            steps += 1
            torch._foreach_lerp_(list(average.parameters()), parameters, 1 - min(0.98, (1 + steps) / (10 + steps)))
            moved.append(loss.item())
            held.append(hold.item())
            progress = steps / 3 if a.smoke else min(1.0, (time.time() - start) / 60 / a.minutes)
            if progress >= 1:
                break
        log(a, stage="polish", step=steps, named=right, hard=len(thing), loss=np.mean(moved), held=np.mean(held))
        if time.time() - saved > 60 or progress >= 1:
            saved = time.time()
            export.save_parts(average.state_dict(), a.out, "student")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cache", type=pathlib.Path, default=".demo-cache")
    parser.add_argument("--work", type=pathlib.Path, default="/tmp/demo2")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--scenes", type=int, default=16000)
    parser.add_argument("--net-minutes", type=float, default=15)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--memories", type=int, default=60, help="batches of walks to which the student is held")
    parser.add_argument("--hold", type=float, default=2.0, help="weight of being held to them")
    parser.add_argument("--screen", type=int, default=512, help="captions of a round")
    parser.add_argument("--epochs", type=int, default=2, help="uses of each caption that goes wrong")
    parser.add_argument("--sure", type=float, default=0.8, help="pictures named with less probability than this are learned from")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only-net", action="store_true", help="stop after the namer")
    parser.add_argument("--smoke", action="store_true")
    a = parser.parse_args()
    a.device = "cuda" if torch.cuda.is_available() and not a.smoke else "cpu"
    a.out, a.start, a.bucket = a.out or a.work, time.time(), (4, 4) if a.smoke else BUCKET
    a.half = lambda: torch.autocast(a.device, torch.bfloat16, enabled=not a.smoke)
    if a.smoke:
        a.scenes, a.batch, a.screen = 64, 4, 8
    for folder in (a.work, a.out):
        folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(a.seed)
    random.seed(a.seed)
    vae, text, student = lora.load_weights([a.work / "weights", a.cache / "weights"], model.SECOND, a.device)
    found = encode(a, vae)
    namer = train_namer(a, found)
    if not a.only_net:
        polish(a, namer, text, student, Words(a, found["deck"]))
    log(a, finished=True)


if __name__ == "__main__":
    main()
