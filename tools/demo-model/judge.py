"""Does it paint what was asked? A small classifier, trained on the drawings alone, names the thing in each picture.

    python tools/demo-model/judge.py train .demo-cache judge.safetensors                 # a GPU, two minutes
    python tools/demo-model/judge.py score .demo-cache judge.safetensors models/demo build/lazuli [SEEN HELD-OUT]
    python tools/demo-model/judge.py prompts .demo-cache tools/demo-model/prompts.jsonl  # the prompts of score

The judge sees 64x64 pixels: every drawing (the held-out ones too: it has to know what they should look like), at any
size, on any background, a little blurred and noisy. The drawings are those of emoji.tar (render.py) or, if the folder
has none, are rendered from the SVGs of `paint.py pack-drawings`. It says one of all 1,644 things. Training ends with the
share of new compositions of held-out drawings that it names correctly. The file of a judge contains the names of the
things.
"""

import argparse
import json
import pathlib
import random
import subprocess
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file
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


def write(judge: nn.Module, names: list, to):
    """Weights of more than one axis in 8 bits with a scale for each row (NAME.scale), the others in bf16"""
    kept = {}
    for name, w in judge.state_dict().items():
        w = w.detach().float().cpu().contiguous()
        if w.ndim > 1:
            scale = (w.flatten(1).abs().amax(1) / 127).clamp_min(1e-12)
            kept[f"{name}.scale"] = scale
            w = (w / scale.view(-1, *[1] * (w.ndim - 1))).round().to(torch.int8)
        kept[name] = w if w.dtype == torch.int8 else w.to(torch.bfloat16)
    save_file(kept, to, {"things": json.dumps(names)})


def read(path) -> tuple:
    """-> weights, names of the things"""
    with safe_open(path, "pt") as file:
        kept = {k: file.get_tensor(k).float() for k in file.keys()}
        names = json.loads(file.metadata()["things"])
    for name in [k for k in kept if k.endswith(".scale")]:
        scale, of = kept.pop(name), name.removesuffix(".scale")
        kept[of] = kept[of] * scale.view(-1, *[1] * (kept[of].ndim - 1))
    return kept, names


def load(path):
    """-> the judge, and the names of the things"""
    weights, names = read(path)
    judge = Judge(len(names))
    judge.load_state_dict(weights)
    return judge.eval(), names


@torch.no_grad()
def name(judge: Judge, pictures: np.ndarray) -> torch.Tensor:
    """pictures [B,H,W,3] u8 -> [B, things]: what the judge gives for each thing, before the softmax"""
    return judge(shrink(torch.from_numpy(pictures).permute(0, 3, 1, 2)) / 255)


def has_ground(picture: np.ndarray, colour: str) -> bool:
    """is the upper and the lower edge of the picture of this colour?"""
    edge = np.median(np.concatenate([picture[:5].reshape(-1, 3), picture[-5:].reshape(-1, 3)]), 0)
    return bool(np.abs(edge - np.array(data.COLOURS[colour])).max() < 20)


# ---------------------------------------------------------------------------------------------------------------------


class DrawnThings(data.Things):
    """Things without emoji.tar: the drawings are rendered here, into a file of the folder work (2 GB)"""

    def __init__(self, cache: pathlib.Path, work: pathlib.Path):
        import paint

        rows, index, pixels = paint.drawings(cache, work, 256)
        data.Words.__init__(self, rows)
        self.take_index(index)
        self.pixels = np.array(pixels)


def read_things(cache: pathlib.Path) -> data.Things:
    if (cache / "emoji.tar").exists():
        return data.Things(cache / "emoji.tar")
    with tempfile.TemporaryDirectory() as work:
        return DrawnThings(cache, pathlib.Path(work))


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


class LargePainter(data.Painter):
    SIZES = [256, 181]  # scenes() draws no smaller things

    def paint(self, rows: np.ndarray, colours: np.ndarray):
        """-> [B,3,64,64]"""
        parts = [super(LargePainter, self).paint(rows[i:][:250], colours[i:][:250]) for i in range(0, len(rows), 250)]
        return torch.cat([shrink(p) for p in parts])


def roughen(x):
    """a little blurred, noisy, rotated and shifted"""
    n, device = len(x), x.device
    soft = F.interpolate(F.avg_pool2d(x, 2), (SIZE, SIZE), mode="bilinear")
    x = torch.lerp(x, soft, 0.8 * torch.rand(n, 1, 1, 1, device=device))
    x = x + 0.06 * torch.rand(n, 1, 1, 1, device=device) * torch.randn_like(x)
    move = torch.zeros(n, 2, 3, device=device)
    move[:, 0, 0] = move[:, 1, 1] = 1
    move += torch.randn_like(move) * torch.tensor([0.04, 0.04, 0.03], device=device)
    grid = F.affine_grid(move, x.shape, align_corners=False)
    return F.grid_sample(x, grid, padding_mode="border", align_corners=False)


@torch.no_grad()
def rightness(judge: Judge, pictures: torch.Tensor, which: np.ndarray) -> float:
    judge.eval()
    said = torch.cat([judge(p).argmax(1) for p in pictures.split(250)]).cpu().numpy()
    judge.train()
    return float((said == which).mean())


