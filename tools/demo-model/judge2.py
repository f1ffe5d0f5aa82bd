"""The judge of the second edition: names the thing, counts, and tells the style; colour and scale are measured from
pixels.

    python tools/demo-model/judge2.py train .demo-cache judge2.safetensors [--minutes 2]     # a GPU
    python tools/demo-model/judge2.py train .demo-cache judge2.safetensors --smoke           # a CPU
    python tools/demo-model/judge2.py check .demo-cache                     # colours and scales of real drawings

A classifier of pictures of 96x96 with three heads, trained on composed scenes alone: all things in all styles
(held-out pairs too: it must know what they look like), in their own and other colours, one to six of them, at every
size that a caption asks for. A picture that is not square is first padded with the colour of its edge.
"""

import argparse
import colorsys
import json
import pathlib
import random
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

import captions
import data
import judge
import paint
import scenes

SIZE, MOST = 96, 6


class Judge(nn.Module):
    def __init__(self, things: int):
        super().__init__()
        block = judge.Block
        self.body = nn.Sequential(
            nn.Conv2d(3, 48, 3, 1, 1), block(48, 96), block(96, 160), block(160, 256), block(256, 384)
        )
        self.head = nn.Linear(384 * 9, things + MOST + len(data.NAMES))

    def forward(self, x):
        """[B,3,96,96], 0 to 1 -> scores of the things, of the counts 1 to 6, of the styles"""
        x = F.avg_pool2d(self.body(2 * x - 1), 2).flatten(1)
        x = self.head(F.dropout(x, 0.3, self.training))
        return x.split([x.shape[1] - MOST - len(data.NAMES), MOST, len(data.NAMES)], 1)


def edge_of(picture: np.ndarray) -> np.ndarray:
    """The colour of the background: the median of the edge"""
    rim = [picture[:4], picture[-4:], picture[:, :4], picture[:, -4:]]
    return np.median(np.concatenate([p.reshape(-1, 3) for p in rim]), 0)


