"""Draws things in styles in which they are not to be seen, from their drawings in other styles.

The 3-D, the flat and the line drawings of Fluent have the same outlines, so a small U-Net learns to draw one from the others. The
drawings of Noto, which have other outlines, tell it colours. It never sees a drawing of a held-out pair. `train2.py --translate MINUTES`
trains it first, and the scenes then have its drawings where there is none, or only one that is held out.

    python tools/demo-model/translate.py check .demo-cache WORK tools/demo-model/judge.safetensors [MINUTES [SIDE]]

trains it and prints how many of its drawings of held-out pairs the judge names, beside the real ones, and a sheet of
them into WORK.
"""

import pathlib
import random
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import data
import paint

FAMILY = [data.NAMES.index(s) for s in ("fluent-flat", "fluent-3d", "fluent-line")]  # what it draws; Noto's would be blurred
WIDTHS = (24, 48, 96, 128, 160)


class Block(nn.Module):
    def __init__(self, i: int, o: int):
        super().__init__()
        self.a, self.b, self.short = nn.Conv2d(i, o, 3, 1, 1), nn.Conv2d(o, o, 3, 1, 1), nn.Conv2d(i, o, 1)
        self.norm_a, self.norm_b = nn.GroupNorm(8, o), nn.GroupNorm(8, o)

    def forward(self, x):
        return self.short(x) + F.silu(self.norm_b(self.b(F.silu(self.norm_a(self.a(x))))))


class Translator(nn.Module):
    """Drawings in all styles, premultiplied, zero where there is none [B,4*styles,H,W], and the style to draw [B] -> [B,4,H,W]"""

    def __init__(self):
        super().__init__()
        styles = len(data.NAMES)
        self.first, self.last = nn.Conv2d(5 * styles, WIDTHS[0], 3, 1, 1), nn.Conv2d(WIDTHS[0], 4, 1)
        self.down = nn.ModuleList(Block(WIDTHS[max(k - 1, 0)], w) for k, w in enumerate(WIDTHS))
        self.up = nn.ModuleList(Block(w + WIDTHS[k + 1], w) for k, w in enumerate(WIDTHS[:-1]))

    def forward(self, x, style):
        planes = F.one_hot(style, len(data.NAMES)).to(x.dtype)[:, :, None, None].expand(-1, -1, *x.shape[2:])
        h, kept = self.first(torch.cat([x, planes], 1)), []
        for k, block in enumerate(self.down):
            h = block(F.avg_pool2d(h, 2) if k else h)
            kept.append(h)
        for block, skip in zip(reversed(self.up), reversed(kept[:-1])):
            h = block(torch.cat([F.interpolate(h, scale_factor=2), skip], 1))
        return self.last(h)


def premultiplied(pixels, numbers, side: int, device: str):
    """Drawings -> [n,4,side,side] u8"""
    parts = []
    for i in range(0, len(numbers), 128):
        x = torch.from_numpy(np.array(pixels[np.sort(numbers[i : i + 128])])).to(device).permute(0, 3, 1, 2).float()
        x[:, :3] *= x[:, 3:] / 255
        x = x[np.argsort(np.argsort(numbers[i : i + 128]))]
        parts.append(F.interpolate(x, (side, side), mode="area").round().to(torch.uint8))
    return torch.cat(parts)


def moved(x):
    """The same random turn, size and place for all drawings of a thing, half of them mirrored"""
    n, device = len(x), x.device
    angle, size = 0.12 * torch.randn(n, device=device), 1 + 0.1 * torch.randn(n, device=device)
    mirror = torch.where(torch.rand(n, device=device) < 0.5, -1.0, 1.0)
    turn = torch.stack([mirror * angle.cos(), -mirror * angle.sin(), angle.sin(), angle.cos()], -1).view(n, 2, 2)
    grid = F.affine_grid(
        torch.cat([turn * size[:, None, None], 0.06 * torch.randn(n, 2, 1, device=device)], 2), x.shape, align_corners=False
    )
    return F.grid_sample(x, grid, align_corners=False)


def train(pixels, index, out, device: str, minutes: float, side: int, batch: int = 32, say=print) -> Translator:
    net = Translator().to(device).to(memory_format=torch.channels_last)
    optimiser, start, step = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=0.01), time.time(), 0
    seen = (index >= 0) & ~out
    place = np.full(index.shape, seen.sum())  # the last is no drawing
    place[seen] = np.arange(seen.sum())
    drawings = premultiplied(pixels, index[seen], side, device)
    drawings, place = torch.cat([drawings, torch.zeros_like(drawings[:1])]), torch.from_numpy(place).to(device)
    targets = [(t, s) for t, s in np.argwhere(seen) if s in FAMILY and seen[t].sum() > 1]
    targets += [(t, s) for t, s in targets if data.NAMES[s] == "fluent-line"]  # the hardest style, twice
    targets = torch.tensor(np.array(targets), device=device)
    while (progress := (time.time() - start) / 60 / minutes) < 1:
        optimiser.param_groups[0]["lr"] = 2e-3 * min(1, (step + 1) / 100) * (1 - progress)
        thing, style = targets[torch.randint(len(targets), (batch,), device=device)].T
        sources, target = place[thing], place[thing, style]
        left = (torch.rand(sources.shape, device=device) < 0.5) & (torch.rand(batch, 1, device=device) < 0.5)  # half have all
        sources[left | (sources == target[:, None])] = len(drawings) - 1
        both = drawings[torch.cat([sources, target[:, None]], 1)].flatten(1, 2).float() / 255
        x, y = moved(both).split([both.shape[1] - 4, 4], 1)
        with torch.autocast(device, torch.bfloat16):
            made = net(x.contiguous(memory_format=torch.channels_last), style)
        d = made.float() - y
        edges = (d[..., 1:] - d[..., :-1]).abs().mean() + (d[..., 1:, :] - d[..., :-1, :]).abs().mean()
        loss = d.abs().mean() + edges
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
        step += 1
        if step % 200 == 0:
            say(dict(stage="translate", step=step, loss=round(loss.item(), 4), seconds=round(time.time() - start)))
    return net.eval()


