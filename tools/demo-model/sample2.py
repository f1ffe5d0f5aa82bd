"""Sampling with and without guidance, with references, at any size; and sheets of samples."""

import numpy as np
import torch

import model
import piece
from piece import cast, tokens_of
from train import to_bytes

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
EDITS = [
    "in line style",
    "on a red background",
    "make it blue",
    "two of them",
    "in cartoon style on yellow",
    "make it small",
]


def guided(transformer):
    def velocity(x, t, text, empty, cos, sin):
        both = transformer(
            torch.cat([x, x]), torch.cat([t, t]), torch.cat([text, empty.expand(len(x), -1, -1)]), rope=(cos, sin)
        )
        a, b = both.chunk(2)
        return b + piece.A.guidance * (a - b)

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
def show(text_encoder, velocity, transformer, vae, name, examples, stops):
    """A sheet: prompts at 256x256, some of them at other sizes, and edits of drawings (reference, then edit)."""
    from PIL import Image

    few = PROMPTS[:2] if piece.A.smoke else PROMPTS
    main_size = (4, 4) if piece.A.smoke else (16, 16)
    groups = [(main_size, few, None)] + [
        (b, few[:6], None) for b in ([(4, 8)] if piece.A.smoke else [(8, 8), (32, 32), (16, 32)])
    ]
    groups.append((main_size, EDITS[:2] if piece.A.smoke else EDITS, examples))
    tiles = []
    for bucket, prompts, before in groups:
        n = len(prompts)
        with cast():
            text, empty = text_encoder(*tokens_of(prompts)), text_encoder(*tokens_of([""]))
        noise = torch.cat([torch.randn(1, 64, *bucket, generator=torch.Generator().manual_seed(i)) for i in range(n)])
        rope = transformer.rope(model.SECOND_LENGTH, bucket, [bucket] if before is not None else [], piece.DEVICE)
        x = walk(
            velocity,
            noise.to(piece.DEVICE).flatten(2).transpose(1, 2),
            before[:n] if before is not None else None,
            text,
            empty,
            rope,
            stops,
        )
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
    page.save(piece.A.out / name, quality=88)