def squared(picture: np.ndarray) -> np.ndarray:
    h, w = picture.shape[:2]
    side = max(h, w)
    page = np.empty((side, side, 3), np.uint8)
    page[:] = edge_of(picture).astype(np.uint8)
    page[(side - h) // 2 :][:h, (side - w) // 2 :][:, :w] = picture
    return page


def shrink(pictures):
    return F.interpolate(pictures.float(), (SIZE, SIZE), mode="area") / 255


def load(path):
    """-> the judge, and the names of the things"""
    with safe_open(path, "pt") as file:
        weights = {k: file.get_tensor(k).float() for k in file.keys()}
        names = json.loads(file.metadata()["things"])
    found = Judge(len(names))
    found.load_state_dict(weights)
    return found.eval(), names


@torch.no_grad()
def look(found: Judge, picture: np.ndarray):
    """picture [H,W,3] u8 -> scores of the things, the count, the number of the style"""
    things, count, style = found(shrink(torch.from_numpy(squared(picture)).permute(2, 0, 1)[None]))
    return things[0], 1 + int(count.argmax()), int(style.argmax())


# ---------------------------------------------------------------------------------------------------------------------
# Measured


def mask_of(picture: np.ndarray) -> np.ndarray:
    """Which pixels belong to things: those unlike the background"""
    return np.abs(picture.astype(int) - edge_of(picture)).max(-1) > 36


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


def make(job):
    """-> rows and colours of scenes of one kind of thing, and thing, count and style of each"""
    deck, seed, n, held = job
    r, rows, colours, what = random.Random(seed), [], [], []
    styles = len(data.NAMES)
    pairs = np.argwhere(deck.out if held else deck.index >= 0)
    for _ in range(n):
        thing, k = pairs[r.randrange(len(pairs))]
        style, count = data.NAMES[k], r.choice([1, 1, 1, 1, 1, 2, 3, 4, 5, 6])
        ground = scenes.draw_ground(r)
        tint = scenes.draw_tint(r, deck, int(thing), style, ground, 0.35)
        scale = r.choice([None, None, None, "small", "big"]) if count == 1 else None
        place = r.choice(list(data.PLACES)) if count == 1 and not scale and r.random() < 0.2 else None
        kind = "single" if count == 1 else "count"
        s = dict(
            kind=kind,
            things=[int(thing)],
            style=style,
            tints=[tint],
            ground=ground,
            line=None,
            scale=scale,
            place=place,
            count=count,
        )
        row, colour = scenes.layout(r, deck, s, (16, 16))
        rows.append(row)
        colours.append(colour)
        what.append((thing, count - 1, k % styles))
    return np.stack(rows), np.stack(colours), np.array(what)


def pictures_of(pool, painter, deck, n: int, seed: int, held: bool):
    parts, what = [], []
    for rows, colours, w in pool.map(make, [(deck, seed + i, min(250, n - i), held) for i in range(0, n, 250)]):
        parts.append((255 * shrink(painter.paint(rows, colours, (16, 16)))).round().to(torch.uint8))
        what.append(w)
    return torch.cat(parts), torch.from_numpy(np.concatenate(what)).to(painter.device)


def roughen(x):
    """A little blurred, noisy and shifted"""
    n = len(x)
    soft = F.interpolate(F.avg_pool2d(x, 2), (SIZE, SIZE), mode="bilinear")
    x = torch.lerp(x, soft, 0.8 * torch.rand(n, 1, 1, 1, device=x.device))
    x = x + 0.06 * torch.rand(n, 1, 1, 1, device=x.device) * torch.randn_like(x)
    move = torch.zeros(n, 2, 3, device=x.device)
    move[:, 0, 0] = move[:, 1, 1] = 1
    move += torch.randn_like(move) * torch.tensor([0.03, 0.03, 0.02], device=x.device)
    return F.grid_sample(
        x, F.affine_grid(move, x.shape, align_corners=False), padding_mode="border", align_corners=False
    )


def train(a):
    device = "cpu" if a.smoke else "cuda"
    torch.manual_seed(0)
    a.work.mkdir(parents=True, exist_ok=True)
    rows, index, pixels = paint.drawings(
        a.cache, a.work, 64 if a.smoke else 512, 40 if a.smoke else None, 2 if a.smoke else 16
    )
    painter = paint.Painter(pixels, device)
    deck = painter.deck(rows, index)
    with ProcessPoolExecutor(2 if a.smoke else 15) as pool:
        pictures, what = pictures_of(pool, painter, deck, 64 if a.smoke else 120000, 0, False)
        test, right = pictures_of(pool, painter, deck, 32 if a.smoke else 2000, 10**6, True)
    del painter
    net = Judge(len(rows)).to(device).to(memory_format=torch.channels_last)
    optimiser = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=0.02)
    start, step, progress, batch = time.time(), 0, 0.0, 8 if a.smoke else 768

    def rightness():
        net.eval()
        with torch.no_grad():
            said = [torch.cat(h) for h in zip(*(net(t.float() / 255) for t in test.split(250)))]
        net.train()
        one = right[:, 1] == 0
        hits = [(s.argmax(1) == w).float() for s, w in zip(said, right.T)]
        return dict(
            thing=hits[0].mean().item(),
            single=hits[0][one].mean().item(),
            count=hits[1].mean().item(),
            style=hits[2].mean().item(),
        )

    while progress < 1:
        k = torch.randint(len(pictures), (batch,), device=device)
        x = roughen(pictures[k].float() / 255).contiguous(memory_format=torch.channels_last)
        with torch.autocast(device, torch.bfloat16):
            said = net(x)
            loss = sum(
                weight * F.cross_entropy(s, w, label_smoothing=0.05)
                for s, w, weight in zip(said, what[k].T, (1.0, 0.3, 0.2))
            )
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.param_groups[0]["lr"] = 2e-3 * min(1, (step + 1) / 200) * min(1.0, 0.02 + 1.4 * (1 - progress))
        optimiser.step()
        step += 1
        progress = min(1.0, (time.time() - start) / 60 / a.minutes) if not a.smoke else step / 4
        if step % 250 == 0:
            print(
                json.dumps(dict(step=step, loss=loss.item(), seconds=round(time.time() - start), **rightness())),
                flush=True,
            )
    print(json.dumps(dict(steps=step, held_out_drawings=rightness())), flush=True)
    weights = {k: v.detach().cpu().contiguous().to(torch.bfloat16) for k, v in net.state_dict().items()}
    save_file(weights, a.to, {"things": json.dumps([data.clean(r["name"]) or "sign" for r in rows])})


def check(a):
    """How often the measures are right on real drawings: the ceiling of what a model can reach"""
    a.work.mkdir(parents=True, exist_ok=True)
    rows, index, pixels = paint.drawings(a.cache, a.work, 256, 12, 2)
    painter = paint.Painter(pixels, "cpu")
    deck, r = painter.deck(rows, index), random.Random(3)
    colours, scales = {}, []
    for _ in range(a.n):
        s = scenes.draw_scene(r, deck, False, dict(single=1.0))
        row, colour = scenes.layout(r, deck, s, (16, 16))
        picture = painter.paint(row[None], colour[None], (16, 16))[0].permute(1, 2, 0).numpy()
        if s["tints"][0]:
            colours.setdefault(s["tints"][0], []).append(has_colour(picture, s["tints"][0]))
        if s["scale"]:
            scales.append(scale_of(picture) <= 0.5 if s["scale"] == "small" else scale_of(picture) >= 0.75)
    every = [x for some in colours.values() for x in some]
    print(f"colours {np.mean(every):.1%} of {len(every)}; scales {np.mean(scales):.1%} of {len(scales)}")
    print({c: f"{np.mean(x):.0%} of {len(x)}" for c, x in colours.items()})


def main():
    parser = argparse.ArgumentParser(description="a judge of the second edition of the demo model")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("train", "check"):
        command = commands.add_parser(name)
        command.add_argument("cache", type=pathlib.Path)
        command.add_argument("--work", type=pathlib.Path, default="/tmp/demo2")
        if name == "train":
            command.add_argument("to")
            command.add_argument("--minutes", type=float, default=2.0)
            command.add_argument("--smoke", action="store_true")
        else:
            command.add_argument("--n", type=int, default=400)
    a = parser.parse_args()
    {"train": train, "check": check}[a.command](a)


if __name__ == "__main__":
    main()
