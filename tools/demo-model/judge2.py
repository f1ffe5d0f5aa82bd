"""The judge of the second edition: names the thing, counts, and tells the style; colour and scale are measured from
pixels.

    python tools/demo-model/judge2.py train .demo-cache tools/demo-model/judge.safetensors judge2.safetensors   # a GPU
    python tools/demo-model/judge2.py train .demo-cache tools/demo-model/judge.safetensors judge2.safetensors --smoke
    python tools/demo-model/judge2.py check .demo-cache judge2.safetensors         # all measures on real drawings

The judge of the first edition (judge.py) sees 64x64 pixels, knows things in their own colours and names one that fills
the picture. It is trained further here on recoloured things, and gets heads for the count and the style. To name a
thing of any size, the largest connected part of the picture is cut out and enlarged (cut_out). Training scenes are
composed of real drawings alone: all things in all styles (held-out pairs too: it must know what they look like).
"""

import argparse
import colorsys
import json
import os
import pathlib
import random
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import torch
import torch.nn.functional as F
from scipy import ndimage

import captions
import data
import judge
import paint
import scenes

MOST = 6  # things in a picture


class Judge(judge.Judge):
    """judge.Judge, whose head also scores counts and styles"""

    def __init__(self, things: int):
        super().__init__(things + MOST + len(data.NAMES))

    def forward(self, x):
        """[B,3,64,64], 0 to 1 -> scores of the things, of the counts 1 to 6, of the styles"""
        x = super().forward(x)
        return x.split([x.shape[1] - MOST - len(data.NAMES), MOST, len(data.NAMES)], 1)


def begin(path) -> tuple:
    """A judge with the weights of the first edition's, and the names of the things"""
    first, names = judge.load(path)
    found, weights = Judge(len(names)), first.state_dict()
    for name in ("head.weight", "head.bias"):
        whole = 0.01 * torch.randn_like(found.state_dict()[name])
        whole[: len(names)] = weights[name]
        weights[name] = whole
    found.load_state_dict(weights)
    return found, names


def load(path):
    """-> the judge, and the names of the things"""
    weights, names = judge.read(path)
    found = Judge(len(names))
    found.load_state_dict(weights)
    return found.eval(), names


def edge_of(picture: np.ndarray) -> np.ndarray:
    """The colour of the background: the median of the edge"""
    rim = [picture[:4], picture[-4:], picture[:, :4], picture[:, -4:]]
    return np.median(np.concatenate([p.reshape(-1, 3) for p in rim]), 0)


def mask_of(picture: np.ndarray) -> np.ndarray:
    """Which pixels belong to things: those unlike the background"""
    return np.abs(picture.astype(int) - edge_of(picture)).max(-1) > 36


def square_of(picture: np.ndarray, middle: tuple, side: float) -> np.ndarray:
    """A square of the picture, which may reach over its edge: there it has the colour of the background"""
    n = max(int(round(side)), 8)
    page = np.empty((n, n, 3), np.uint8)
    page[:] = edge_of(picture).astype(np.uint8)
    top, left = (int(round(m - n / 2)) for m in middle)
    y, x = max(top, 0), max(left, 0)
    part = picture[y : max(top + n, 0), x : max(left + n, 0)]
    page[y - top :][: part.shape[0], x - left :][:, : part.shape[1]] = part
    return page


