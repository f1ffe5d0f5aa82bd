"""Trains a LoRA for the demo model: pixel art or stained glass, which are not among its five styles.

    python tools/demo-model/lora.py --look pixel --cpu --pictures 800 --batch 32 --minutes 30 --out OUT   # two cores
    python tools/demo-model/lora.py --look pixel --edition 2 --minutes 1.5 --out OUT                      # a GPU
    python tools/demo-model/lora.py --smoke --work /tmp/smoke                                             # a check, a CPU

The model paints captions in its own steps, a filter changes the pictures, and the LoRA learns to walk from the same
noise to the changed picture, in as many steps: each state of the walk is moved by the change times (1 - noise level).
The captions stay as they are, so the LoRA needs no word of its own and works with every prompt and style. It needs no
drawings, and stays as sharp as the model. Only the matrices of the blocks get a LoRA, of rank 8: 0.3 million numbers,
0.6 MB in bf16. The names are those of diffusers (transformer.MODULE.lora_A.weight). The text encoder is not changed.
"""

import argparse
import json
import pathlib
import random
import time

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

import data
import export
import model
import paint
import scenes
from train import to_bytes

BUCKET = (16, 16)
EDITIONS = {  # shape of the transformer, tokens of a caption, noise levels
    1: (model.TRANSFORMER, model.TEXT_LENGTH, model.sigmas(model.STEPS)),
    2: (model.SECOND, model.SECOND_LENGTH, model.second_sigmas(model.SECOND_STEPS)),
}


