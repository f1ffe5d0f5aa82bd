"""Drawings and pixels of the second edition: renders the emoji at 512x512 and composes scenes of any size on the GPU.

    python tools/demo-model/paint.py pack ../shared/data/emoji models/demo .demo-cache   all that training needs: 45 MB
    python tools/demo-model/paint.py pack-drawings ../shared/data/emoji .demo-cache      what judge.py needs: 14 MB
    python tools/demo-model/paint.py render .demo-cache WORK                             renders them at 512x512
    python tools/demo-model/paint.py sheet .demo-cache sheet.png [SEED]                  some scenes, to look at

The pack has the drawings as they are (SVG in emoji.jsonl.xz, 4.0 MB; 3-D drawings in fluent-3d.tar, 8.9 MB), a
renderer of SVG as a Python wheel (resvg.zip, 1.4 MB, fetched with pip), the tokenizer, and the weights to start from.
7,562 drawings of 512x512 with alpha take 7.9 GB, and 16 GB with the smaller copies that Painter keeps on the GPU. 3-D
drawings exist at 256x256 only and are enlarged.
"""

import io
import json
import lzma
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tarfile
import zipfile
import zlib
from concurrent.futures import ProcessPoolExecutor

import numpy as np

import captions
import data
import scenes

SIDE = 512


# ---------------------------------------------------------------------------------------------------------------------
# The pack, and rendering


def pack_drawings(source: pathlib.Path, cache: pathlib.Path):
    """the drawings and the renderer"""
    cache.mkdir(parents=True, exist_ok=True)
    for name in ("emoji.jsonl.xz", "fluent-3d.tar"):
        shutil.copyfile(source / name, cache / name)
    wheels = cache / "wheels"
    order = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--only-binary=:all:",
        "-d",
        wheels,
        "resvg-py==0.5.0",
    ]
    subprocess.run(order + ["--platform", "manylinux2014_x86_64", "--python-version", "3.12"], check=True)
    shutil.move(next(wheels.glob("resvg_py*.whl")), cache / "resvg.zip")
    shutil.rmtree(wheels)


def pack(source: pathlib.Path, model: pathlib.Path, cache: pathlib.Path):
    pack_drawings(source, cache)
    shutil.copytree(model / "tokenizer", cache / "tokenizer", dirs_exist_ok=True)
    (cache / "weights").mkdir(exist_ok=True)
    for part, stem in (("text_encoder", "text"), ("transformer", "transformer"), ("vae", "vae")):
        for path in sorted((model / part).glob("*.safetensors")):
            end = path.name.removeprefix("diffusion_pytorch_model").removeprefix("model")
            shutil.copyfile(path, cache / "weights" / (stem + end))
    files = [f for f in cache.rglob("*") if f.is_file()]
    for f in sorted(files):
        print(f"{f.stat().st_size:12,} {f}")
    print(f"{sum(f.stat().st_size for f in files):12,} together")


def read_rows(cache: pathlib.Path) -> list:
    with lzma.open(cache / "emoji.jsonl.xz", "rt") as file:
        return [json.loads(line) for line in file]


def render(job):
    """Draws jobs [(number, svg or webp bytes)] into the file of all drawings."""
    import importlib

    from PIL import Image

    path, count, side, tools, todo = job
    if tools not in sys.path:
        sys.path.insert(0, tools)
    resvg = importlib.import_module("resvg_py")
    to = np.memmap(path, np.uint8, "r+", shape=(count, side, side, 4))
    for number, source in todo:
        if isinstance(source, str):
            png = resvg.svg_to_bytes(svg_string=source.replace("currentColor", "#000000"), width=side, height=side)
            picture = Image.open(io.BytesIO(bytes(png))).convert("RGBA")
        else:
            picture = Image.open(io.BytesIO(source)).convert("RGBA")
        if picture.size != (
            side,
            side,
        ):  # bicubic: an enlarged drawing keeps its edges; premultiplied inside Pillow ("RGBa")
            picture = picture.convert("RGBa").resize((side, side), Image.BICUBIC).convert("RGBA")
        to[number] = np.asarray(picture)