def cut_out(picture: np.ndarray, share: float = 0.86) -> np.ndarray:
    """The largest connected part, of which gaps of a 20th of the picture do not count, in the middle of a square of which its longer side
    takes that share"""
    mask = mask_of(picture)
    gap = max(1, min(picture.shape[:2]) // 40)
    parts, n = ndimage.label(ndimage.binary_dilation(mask, iterations=gap))
    if n == 0:
        return picture
    largest = 1 + int(np.argmax(ndimage.sum_labels(mask, parts, range(1, n + 1))))
    rows, columns = np.nonzero(mask & (parts == largest))
    box = [np.percentile(x, (0.3, 99.7)) for x in (rows, columns)]
    side = max(high - low + 1 for low, high in box) / share
    return square_of(picture, tuple((low + high) / 2 for low, high in box), side)


def small(picture: np.ndarray) -> torch.Tensor:
    """[H,W,3] u8 -> [1,3,64,64] u8; one that is not square is first padded"""
    h, w = picture.shape[:2]
    whole = picture if h == w else square_of(picture, (h / 2, w / 2), max(h, w))
    return judge.shrink(torch.from_numpy(whole.copy()).permute(2, 0, 1)[None]).round().to(torch.uint8)


@torch.no_grad()
def look(found: Judge, picture: np.ndarray):
    """picture [H,W,3] u8 -> scores of the things, the count, the number of the style"""
    one, whole = (found(small(p).float() / 255) for p in (cut_out(picture), picture))
    return one[0][0], 1 + int(whole[1].argmax()), int(one[2].argmax())


# ---------------------------------------------------------------------------------------------------------------------
# Measured


def scale_of(picture: np.ndarray) -> float:
    """The longer side of what is not background, as a part of the picture's shorter side"""
    rows, columns = np.nonzero(mask_of(picture))
    if len(rows) == 0:
        return 0.0
    low, high = (np.percentile(x, q) for x, q in ((rows, 1), (rows, 99)))
    left, right = (np.percentile(x, q) for x, q in ((columns, 1), (columns, 99)))
    return float(max(high - low, right - left) / min(picture.shape[:2]))


def colour_of(picture: np.ndarray) -> list:
    """The colours of the thing, most frequent first: each pixel votes for one of TINTS. Brown, black, white and grey
    are told by lightness and saturation, the others by hue. A colour with less than 15 % of the votes is left out."""
    pixels = picture[mask_of(picture)]
    if len(pixels) < 30:
        return []
    pixels = pixels[:: max(1, len(pixels) // 4000)] / 255
    votes = dict.fromkeys(captions.TINTS, 0)
    for rgb in pixels:
        h, l, s = colorsys.rgb_to_hls(*rgb)  # noqa: E741
        spread, hue = float(rgb.max() - rgb.min()), 360 * h
        if l < 0.16:
            votes["black"] += 1
        elif spread < 0.12:
            votes["white" if l > 0.85 else "black" if l < 0.2 else "grey"] += 1
        elif hue < 14 or hue >= 340:
            votes["pink" if l > 0.74 else "red"] += 1
        elif hue < 42:
            votes["brown" if l < 0.42 or s < 0.45 else "orange"] += 1
        elif hue < 70:
            votes["yellow"] += 1
        elif hue < 162:
            votes["green"] += 1
        elif hue < 198:
            votes["teal"] += 1
        elif hue < 250:
            votes["blue"] += 1
        elif hue < 296:
            votes["purple"] += 1
        else:
            votes["pink"] += 1
    order = sorted(votes, key=lambda c: -votes[c])
    return [c for c in order if votes[c] > 0.15 * len(pixels)]


def has_colour(picture: np.ndarray, colour: str) -> bool:
    """Is the most frequent colour this one, not counting black, white and grey unless they are asked for?"""
    found = [c for c in colour_of(picture) if c == colour or c not in ("black", "white", "grey")]
    return bool(found) and found[0] == colour


def has_ground(picture: np.ndarray, colour: str) -> bool:
    return bool(np.abs(edge_of(picture) - np.array(data.COLOURS[colour])).max() < 20)


# ---------------------------------------------------------------------------------------------------------------------


def draw(r: random.Random, deck, pairs: np.ndarray, count: int | None = None) -> dict:
    """A scene of one kind of thing: count of them, or one of any size and place, often in another colour"""
    thing, k = pairs[r.randrange(len(pairs))]
    style, ground = data.NAMES[k], scenes.draw_ground(r)
    tint = scenes.draw_tint(r, deck, int(thing), style, ground, 0.6)
    s = dict(things=[int(thing)], style=style, tints=[tint], ground=ground, line=None, scale=None, place=None)
    if count is None:
        s["scale"] = r.choice([None, None, "small", "big"])
        s["place"] = r.choice(list(data.PLACES)) if not s["scale"] and r.random() < 0.3 else None
    return dict(s, kind="single" if (count or 1) == 1 else "count", count=count or 1)


def paint_scene(r: random.Random, painter, deck, s: dict, bucket=(16, 16)) -> np.ndarray:
    row, colours = scenes.layout(r, deck, s, bucket)
    return painter.paint(row[None], colours[None], bucket)[0].permute(1, 2, 0).cpu().numpy()


def finish(job) -> np.ndarray:
    """picture, share of the thing that is cut out of it (0: the whole picture) -> [3,64,64] u8"""
    torch.set_num_threads(1)
    picture, share = job
    return small(cut_out(picture, share) if share else picture)[0].numpy()


def examples(pool, painter, deck, n: int, seed: int, held: bool):
    """-> n pictures [n,3,64,64] u8 and (thing, count, style) of each, -1 if it is not asked: single things cut out for the
    first and the last, whole pictures of one to six things for the count"""
    r, parts, what = random.Random(seed), [], []
    pairs = np.argwhere(deck.out if held else deck.index >= 0)
    for i in range(0, n, 200):
        rows, colours, shares = [], [], []
        for k in range(min(200, n - i)):
            s = draw(r, deck, pairs, None if k % 4 else r.choice([1, 2, 3, 4, 5, 6]))
            row, colour = scenes.layout(r, deck, s, (16, 16))
            rows.append(row)
            colours.append(colour)
            shares.append(r.uniform(0.74, 0.94) if k % 4 else 0)
            what.append((s["things"][0], -1, data.NAMES.index(s["style"])) if k % 4 else (-1, s["count"] - 1, -1))
        painted = painter.paint(np.stack(rows), np.stack(colours), (16, 16)).permute(0, 2, 3, 1).cpu().numpy()
        parts += pool.map(finish, zip(painted, shares), chunksize=10)
    return torch.from_numpy(np.stack(parts)), torch.tensor(what)


def train(a):
    device = "cuda" if torch.cuda.is_available() and not a.smoke else "cpu"
    torch.manual_seed(0)
    a.work.mkdir(parents=True, exist_ok=True)
    net, names = begin(a.first)
    rows, index, pixels = paint.drawings(a.cache, a.work, 64 if a.smoke else 256, 40 if a.smoke else None)
    painter = paint.Painter(pixels, device)
    deck = painter.deck(rows, index)
    with ProcessPoolExecutor(min(15, os.cpu_count() or 1)) as pool:
        pictures, what = examples(pool, painter, deck, 64 if a.smoke else a.pictures, 0, False)
        test, right = examples(pool, painter, deck, 64 if a.smoke else 1200, 10**6, True)
    pictures, what, test, right = (x.to(device) for x in (pictures, what, test, right))
    del painter
    net = net.to(device).to(memory_format=torch.channels_last).train()
    optimiser = torch.optim.AdamW(net.parameters(), lr=6e-4, weight_decay=0.02)
    start, step, progress, batch = time.time(), 0, 0.0, 8 if a.smoke else 512

    def rightness():
        net.eval()
        with torch.no_grad():
            said = [torch.cat(h) for h in zip(*(net(t.float() / 255) for t in test.split(250)))]
        net.train()
        return {
            name: (s.argmax(1) == w)[w >= 0].float().mean().item()
            for name, s, w in zip(("thing", "count", "style"), said, right.T)
        }

    while progress < 1:
        k = torch.randint(len(pictures), (batch,), device=device)
        x = judge.roughen(pictures[k].float() / 255).contiguous(memory_format=torch.channels_last)
        with torch.autocast(device, torch.bfloat16):
            said = net(x)
            loss = sum(
                weight * F.cross_entropy(s.float(), w, ignore_index=-1, label_smoothing=0.05)
                for s, w, weight in zip(said, what[k].T, (1.0, 0.3, 0.2))
            )
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.param_groups[0]["lr"] = 6e-4 * min(1, (step + 1) / 50) * min(1.0, 0.02 + 1.4 * (1 - progress))
        optimiser.step()
        step += 1
        progress = step / 4 if a.smoke else min(1.0, (time.time() - start) / 60 / a.minutes)
        if step % 50 == 0:
            print(
                json.dumps(dict(step=step, loss=loss.item(), seconds=round(time.time() - start), **rightness())),
                flush=True,
            )
    print(json.dumps(dict(steps=step, held_out_drawings=rightness())), flush=True)
    judge.write(net, names, a.to)


def check(a):
    """How often the measures are right on real drawings: the ceiling of what a model can reach"""
    a.work.mkdir(parents=True, exist_ok=True)
    rows, index, pixels = paint.drawings(a.cache, a.work, 256, None, 2)
    painter = paint.Painter(pixels, "cpu")
    deck, r = painter.deck(rows, index), random.Random(3)
    found, names = load(a.weights)
    pairs, hits = np.argwhere((deck.index >= 0) & ~deck.out), {}
    buckets = {"128x128": (8, 8), "512x512": (32, 32), "512x256": (16, 32)}
    for k in range(a.n):
        s = draw(r, deck, pairs, r.choice([2, 3, 4, 5, 6]) if k % 3 == 0 else None)
        picture = paint_scene(r, painter, deck, s)
        thing, count, style = look(found, picture)
        kind = "several" if s["count"] > 1 else s["scale"] or ("placed" if s["place"] else "plain")
        named = int(thing.argmax()) == s["things"][0]
        hits.setdefault(f"thing, {kind}" + (", recoloured" if s["tints"][0] else ""), []).append(named)
        hits.setdefault("count", []).append(count == s["count"])
        hits.setdefault("style", []).append(data.NAMES[style] == s["style"])
        if s["tints"][0]:
            hits.setdefault("colour", []).append(has_colour(picture, s["tints"][0]))
        if s["scale"]:
            scale = scale_of(picture)
            hits.setdefault("scale", []).append(scale <= 0.5 if s["scale"] == "small" else scale >= 0.75)
        if k % 10 == 0:
            for size, bucket in buckets.items():
                other = paint_scene(r, painter, deck, dict(s, scale=None, place=None), bucket)
                hits.setdefault(f"thing, {size}", []).append(int(look(found, other)[0].argmax()) == s["things"][0])
    for name in sorted(hits):
        print(f"{name}: {np.mean(hits[name]):.1%} of {len(hits[name])}")


def main():
    parser = argparse.ArgumentParser(description="a judge of the second edition of the demo model")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("train", "check"):
        command = commands.add_parser(name)
        command.add_argument("cache", type=pathlib.Path)
        command.add_argument("--work", type=pathlib.Path, default="/tmp/demo2")
        if name == "train":
            command.add_argument("first", help="the judge of the first edition")
            command.add_argument("to")
            command.add_argument("--minutes", type=float, default=1.5)
            command.add_argument("--pictures", type=int, default=40000)
            command.add_argument("--smoke", action="store_true")
        else:
            command.add_argument("weights")
            command.add_argument("--n", type=int, default=600)
    a = parser.parse_args()
    {"train": train, "check": check}[a.command](a)


if __name__ == "__main__":
    main()