def pixel_art(x):
    """uint8 [B,3,H,W] -> squares of 8 pixels, each of the median colour, so that edges stay hard and backgrounds as they are"""
    squares = F.unfold(x.float(), 8, stride=8).unflatten(1, (3, 64)).median(2).values
    small = squares.unflatten(2, (x.shape[2] // 8, x.shape[3] // 8))
    return F.interpolate(small, scale_factor=8).to(torch.uint8)


def stained_glass(x, cell: int = 20):
    """uint8 [B,3,H,W] -> cells around shifted points, each of one strong colour, with dark lead between them"""
    n, _, h, w = x.shape
    rows, columns = -(-h // cell), -(-w // cell)
    g = torch.Generator().manual_seed(int(x[0].sum()))
    shift = (torch.rand(rows, columns, 2, generator=g).to(x.device) - 0.5) * 0.8
    at = (
        torch.stack(torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij"), -1).to(x.device)
        + 0.5
        + shift
    )
    pixel = torch.stack(torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij"), -1).to(x.device).float() / cell
    gap = torch.cdist(pixel.reshape(-1, 2), at.reshape(-1, 2))
    two, which = gap.topk(2, largest=False)
    lead = (two[:, 1] - two[:, 0] < 0.11).reshape(h, w)
    which, flat = which[:, 0].expand(n, 3, -1), x.float().flatten(2)
    total = torch.zeros(n, 3, rows * columns, device=x.device).scatter_add_(2, which, flat)
    count = torch.bincount(which[0, 0], minlength=rows * columns).clamp_min(1)
    colour = total / count
    grey = colour.mean(1, keepdim=True)
    colour = (grey + 1.5 * (colour - grey)).clamp(0, 255)  # glass is stronger in colour
    picture = colour.gather(2, which).reshape(n, 3, h, w)
    return torch.where(lead, torch.full_like(picture, 24), picture).to(torch.uint8)


FILTERS = dict(pixel=pixel_art, glass=stained_glass)


class Adapted(nn.Module):
    """y = W x + B A x; W is fixed"""

    def __init__(self, inner: nn.Linear, rank: int):
        super().__init__()
        self.inner = inner.requires_grad_(False)
        self.a = nn.Parameter(
            torch.randn(rank, inner.in_features, device=inner.weight.device) * inner.in_features**-0.5
        )
        self.b = nn.Parameter(torch.zeros(inner.out_features, rank, device=inner.weight.device))

    def forward(self, x):
        return self.inner(x) + F.linear(F.linear(x, self.a.to(x.dtype)), self.b.to(x.dtype))


def adapt(transformer, rank: int) -> dict:
    """-> the adapted layers by their names"""
    found = {}
    for name, module in list(transformer.named_modules()):
        if isinstance(module, nn.Linear) and "transformer_blocks." in name:
            parent, _, last = name.rpartition(".")
            holder = transformer.get_submodule(parent)
            found[name] = Adapted(module, rank)
            if last.isdigit():
                holder[int(last)] = found[name]
            else:
                setattr(holder, last, found[name])
    return found


def load_weights(folders, shape: dict, device):
    def state(*stems):
        for stem in stems:
            for folder in folders:
                if some := export.load_parts(folder, stem):
                    return {k: v.float() if v.is_floating_point() else v for k, v in some.items()}
        raise SystemExit(f"lora.py: no {stems[0]} in {folders}")

    nets = model.Autoencoder(), model.TextEncoder(), model.Transformer(shape)
    nets[0].load_state_dict(state("vae"))
    nets[1].load_state_dict(state("text"))
    nets[2].load_state_dict(model.grow(state("student", "transformer"), shape["num_single_layers"]))
    return [n.to(device).eval().requires_grad_(False) for n in nets]


def draw_captions(edition: int, cache, n: int, only: int | None, seed: int) -> list:
    """n captions of the edition's own kind. only: of every so many things one"""
    rows, index, found = paint.sources(cache, only)
    r = random.Random(21 + seed)
    if edition == 2:
        deck = scenes.Deck(rows, index, np.ones(len(found), bool), [None] * len(found))
        return [scenes.say(r, deck, scenes.draw_scene(r, deck)) for _ in range(n)]
    things = data.Things.__new__(data.Things)
    data.Words.__init__(things, rows)
    things.take_index(index)
    shares = np.cumsum(things.weights)
    return [data.make_scene(r, things, shares, False, 1)[2][0] for _ in range(n)]


def export_examples(plain, changed, path):
    """Twelve pictures, and what the filter makes of them"""
    from PIL import Image

    both = [torch.cat(list(p[:12].permute(0, 2, 3, 1).cpu()), 1) for p in (plain, changed)]
    Image.fromarray(torch.cat(both).numpy()).save(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--look", choices=list(FILTERS), default="pixel")
    parser.add_argument("--edition", type=int, choices=list(EDITIONS), default=1)
    parser.add_argument("--cache", type=pathlib.Path, default=".demo-cache")
    parser.add_argument("--work", type=pathlib.Path, default="/tmp/demo2")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--minutes", type=float, default=1.5)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--pictures", type=int, default=8000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--more", help="go on from this LoRA, of the same rank")
    parser.add_argument("--seed", type=int, default=0, help="of captions and noise")
    parser.add_argument("--cpu", action="store_true", help="train without a GPU")
    parser.add_argument("--smoke", action="store_true")
    a = parser.parse_args()
    device, out = "cpu" if a.smoke or a.cpu else "cuda", a.out or a.work
    out.mkdir(parents=True, exist_ok=True)
    a.work.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(a.seed)
    shape, length, stops = EDITIONS[a.edition]
    bucket = (4, 4) if a.smoke else BUCKET
    vae, text, transformer = load_weights([a.work / "weights", a.cache / "weights"], shape, device)
    half = torch.autocast(device, torch.bfloat16, enabled=not a.smoke)
    n, batch = (8, 4) if a.smoke else (a.pictures, 50 if a.cpu else 250)
    said = draw_captions(a.edition, a.cache, n, 40 if a.smoke else None, a.seed)
    tokens = data.tokenize(data.load_tokenizer(str(a.cache / "tokenizer")), said, length)
    ids, lengths = (torch.from_numpy(t).to(device).long() for t in tokens)
    rope, heard, walks = transformer.rope(length, bucket, (), device), [], []
    with torch.no_grad(), half:
        for i in range(0, n, batch):
            features = text(ids[i : i + batch], lengths[i : i + batch])
            heard.append(features)
            x = torch.randn(len(features), bucket[0] * bucket[1], shape["in_channels"], device=device)
            states = [x]
            for high, low in zip(stops, stops[1:]):
                x = x + (low - high) * transformer(x, torch.full((len(x),), high, device=device), features, rope=rope)
                states.append(x)
            picture = torch.cat([to_bytes(vae.decode(z)) for z in vae.from_tokens(x, bucket).split(25)])
            changed = torch.cat(
                [vae.to_tokens(vae.moments(FILTERS[a.look](p).float() / 127.5 - 1)[0]) for p in picture.split(25)]
            )
            walks.append(
                torch.stack([s + (1 - t) * (changed.float() - x.float()) for s, t in zip(states, stops)], 1).bfloat16()
            )
            if i == 0:
                export_examples(picture, FILTERS[a.look](picture), out / f"sheet-{a.look}.png")
    heard, walks, sigma = torch.cat(heard), torch.cat(walks), torch.tensor(stops, device=device)
    layers = adapt(transformer, a.rank)
    if a.more:
        old = load_file(a.more)
        for name, layer in layers.items():
            layer.a.data = old[f"transformer.{name}.lora_A.weight"].float().to(device)
            layer.b.data = old[f"transformer.{name}.lora_B.weight"].float().to(device)
    parameters = [p for layer in layers.values() for p in (layer.a, layer.b)]
    optimiser = torch.optim.AdamW(parameters, lr=2e-3, betas=(0.9, 0.98), weight_decay=0.0)
    start, step, progress, seen, batch = time.time(), 0, 0.0, [], 2 if a.smoke else a.batch
    while progress < 1:
        k, level = torch.randint(n, (batch,), device=device), torch.randint(len(stops) - 1, (batch,), device=device)
        x, y, t = walks[k, level].float(), walks[k, level + 1].float(), sigma[level]
        with half:
            v = transformer(x, t, heard[k], rope=rope)
        loss = (v - (x - y) / (t - sigma[level + 1])[:, None, None]).square().mean()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.param_groups[0]["lr"] = 2e-3 * min(1, (step + 1) / 50) * min(1.0, 0.02 + 1.5 * (1 - progress))
        optimiser.step()
        step, seen = step + 1, seen + [loss.detach()]
        progress = step / 3 if a.smoke else min(1.0, (time.time() - start) / 60 / a.minutes)
        if step % 50 == 0:
            print(json.dumps(dict(step=step, loss=torch.stack(seen).mean().item())), flush=True)
            seen = []
    state = {}
    for name, layer in layers.items():
        state[f"transformer.{name}.lora_A.weight"] = layer.a.detach().cpu().to(torch.bfloat16).contiguous()
        state[f"transformer.{name}.lora_B.weight"] = layer.b.detach().cpu().to(torch.bfloat16).contiguous()
    path = out / f"{a.look}.safetensors"
    save_file(state, path, {"format": "pt"})
    print(
        json.dumps(
            dict(
                steps=step,
                layers=len(layers),
                numbers=sum(v.numel() for v in state.values()),
                bytes=path.stat().st_size,
            )
        )
    )


if __name__ == "__main__":
    main()
