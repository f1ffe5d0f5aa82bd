"""Does it paint what was asked? A small classifier, trained on the drawings alone, names the thing in each picture.

    python tools/demo-model/judge.py train .demo-cache judge.safetensors                            # a GPU, two minutes
    python tools/demo-model/judge.py score .demo-cache judge.safetensors models/demo build/lazuli [SEEN HELD-OUT]

The judge sees 64x64 pixels: every drawing (the held-out ones too: it has to know what they should look like), at any
size, on any background, a little blurred and noisy. It says one of all 1,644 things.
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import nn

import data

SIZE = 64


class Block(nn.Module):
    def __init__(self, c_in: int, c_out: int):
        super().__init__()
        self.a, self.b = nn.Conv2d(c_in, c_out, 3, 2, 1), nn.Conv2d(c_out, c_out, 3, 1, 1)
        self.norm, self.norm_b = nn.GroupNorm(8, c_out), nn.GroupNorm(8, c_out)

    def forward(self, x):
        x = F.gelu(self.norm(self.a(x)))
        return x + F.gelu(self.norm_b(self.b(x)))


class Judge(nn.Module):
    def __init__(self, things: int):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 48, 3, 1, 1), Block(48, 96), Block(96, 160), Block(160, 256), Block(256, 384)
        )
        self.head = nn.Linear(384 * 4, things)

    def forward(self, x):  # [B,3,64,64], 0 to 1
        x = F.avg_pool2d(self.body(2 * x - 1), 2)
        return self.head(F.dropout(x.flatten(1), 0.3, self.training))


def shrink(x):
    return F.interpolate(x.float(), (SIZE, SIZE), mode="area")


# ---------------------------------------------------------------------------------------------------------------------


def scenes(r: random.Random, things: data.Things, drawings: np.ndarray, n: int):
    """n single things: rows and colours for Painter, and which thing"""
    row, colours = np.full((n, data.SLOTS, 4), -1, np.float32), np.full((n, 2, 3), -1, np.float32)
    which = [drawings[r.randrange(len(drawings))] for _ in range(n)]
    for k, (thing, s) in enumerate(which):
        ground = np.array(data.COLOURS[r.choice(list(data.COLOURS))], float)
        size = r.uniform(0.7, 0.94)
        row[k, 0] = things.index[thing, s], *(256 * (0.5 + r.uniform(-0.04, 0.04)) for _ in "xy"), 256 * size
        colours[k, 0] = ground
        if data.NAMES[s] == "fluent-line":
            colours[k, 1] = data.COLOURS["black" if ground @ [0.3, 0.59, 0.11] > 90 else "white"]
    return row, colours, np.array([t for t, _ in which])


def train(cache: pathlib.Path, to: str):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    batch, steps = (1024, 2000) if device == "cuda" else (8, 3)
    torch.manual_seed(0)
    things = data.Things(cache / "emoji.tar")
    painter = data.Painter(things.pixels, device)
    drawings, r = np.argwhere(things.index >= 0), random.Random(0)
    parts, names = [], []
    for _ in range(80 if device == "cuda" else 1):  # 80,000 pictures, made once
        row, colours, which = scenes(r, things, drawings, 1000)
        parts.append(shrink(painter.paint(row, colours)).round().to(torch.uint8))
        names.append(which)
    pictures, names = torch.cat(parts), torch.from_numpy(np.concatenate(names)).to(device)
    held_row, held_colours, held_which = scenes(random.Random(1), things, np.argwhere(things.out), 1000)
    held = shrink(painter.paint(held_row, held_colours)) / 255
    judge = Judge(len(things.names)).to(device).to(memory_format=torch.channels_last)
    optimiser = torch.optim.AdamW(judge.parameters(), lr=2e-3, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=steps, pct_start=0.1)
    start = time.time()
    for step in range(steps):
        k = torch.randint(len(pictures), (batch,), device=device)
        x = pictures[k].float() / 255
        soft = F.interpolate(F.avg_pool2d(x, 2), (SIZE, SIZE), mode="bilinear")
        x = torch.lerp(x, soft, 0.8 * torch.rand(batch, 1, 1, 1, device=device))
        x = x + 0.06 * torch.rand(batch, 1, 1, 1, device=device) * torch.randn_like(x)
        move = torch.zeros(batch, 2, 3, device=device)
        move[:, 0, 0] = move[:, 1, 1] = 1
        move += torch.randn_like(move) * torch.tensor([0.04, 0.04, 0.03], device=device)
        x = F.grid_sample(x, F.affine_grid(move, x.shape, align_corners=False), padding_mode="border", align_corners=False)
        with torch.autocast(device, torch.bfloat16):
            loss = F.cross_entropy(judge(x.contiguous(memory_format=torch.channels_last)), names[k], label_smoothing=0.05)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % 250 == 0:
            print(json.dumps(dict(step=step, loss=loss.item(), seconds=time.time() - start)), flush=True)
    judge.eval()
    with torch.no_grad():
        right = torch.cat([judge(p).argmax(1) for p in held.split(250)]).cpu().numpy() == held_which
    print(json.dumps(dict(names_held_out_drawings=float(right.mean()))), flush=True)
    save_file({k: v.detach().cpu().contiguous().to(torch.bfloat16) for k, v in judge.state_dict().items()}, to)


# ---------------------------------------------------------------------------------------------------------------------


def score(cache: pathlib.Path, weights: str, model: str, lazuli: str, numbers: list):
    things = data.Things(cache / "emoji.tar", pixels=False)
    judge = Judge(len(things.names))
    judge.load_state_dict({k: v.float() for k, v in load_file(weights).items()})
    judge.eval()
    r, cumulative = random.Random(11), np.cumsum(things.weights)
    grounds = [g for g in data.COLOURS if g not in ("gray", "navy")]
    right, among, colour, lines = {False: [], True: []}, {False: [], True: []}, [], []
    for out, n in zip((False, True), numbers):
        for k in range(n):
            thing, s = data.pick(r, things, cumulative, out)
            ground = r.choice(grounds)
            article = "an" if things.names[thing][0] in "aeiou" else "a"
            style, on = data.STYLES[data.NAMES[s]][1][0], "an" if ground[0] in "aeiou" else "a"
            words = f"{article} {things.names[thing]} in {style} style on {on} {ground} background"
            with tempfile.NamedTemporaryFile(suffix=".png") as file:
                order = [lazuli, "-m", model, "-p", words, "-S", str(len(lines)), "-o", file.name, "-q"]
                subprocess.run(order, check=True)
                picture = np.asarray(Image.open(file.name).convert("RGB"))
            edge = np.median(np.concatenate([picture[:5].reshape(-1, 3), picture[-5:].reshape(-1, 3)]), 0)
            colour.append(bool(np.abs(edge - np.array(data.COLOURS[ground])).max() < 20))
            with torch.no_grad():
                said = judge(shrink(torch.from_numpy(picture.copy()).permute(2, 0, 1)[None]) / 255)[0]
            best = said.topk(5).indices.tolist()
            right[out].append(best[0] == thing)
            among[out].append(thing in best)
            lines.append(dict(prompt=words, held_out=out, said=things.names[best[0]], right=best[0] == thing))
    for out, name in ((False, "seen"), (True, "held out")):
        if right[out]:
            print(f"{name}: right {np.mean(right[out]):.1%}, among five {np.mean(among[out]):.1%} of {len(right[out])}")
    print(f"together {np.mean(right[False] + right[True]):.1%} of {len(lines)}; background {np.mean(colour):.1%}")
    pathlib.Path(weights).with_suffix(".jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    if sys.argv[1] == "train":
        train(pathlib.Path(sys.argv[2]), sys.argv[3])
    else:
        score(pathlib.Path(sys.argv[2]), *sys.argv[3:6], [int(n) for n in sys.argv[6:8]] or [400, 100])