def holes(index, out) -> list:
    """(thing, style) of what can be drawn: there is no drawing, or only one that is held out, but one of the family is seen"""
    seen = (index >= 0) & ~out
    return [(t, s) for t, s in np.argwhere(~seen) if s in FAMILY and seen[t, FAMILY].any()]


@torch.no_grad()
def draw(net: Translator, pixels, index, out, todo: list, side: int, device: str) -> np.ndarray:
    """-> [n,H,W,4] u8 of the size of the drawings"""
    parts, size = [pixels[:0]], pixels.shape[1]
    for i in range(0, len(todo), 32):
        things, styles = np.array(todo[i : i + 32]).T
        seen = (index[things] >= 0) & ~out[things]
        x = torch.zeros(*seen.shape, 4, side, side, device=device)
        x[torch.from_numpy(seen).to(device)] = premultiplied(pixels, index[things][seen], side, device).float() / 255
        with torch.autocast(device, torch.bfloat16):
            y = net(x.flatten(1, 2).contiguous(memory_format=torch.channels_last), torch.from_numpy(styles).to(device))
        y = F.interpolate(y.float().clamp(0, 1), (size, size), mode="bicubic").clamp(0, 1)
        y[:, :3] /= y[:, 3:].clamp_min(0.02)
        parts.append((255 * y.clamp(0, 1)).round().to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy())
    return np.concatenate(parts)


def fill(rows: list, index, pixels, device: str, minutes: float, side: int, say):
    """-> index and pixels with the drawings that were made, in the place of those that are held out"""
    out = data.held_out_pairs(rows, index)
    todo = holes(index, out)
    made = draw(train(pixels, index, out, device, minutes, side, say=say), pixels, index, out, todo, side, device)
    index = index.copy()
    for k, hole in enumerate(todo):
        index[hole] = len(pixels) + k
    say(dict(stage="translate", drawings=len(todo), held_out=[int(sum(out[hole] for hole in todo)), int(out.sum())]))
    return index, np.concatenate([pixels, made])


# ---------------------------------------------------------------------------------------------------------------------


def check(cache: pathlib.Path, work: pathlib.Path, weights: str, minutes: float, side: int):
    from PIL import Image

    import judge

    device = "cuda" if torch.cuda.is_available() else "cpu"
    work.mkdir(parents=True, exist_ok=True)
    rows, index, pixels = paint.drawings(cache, work, 256, workers=16)
    out, found = data.held_out_pairs(rows, index), judge.load(weights)[0]
    net = train(pixels, index, out, device, minutes, side, 32 if device == "cuda" else 16)
    todo = [hole for hole in holes(index, out) if out[hole]]
    made, real = draw(net, pixels, index, out, todo, side, device), pixels[[index[hole] for hole in todo]]

    def on_white(p):
        a = p[..., 3:].astype(np.float32) / 255
        return np.pad((p[..., :3] * a + 255 * (1 - a)).astype(np.uint8), ((0, 0), (24, 24), (24, 24), (0, 0)), constant_values=255)

    for s in FAMILY:
        here = [k for k, hole in enumerate(todo) if hole[1] == s]
        named = [judge.name(found, on_white(p[here])).argmax(1).numpy() == [todo[k][0] for k in here] for p in (real, made)]
        print(f"{data.NAMES[s]}: {len(here)} held-out drawings, real {named[0].mean():.1%} named, made {named[1].mean():.1%}")
    page, r = Image.new("RGB", (24 * 100, 8 * 100), "white"), random.Random(0)
    for k, i in enumerate(r.sample(range(len(todo)), min(96, len(todo)))):
        for j, p in enumerate((real, made)):
            tile = Image.fromarray(on_white(p[i : i + 1])[0]).resize((98, 98))
            page.paste(tile, (k % 24 * 100, (k // 24 * 2 + j) * 100))
    page.save(work / "translated.png")


if __name__ == "__main__":
    check(*map(pathlib.Path, sys.argv[2:4]), sys.argv[4], *(float(a) for a in sys.argv[5:6] or [2]), *(int(a) for a in sys.argv[6:7] or [256]))