def sources(cache: pathlib.Path, only: int | None = None, names: set | None = None):
    """-> rows, index [things,styles], and each drawing as SVG text or WebP bytes. only: of every so many things one;
    names: of things with these names"""
    rows = [r for r in read_rows(cache)[:: only or 1] if not names or data.clean(r["name"]) in names]
    with tarfile.open(cache / "fluent-3d.tar") as tar:
        solid = {m.name: tar.extractfile(m).read() for m in tar if m.isfile()}
    index, found = np.full((len(rows), len(data.NAMES)), -1), []
    for i, row in enumerate(rows):
        for k, style in enumerate(data.NAMES):
            source = solid.get(row.get("webp") or "") if style == "fluent-3d" else row["svg"].get(style)
            if source:
                index[i, k] = len(found)
                found.append(source)
    return [{k: r[k] for k in ("codepoints", "name", "group", "keywords")} for r in rows], index, found


def drawings(
    cache: pathlib.Path, work: pathlib.Path, side: int = SIDE, only: int | None = None, workers: int = 16, names=None
):
    """-> rows, index [things,styles], pixels [drawings,side,side,4]"""
    rows, index, found = sources(cache, only, names)
    which = zlib.crc32(" ".join(r["codepoints"] for r in rows).encode())
    path, shape = work / f"drawings-{side}-{which:08x}.u8", (len(found), side, side, 4)
    if not path.exists():
        tools = str(work / "resvg")
        zipfile.ZipFile(cache / "resvg.zip").extractall(tools)
        part = path.with_suffix(".part")
        np.memmap(part, np.uint8, "w+", shape=shape).flush()
        todo = list(enumerate(found))
        random.Random(0).shuffle(todo)
        jobs = [(part, len(found), side, tools, todo[k : k + 64]) for k in range(0, len(todo), 64)]
        with ProcessPoolExecutor(min(workers, os.cpu_count() or 1)) as pool:
            list(pool.map(render, jobs))
        part.rename(path)
    return rows, index, np.memmap(path, np.uint8, "r", shape=shape)


# ---------------------------------------------------------------------------------------------------------------------
# Colours. A pixel is luma and a chroma vector (BT.601). The dominant colour of a drawing is the most frequent
# direction of chroma, or grey. Recolouring turns the chroma of the pixels of that colour and keeps their shading; eyes,
# highlights and parts of other colours stay.

TO_YUV = np.array([[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]], np.float32)
TO_RGB = np.linalg.inv(TO_YUV).astype(np.float32)
TINTS = np.array([data.COLOURS[c] for c in captions.TINTS], np.float32) / 255
BINS = 24


def smooth(x, low, high):
    t = ((x - low) / (high - low)).clamp(0, 1)
    return t * t * (3 - 2 * t)


def dominant(pixels):
    """pixels [B,H,W,4] uint8 -> [B,4]: kind (0 none, 1 a hue, 2 grey), luma, chroma vector"""
    import torch

    p = pixels.float() / 255
    yuv = p[..., :3] @ torch.from_numpy(TO_YUV).to(p.device).T
    y, c = yuv[..., 0].flatten(1), yuv[..., 1:].flatten(1, 2)
    solid = (p[..., 3] > 0.5).float().flatten(1)
    size = c.norm(dim=-1)
    hue = (torch.atan2(c[..., 1], c[..., 0]) / (2 * np.pi) * BINS).floor().long() % BINS
    colourful = solid * (size > 0.07).float()
    count = torch.zeros(len(p), BINS, device=p.device).scatter_add_(1, hue, colourful * size)
    wide = count + 0.7 * (count.roll(1, 1) + count.roll(-1, 1))
    peak = (wide.argmax(1).float() + 0.5) * 2 * np.pi / BINS
    towards = torch.stack([peak.cos(), peak.sin()], -1)
    along = (c * towards[:, None]).sum(-1)
    same = colourful * (along > 0.82 * size).float()
    mean = lambda x, w: (x * w).sum(1) / w.sum(1).clamp_min(1)  # noqa: E731
    grey = solid * (size < 0.07).float() * ((y > 0.15) & (y < 0.93)).float()
    area = solid.sum(1).clamp_min(1)
    one = (same.sum(1) > 0.22 * area) & (same.sum(1) > 0.5 * colourful.sum(1))  # no rainbows
    kind = torch.where(one, 1.0, torch.where(grey.sum(1) > 0.3 * area, 2.0, 0.0))
    is_hue = (kind == 1)[:, None]
    luma = torch.where(kind == 1, mean(y, same), mean(y, grey))
    chroma = torch.where(
        is_hue, torch.stack([mean(c[..., 0], same), mean(c[..., 1], same)], -1), torch.zeros_like(towards)
    )
    return torch.cat([kind[:, None], luma[:, None], chroma], -1)