def train(cache: pathlib.Path, to: str, batch: int, steps: int, thousands: int):
    """thousands: of pictures, which are made once"""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    things = read_things(cache)
    held_row, held_colours, held_which = scenes(random.Random(1), things, np.argwhere(things.out), 1000)
    used, held_row[:, 0, 0] = np.unique(held_row[:, 0, 0].astype(int), return_inverse=True)
    held = LargePainter(things.pixels[used], device).paint(held_row, held_colours) / 255
    painter = LargePainter(things.pixels, device)
    drawings, r = np.argwhere(things.index >= 0), random.Random(0)
    parts, names = [], []
    for _ in range(thousands):
        row, colours, which = scenes(r, things, drawings, 1000)
        parts.append(painter.paint(row, colours).round().to(torch.uint8))
        names.append(which)
    pictures, names = torch.cat(parts), torch.from_numpy(np.concatenate(names)).to(device)
    judge = Judge(len(things.names)).to(device).to(memory_format=torch.channels_last)
    del painter, things.pixels
    optimiser = torch.optim.AdamW(judge.parameters(), lr=2e-3, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=steps, pct_start=0.1)
    start = time.time()
    for step in range(steps):
        k = torch.randint(len(pictures), (batch,), device=device)
        x = roughen(pictures[k].float() / 255)
        with torch.autocast(device, torch.bfloat16):
            said = judge(x.contiguous(memory_format=torch.channels_last))
            loss = F.cross_entropy(said, names[k], label_smoothing=0.05)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % 250 == 0:
            right = rightness(judge, held, held_which)
            line = dict(step=step, loss=loss.item(), right=right, seconds=time.time() - start)
            print(json.dumps(line), flush=True)
    print(json.dumps(dict(names_held_out_drawings=rightness(judge, held, held_which))), flush=True)
    write(judge, things.names, to)


# ---------------------------------------------------------------------------------------------------------------------


def draw_prompts(things: data.Things, numbers: list):
    """-> for each: prompt, the thing's number, the colour of the ground, was the pair held out?"""
    r, cumulative = random.Random(11), np.cumsum(things.weights)
    grounds = [g for g in data.COLOURS if g not in ("gray", "navy")]
    for out, n in zip((False, True), numbers):
        for _ in range(n):
            thing, s = data.pick(r, things, cumulative, out)
            ground = r.choice(grounds)
            article = "an" if things.names[thing][0] in "aeiou" else "a"
            style, on = data.STYLES[data.NAMES[s]][1][0], "an" if ground[0] in "aeiou" else "a"
            yield f"{article} {things.names[thing]} in {style} style on {on} {ground} background", thing, ground, out


def write_prompts(cache: pathlib.Path, to: pathlib.Path):
    """The 500 prompts of docs/demo-model.md with their seeds, 19 seen and 6 held-out pairs in each 25 of them, so that
    a list of the first N has the same shares."""
    things = data.Things(cache / "emoji.tar", pixels=False)
    lines = [
        json.dumps(dict(seed=seed, prompt=words, thing=thing, ground=ground, held_out=out))
        for seed, (words, thing, ground, out) in enumerate(draw_prompts(things, [380, 120]))
    ]
    order = sorted(range(500), key=lambda i: (i + 0.5) / 380 if i < 380 else (i - 380 + 0.5) / 120)
    to.write_text("".join(lines[i] + "\n" for i in order))


def score(cache: pathlib.Path, weights: str, model: str, lazuli: str, numbers: list):
    things, judge = data.Things(cache / "emoji.tar", pixels=False), load(weights)[0]
    right, among, colour, lines = {False: [], True: []}, {False: [], True: []}, [], []
    for seed, (words, thing, ground, out) in enumerate(draw_prompts(things, numbers)):
        with tempfile.NamedTemporaryFile(suffix=".png") as file:
            subprocess.run([lazuli, "-m", model, "-p", words, "-S", str(seed), "-o", file.name, "-q"], check=True)
            picture = np.asarray(Image.open(file.name).convert("RGB"))
        colour.append(has_ground(picture, ground))
        best = name(judge, picture[None].copy())[0].topk(5).indices.tolist()
        right[out].append(best[0] == thing)
        among[out].append(thing in best)
        lines.append(dict(prompt=words, held_out=out, said=things.names[best[0]], right=best[0] == thing))
    for out, which in ((False, "seen"), (True, "held out")):
        if r := right[out]:
            print(f"{which}: right {np.mean(r):.1%}, among five {np.mean(among[out]):.1%} of {len(r)}")
    print(f"together {np.mean(right[False] + right[True]):.1%} of {len(lines)}; background {np.mean(colour):.1%}")
    pathlib.Path(weights).with_suffix(".jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def main():
    parser = argparse.ArgumentParser(description="a judge of the pictures of the demo model")
    commands = parser.add_subparsers(dest="command", required=True)
    t, s, p = (commands.add_parser(c) for c in ("train", "score", "prompts"))
    for command in (t, s, p):
        command.add_argument("cache", type=pathlib.Path)
    t.add_argument("to")
    t.add_argument("--batch", type=int, default=1024)
    t.add_argument("--steps", type=int, default=2000)
    t.add_argument("--thousands", type=int, default=80, help="of pictures to train on")
    s.add_argument("weights")
    s.add_argument("model")
    s.add_argument("lazuli")
    s.add_argument("numbers", type=int, nargs="*", default=[400, 100])
    p.add_argument("to", type=pathlib.Path)
    a = parser.parse_args()
    if a.command == "train":
        train(a.cache, a.to, a.batch, a.steps, a.thousands)
    elif a.command == "score":
        score(a.cache, a.weights, a.model, a.lazuli, a.numbers)
    else:
        write_prompts(a.cache, a.to)


if __name__ == "__main__":
    main()
