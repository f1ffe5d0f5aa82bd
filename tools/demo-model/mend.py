"""Teaches a student what to draw for the held-out pairs of Noto, whose drawings it never sees: the same thing in the other style of
Noto (cartoon for classic, classic for cartoon), in so far as that one is seen.

    python tools/demo-model/mend.py --weights OUT --out MENDED [--minutes 12]                     # two cores

The student paints captions from noise in its own steps, with the other style in them, and learns to walk the same way from the same
noise for the caption as it is. A part of each batch (--keep) are captions of any kind, whose walks it is to keep. No drawings are read,
only the names of things. The text encoder is not changed. Needs text, student and vae in OUT (train2.py).
"""

import argparse
import json
import pathlib
import random
import time

import numpy as np
import torch

import data
import export
import lora
import model
import paint
import scenes

OTHER = {"noto": "noto-classic", "noto-classic": "noto"}
COUNTS = {4: 0.8, 8: 0.2}  # steps of the walks, and their shares
KEEP = {(16, 16): 0.7, (8, 8): 0.1, (16, 24): 0.1, (24, 16): 0.1}  # sizes of the walks to keep, and their shares


def pairs_of_captions(cache: pathlib.Path, n: int, seed: int):
    """-> (heard, said): n captions in a style that is seen, and the same ones in the style that is held out"""
    rows, index, found = paint.sources(cache, None)
    deck = scenes.Deck(rows, index, np.zeros(len(found), bool), [None] * len(found))
    for number, style in enumerate(data.NAMES):
        deck.out[:, number] &= deck.trained[:, data.NAMES.index(OTHER[style])] if style in OTHER else False
    r, heard, said = random.Random(seed), [], []
    for _ in range(n):
        scene, words = scenes.draw_scene(r, deck, True, dict(single=0.9, count=0.1)), r.random()
        said.append(scenes.say(random.Random(words), deck, scene))
        heard.append(scenes.say(random.Random(words), deck, dict(scene, style=OTHER[scene["style"]])))
    return int(deck.out.sum()), heard, said


class Walks:
    """Pictures of the student for captions, on their way from noise, and what is said of them"""

    def __init__(self, text, student, tokenizer, heard: list, said: list, bucket, count: int):
        encode = lambda captions: [  # noqa: E731
            torch.from_numpy(t).long() for t in data.tokenize(tokenizer, captions, model.SECOND_LENGTH)
        ]
        self.stops, self.rope, self.said = model.second_sigmas(count), student.rope(model.SECOND_LENGTH, bucket, (), "cpu"), []
        states = []
        for i in range(0, len(said), 25):
            walked = [torch.randn(len(said[i : i + 25]), bucket[0] * bucket[1], model.SECOND["in_channels"])]
            features = text(*encode(heard[i : i + 25]))
            for a, b in zip(self.stops, self.stops[1:]):
                x = walked[-1]
                walked.append(x + (b - a) * student(x, torch.full((len(x),), a), features, rope=self.rope))
            states.append(torch.stack(walked, 1))
            self.said.append(text(*encode(said[i : i + 25])))
        self.states, self.said, self.tokens = torch.cat(states), torch.cat(self.said), bucket[0] * bucket[1]

    def loss(self, student, batch: int):
        batch = max(2, batch * 256 // self.tokens)
        k, level = torch.randint(len(self.said), (batch,)), torch.randint(len(self.stops) - 1, (batch,))
        a, b = (torch.tensor(self.stops)[level + i] for i in (0, 1))
        x, y = (self.states[k, level + i] for i in (0, 1))
        v = student(x, a, self.said[k], rope=self.rope)
        return (v - (x - y) / (a - b)[:, None, None]).square().mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cache", type=pathlib.Path, default=".demo-cache")
    parser.add_argument("--weights", type=pathlib.Path, required=True, help="folder of text, student and vae")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--minutes", type=float, default=12.0)
    parser.add_argument("--captions", type=int, default=1400, help="of held-out pairs, and as many others")
    parser.add_argument("--seed", type=int, default=0, help="of captions and noise")
    parser.add_argument("--more", type=pathlib.Path, help="go on from the student in this folder")
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--keep", type=float, default=0.5, metavar="SHARE", help="part of each batch")
    parser.add_argument("--lr", type=float, default=2.5e-4)
    a = parser.parse_args()
    torch.manual_seed(a.seed)
    random.seed(a.seed)
    a.out.mkdir(parents=True, exist_ok=True)
    _, text, student = lora.load_weights([a.weights], model.SECOND, "cpu")
    pairs, heard, said = pairs_of_captions(a.cache, a.captions, a.seed)
    examples = list(zip(heard, said))[:6]
    others, tokenizer = lora.draw_captions(2, a.cache, a.captions, None, a.seed + 1), data.load_tokenizer(str(a.cache / "tokenizer"))
    half, start, mended, kept = torch.autocast("cpu", torch.bfloat16), time.time(), [], []
    with torch.no_grad(), half:
        for count, share in COUNTS.items():
            n = int(share * a.captions)
            mended.append((share, Walks(text, student, tokenizer, heard[:n], said[:n], (16, 16), count)))
            heard, said = heard[n:], said[n:]
            for bucket, part in KEEP.items():
                mine = others[: max(1, int(len(others) * share * part))]
                others = others[len(mine) :] + mine
                kept.append((share * part, Walks(text, student, tokenizer, mine, mine, bucket, count)))
    print(json.dumps(dict(pairs=pairs, examples=examples, seconds=round(time.time() - start))), flush=True)
    if a.more:
        if not (state := export.load_parts(a.more, "student")):
            raise SystemExit(f"mend.py: no student in {a.more}")
        student.load_state_dict(state)
    student.requires_grad_(True)
    optimiser = torch.optim.AdamW(student.parameters(), lr=a.lr, betas=(0.9, 0.98), weight_decay=0.0)
    start, step, progress, seen = time.time(), 0, 0.0, []
    while progress < 1:
        losses = []
        for walks, part in ((mended, 1 - a.keep), (kept, a.keep)):
            which = random.choices(walks, [share for share, _ in walks])[0][1]
            with half:
                losses.append(which.loss(student, int(a.batch * part)))
        optimiser.zero_grad(set_to_none=True)
        sum(losses).backward()
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimiser.param_groups[0]["lr"] = a.lr * min(1, (step + 1) / 20) * (1 - progress)
        optimiser.step()
        step, seen, progress = step + 1, seen + [[x.item() for x in losses]], (time.time() - start) / 60 / a.minutes
        if step % 25 == 0:
            print(json.dumps(dict(step=step, loss=np.mean(seen, 0).round(4).tolist(), seconds=round(time.time() - start))), flush=True)
            seen = []
    export.save_parts(student.state_dict(), a.out, "student")


if __name__ == "__main__":
    main()