def recolour(rgb, facts, tint):
    """rgb [B,3,H,W] 0..1, facts [B,4] of `dominant`, tint [B,3] 0..1 -> rgb"""
    import torch

    to_yuv, to_rgb = (torch.from_numpy(m).to(rgb.device) for m in (TO_YUV, TO_RGB))
    yuv = torch.einsum("ij,bjhw->bihw", to_yuv, rgb)
    y, c = yuv[:, :1], yuv[:, 1:]
    kind, luma, centre = facts[:, 0, None, None, None], facts[:, 1, None, None, None], facts[:, 2:, None, None]
    target = tint @ to_yuv.T
    size, strength = c.norm(dim=1, keepdim=True), centre.norm(dim=1, keepdim=True).clamp_min(0.05)
    along = (c * centre).sum(1, keepdim=True) / (strength * size.clamp_min(1e-4))
    near = smooth(along, 0.6, 0.85) * smooth(size, 0.03, 0.08)
    pale = smooth(-size, -0.12, -0.06) * smooth(y, 0.1, 0.25) * smooth(-y, -0.98, -0.9)
    weight = torch.where(kind == 1, near, torch.where(kind == 2, pale, torch.zeros_like(near)))
    shade = torch.where(kind == 1, (size / strength).clamp(0, 1.6), (1 - (y - luma).abs()).clamp(0.3, 1))
    new_y = (y + 0.85 * (target[:, :1, None, None] - luma)).clamp(0.03, 0.98)
    new = torch.einsum("ij,bjhw->bihw", to_rgb, torch.cat([new_y, target[:, 1:, None, None] * shade], 1)).clamp(0, 1)
    return rgb + weight * (new - rgb)


def own_colour(facts: np.ndarray):
    """-> the name of the dominant colour if it is close to one, else None"""
    if facts[0] != 1:
        return None
    chroma = TINTS @ TO_YUV.T
    plain = [k for k, n in enumerate(captions.TINTS) if n not in ("black", "white", "grey")]
    gap = [np.abs(chroma[k] - facts[1:4]) @ [0.5, 1, 1] for k in plain]
    return captions.TINTS[plain[int(np.argmin(gap))]] if min(gap) < 0.16 else None


# ---------------------------------------------------------------------------------------------------------------------


