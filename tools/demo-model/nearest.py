"""Does it paint what was asked? Every picture is compared, at 48x48, with all things in the style and on the background
that were asked for; the nearest should be the thing. Held-out pairs are compared with drawings that nobody trained on.

    python tools/demo-model/nearest.py models/demo build/lazuli .demo-cache/emoji.tar [SEEN HELD-OUT]
"""

import pathlib
import random
import subprocess
import sys
import tarfile

import numpy as np
from PIL import Image

import data

GROUNDS = ["white", "blue", "yellow", "pink", "green", "light blue", "purple", "orange"]


def small(picture: np.ndarray, size: int) -> np.ndarray:
    return np.asarray(Image.fromarray(picture).resize((size, size), Image.BOX)).astype(np.float32) / 255


def main():
    model, lazuli, path = sys.argv[1:4]
    numbers = [int(n) for n in sys.argv[4:6]] or [90, 60]
    things = data.Things(pathlib.Path(path), pixels=False)
    with tarfile.open(path) as tar:
        files = {m.name: tar.extractfile(m).read() for m in tar if m.name.endswith("webp")}
    paths, banks = sorted(files), {}
    r, cumulative = random.Random(11), np.cumsum(things.weights)
    jobs = [
        (data.pick(r, things, cumulative, out, s)[0], s, out, r.choice(GROUNDS))
        for out, n in zip((False, True), numbers)
        for k in range(n)
        for s in [k % 4]
    ]
    ranks, grounds = {False: [], True: []}, []
    for seed, (thing, s, out, ground) in enumerate(jobs):
        if s not in banks:
            ids = np.nonzero(things.index[:, s] >= 0)[0]
            banks[s] = ids, np.stack([small(data.decode(files[paths[things.index[i, s]]]), 39) for i in ids])
        words = f"a {things.names[thing]} in {data.STYLES[data.NAMES[s]][1][0]} style on a {ground} background"
        subprocess.run(
            [
                lazuli,
                "-m",
                model,
                "-p",
                words,
                "-W",
                "256",
                "-H",
                "256",
                "-s",
                "8",
                "-S",
                str(seed),
                "-o",
                "/tmp/nearest.png",
                "-q",
            ],
            check=True,
        )
        picture, colour = np.asarray(Image.open("/tmp/nearest.png").convert("RGB")), np.array(data.COLOURS[ground])
        grounds.append(np.abs(np.median(picture[:6].reshape(-1, 3), 0) - colour).max() < 20)
        ids, bank = banks[s]
        all_of_them = np.broadcast_to(colour.astype(np.float32) / 255, (len(ids), 48, 48, 3)).copy()
        all_of_them[:, 4:43, 4:43] = bank[..., :3] * bank[..., 3:] + (1 - bank[..., 3:]) * all_of_them[:, 4:43, 4:43]
        order = ids[np.argsort(((all_of_them - small(picture, 48)) ** 2).mean((1, 2, 3)))]
        ranks[out].append(order.tolist().index(thing))
    for out, name in ((False, "seen"), (True, "held out")):
        rank = np.array(ranks[out])
        print(f"{name}: nearest {np.mean(rank == 0):.0%}, among five {np.mean(rank < 5):.0%} of {len(rank)}")
    print(f"background right: {np.mean(grounds):.0%}")


if __name__ == "__main__":
    main()