class Painter:
    """Keeps all drawings on the GPU, each in several sizes a factor of 1.41 apart, so that none is skipped."""

    def __init__(self, pixels: np.ndarray, device: str):
        import torch
        import torch.nn.functional as F

        side = pixels.shape[1]
        self.device, self.sizes = device, [round(side / 2 ** (k / 2)) for k in range(7) if side / 2 ** (k / 2) > 40]
        self.levels = [torch.empty(len(pixels), 4, s, s, dtype=torch.uint8, device=device) for s in self.sizes]
        facts = []
        for i in range(0, len(pixels), 256):
            raw = torch.from_numpy(np.array(pixels[i : i + 256])).to(device)
            facts.append(dominant(raw[:, ::4, ::4]))
            p = raw.permute(0, 3, 1, 2).float()
            p[:, :3] *= p[:, 3:] / 255  # premultiplied
            for level, s in zip(self.levels, self.sizes):
                small = p if s == side else F.interpolate(p, (s, s), mode="bilinear", antialias=True)
                level[i : i + 256] = small.round().clamp(0, 255).to(torch.uint8)
        self.facts = torch.cat(facts)

    def deck(self, rows: list, index: np.ndarray) -> scenes.Deck:
        facts = self.facts.cpu().numpy()
        return scenes.Deck(rows, index, facts[:, 0] > 0, [own_colour(f) for f in facts])

    def paint(self, rows: np.ndarray, colours: np.ndarray, bucket: tuple):
        """rows [B,SLOTS,5], colours [B,2,3] of scenes.layout -> uint8 [B,3,height,width]"""
        import torch
        import torch.nn.functional as F

        height, width = 16 * bucket[0], 16 * bucket[1]
        canvas = (
            torch.from_numpy(colours[:, 0]).to(self.device)[:, :, None, None].expand(-1, 3, height, width).contiguous()
        )
        tints = torch.from_numpy(TINTS).to(self.device)
        across, down = (torch.arange(n, device=self.device) + 0.5 for n in (width, height))
        for slot in range(rows.shape[1]):
            used = np.nonzero(rows[:, slot, 0] >= 0)[0]
            level = np.array([sum(s >= size for s in self.sizes[1:]) for size in rows[used, slot, 3]], int)
            for k in set(level.tolist()):
                who = used[level == k]
                to = torch.from_numpy(who).to(self.device)
                drawing, x, y, size, tint = torch.from_numpy(rows[who, slot]).to(self.device).T
                gx = ((across[None] - x[:, None]) / size[:, None] * 2)[:, None, :].expand(-1, height, -1)
                gy = ((down[None] - y[:, None]) / size[:, None] * 2)[:, :, None].expand(-1, -1, width)
                p = (
                    F.grid_sample(
                        self.levels[k][drawing.long()].float(), torch.stack([gx, gy], -1), align_corners=False
                    )
                    / 255
                )
                rgb, a = p[:, :3], p[:, 3:]
                turned = (tint >= 0).nonzero()[:, 0]
                if len(turned):
                    pure = (rgb[turned] / a[turned].clamp_min(1e-3)).clamp(0, 1)
                    rgb[turned] = (
                        recolour(pure, self.facts[drawing[turned].long()], tints[tint[turned].long()]) * a[turned]
                    )
                ink = torch.from_numpy(colours[who, 1]).to(self.device)[:, :, None, None] / 255
                rgb = torch.where(ink >= 0, ink * a, rgb)
                canvas[to] = 255 * rgb + (1 - a) * canvas[to]
        return canvas.round().clamp(0, 255).to(torch.uint8)


def sheet(cache: pathlib.Path, to: str, seed: int):
    from PIL import Image, ImageDraw

    rows, index, pixels = drawings(cache, cache, 256, 12, 2)
    painter = Painter(pixels, "cpu")
    deck, r, tile = painter.deck(rows, index), random.Random(seed), 128
    page = Image.new("RGB", (8 * 190, 8 * 158), "white")
    pen = ImageDraw.Draw(page)

    def put(k, s, words, bucket):
        row, colours = scenes.layout(r, deck, s, bucket)
        picture = Image.fromarray(painter.paint(row[None], colours[None], bucket)[0].permute(1, 2, 0).numpy())
        picture.thumbnail((tile, tile))
        page.paste(picture, (k % 8 * 190, k // 8 * 158))
        pen.text(
            (k % 8 * 190, k // 8 * 158 + 130),
            "\n".join([words[:31], words[31:62]]).encode("latin1", "replace").decode("latin1"),
            "black",
        )

    for k in range(48):
        s = scenes.draw_scene(r, deck)
        put(k, s, scenes.say(r, deck, s), (16, 16) if k < 32 else r.choice(list(scenes.BUCKETS)))
    k = 48
    while k < 64:
        s = scenes.draw_scene(r, deck, False, dict(single=1.0))
        after, changed = scenes.change(r, deck, s)
        if changed:
            put(k, s, "(before)", (16, 16))
            put(k + 1, after, captions.instruct(r, deck.names, s, after, changed), (16, 16))
            k += 2
    page.save(to)
    print("recoloured by hue, grey, not:", [int((painter.facts[:, 0] == k).sum()) for k in (1, 2, 0)])


if __name__ == "__main__":
    if sys.argv[1] == "pack-drawings":
        pack_drawings(*map(pathlib.Path, sys.argv[2:4]))
    elif sys.argv[1] == "pack":
        pack(*map(pathlib.Path, sys.argv[2:5]))
    elif sys.argv[1] == "render":
        drawings(*map(pathlib.Path, sys.argv[2:4]))
    else:
        sheet(pathlib.Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]) if len(sys.argv) > 4 else 0)
