"""Paints the prompts of everyday2.txt with Lazuli and counts what the judge finds.

    python tools/demo-model/everyday2.py check .demo-cache                  # the list alone: names, keys, numbers
    python tools/demo-model/everyday2.py score .demo-cache judge2.safetensors MODEL build/lazuli OUT
    python tools/demo-model/everyday2.py things judge.safetensors models/demo build/lazuli OUT     # the first edition's judge

A prompt is right if the judge names one of its things. Colours, counts, backgrounds and scales are counted of the
prompts that ask for them. An edit is kept if the judge names the thing, and made if the change is there. OUT gets
table.jsonl, the pictures, a sheet for each section, and the worst 24 of the 300 (worst.jpg). `things` counts the right
things alone, in two pictures of each prompt that asks for one thing of the usual size.
"""

import argparse
import json
import pathlib
import random
import re
import subprocess

import numpy as np

import captions
import data

LIST = pathlib.Path(__file__).with_name("everyday2.txt")
SIZES = [(128, 128), (512, 512), (512, 256)]  # width, height, of the prompts of "sizes"
KEYS = ("colour", "colour2", "ground", "count", "scale", "beside", "from", "style")
STYLE_WORDS = {w.lower(): k for k, (_, words) in enumerate(data.STYLES.values()) for w in words}
LIMITS = [
    ("right", 0.9),
    ("colour", 0.9),
    ("count", 0.85),
    ("edit kept", 0.9),
    ("edit made", 0.9),
    ("128x128", 0.9),
    ("512x512", 0.9),
    ("512x256", 0.9),
]


def read() -> list:
    section, rows = None, []
    for line in LIST.read_text().splitlines():
        if re.fullmatch("# [a-z ]+", line):
            section = line[2:]
        elif line and line[0] != "#":
            prompt, rest = line.split(" = ", 1)
            things, *keys = rest.split(" ; ")
            row = dict(section=section, prompt=prompt, things=things.strip().split(", "))
            for key in keys:
                name, value = key.strip().split(" ", 1)
                row[name] = int(value) if name == "count" else value.split(", ") if name == "beside" else value
            rows.append(row)
    return rows


def check(cache: pathlib.Path):
    import paint

    known, rows = {data.clean(r["name"]) for r in paint.read_rows(cache)}, read()
    wrong = [
        f"{r['prompt']}: no thing '{t}'" for r in rows for t in r["things"] + r.get("beside", []) if t not in known
    ]
    for r in rows:
        wrong += [f"{r['prompt']}: key '{k}'" for k in r if k not in KEYS + ("section", "prompt", "things")]
        wrong += [
            f"{r['prompt']}: colour '{r[k]}'" for k in ("colour", "colour2") if k in r and r[k] not in captions.TINTS
        ]
        wrong += [f"{r['prompt']}: ground '{r['ground']}'" for _ in "x" if r.get("ground", "red") not in data.COLOURS]
        wrong += [f"{r['prompt']}: style '{r['style']}'" for _ in "x" if r.get("style", "3d") not in STYLE_WORDS]
        wrong += [f"{r['prompt']}: an edit of nothing" for _ in "x" if r["section"] == "edits" and "from" not in r]
    print("\n".join(wrong) or "no mistakes")
    sections = {}
    for r in rows:
        sections[r["section"]] = sections.get(r["section"], 0) + 1
    print(sections, "together", len(rows) - sections["edits"], "and edits", sections["edits"])
    for key in ("colour", "count", "ground", "scale"):
        print(key, sum(key in r for r in rows), end="; ")
    print()


def reference(painter, deck, said: str, seed: int):
    """A real drawing of `a small mouse in 3d style on a white background`, `three owls in ...`"""
    import scenes

    head, style, ground = re.fullmatch(r"(.+) in (\w+) style on an? (.+) background", said).groups()
    words = head.split(" ")
    count = next((n for n, said in captions.NUMBERS.items() if words[0] in said), 1)
    scale = words[1] if len(words) > 2 and words[1] in ("small", "big") else None
    name = " ".join(words[2 if scale else 1 :])
    thing = next(i for i, n in enumerate(deck.names.names) if n == name or (count > 1 and data.plural(n) == name))
    s = dict(
        kind="count" if count > 1 else "single",
        things=[thing],
        style=data.NAMES[STYLE_WORDS[style]],
        tints=[None],
        ground=ground,
    )
    s.update(line=None, scale=scale, place=None, count=count)
    row, colours = scenes.layout(random.Random(seed), deck, s, (16, 16))
    return painter.paint(row[None], colours[None], (16, 16))[0].permute(1, 2, 0).numpy()


def judged(judge, names: list, picture: np.ndarray, row: dict) -> dict:
    """-> for each thing that the prompt asks for: is it there?"""
    import judge2

    found = {}
    halves = [picture]
    if "beside" in row:
        middle = picture.shape[1] // 2
        halves = [picture[:, :middle], picture[:, middle:]]
    seen = [judge2.look(judge, h.copy()) for h in halves]
    said = [names[int(s[0].argmax())] for s in seen]
    found["said"] = " + ".join(said)
    chances = seen[0][0].flatten().softmax(0)
    found["sure"] = round(sum(chances[names.index(t)].item() for t in row["things"]), 4)
    found["right"] = said[0] in row["things"] and ("beside" not in row or said[1] in row["beside"])
    if "colour" in row:
        found["colour"] = judge2.has_colour(halves[0], row["colour"])
    if "colour2" in row:
        found["colour"] = found["colour"] and judge2.has_colour(halves[1], row["colour2"])
    if "ground" in row:
        found["ground"] = judge2.has_ground(picture, row["ground"])
    if "count" in row:
        found["count"] = seen[0][1] == row["count"]
    if "scale" in row:
        scale = judge2.scale_of(picture)
        found["scale"] = scale <= 0.5 if row["scale"] == "small" else scale >= 0.75
    if "style" in row:
        found["style"] = seen[0][2] == STYLE_WORDS[row["style"]]
    return found


def beside(before: pathlib.Path, picture: np.ndarray) -> np.ndarray:
    """The picture that was changed, at the left of the new one"""
    from PIL import Image

    return np.hstack([np.asarray(Image.open(before).convert("RGB").resize(picture.shape[1::-1])), picture])


def lay_out(cells: list, path: pathlib.Path, wide: bool = False, tile: int = 120):
    """wide: pictures with others beside them"""
    from PIL import Image, ImageDraw

    columns, width = (6, 2 * tile) if wide else (12, tile)
    page = Image.new("RGB", (columns * width, -(-len(cells) // columns) * (tile + 26)), "white")
    pen = ImageDraw.Draw(page)
    for k, (picture, words, good, _) in enumerate(cells):
        small, x, y = Image.fromarray(picture), k % columns * width, k // columns * (tile + 26)
        small.thumbnail((width - 4, tile - 4))
        page.paste(small, (x, y))
        pen.text(
            (x, y + tile - 2),
            "\n".join(w[:20] for w in words).encode("latin1", "replace").decode("latin1"),
            "green" if good else "red",
        )
    page.save(path, quality=80, optimize=True)


def score(a):
    from PIL import Image

    import judge2
    import paint

    rows, out = read()[:: a.every], a.out
    out.mkdir(parents=True, exist_ok=True)
    judge, names = judge2.load(a.weights)
    drawn = painter = None
    todo = []  # (row, width, height)
    for number, row in enumerate(rows):
        row["seed"] = number
        todo.append((row, 256, 256))
        todo += [(row, w, h) for w, h in SIZES if row["section"] == "sizes"]
        if "from" in row:
            if painter is None:
                wanted = {t for r in rows if "from" in r for t in r["things"]}
                things, index, pixels = paint.drawings(a.cache, out, 256, None, 2, wanted)
                painter = paint.Painter(pixels, "cpu")
                drawn = painter.deck(things, index)
            Image.fromarray(reference(painter, drawn, row["from"], number)).save(out / f"{number}-before.png")
    jobs = []
    for row, w, h in todo:
        job = dict(prompt=row["prompt"], seed=row["seed"], width=w, height=h, output=f"{out}/{row['seed']}-{w}x{h}.png")
        jobs.append(dict(job, image=[f"{out}/{row['seed']}-before.png"]) if "from" in row else job)
    (out / "list.jsonl").write_text("".join(json.dumps(j) + "\n" for j in jobs))
    subprocess.run(
        [a.lazuli, "batch", out / "list.jsonl", "-m", a.model, "-q"] + (["-s", str(a.steps)] if a.steps else []),
        check=True,
    )
    table, cells, counts = [], {}, {}

    def count(name, good):
        counts.setdefault(name, []).append(bool(good))

    for row, w, h in todo:
        picture = np.asarray(Image.open(out / f"{row['seed']}-{w}x{h}.png").convert("RGB"))
        found = judged(judge, names, picture, row)
        made = [found[k] for k in ("colour", "ground", "count", "scale", "style") if k in found]
        table.append(dict(row, width=w, height=h, **found))
        shown = beside(out / f"{row['seed']}-before.png", picture) if "from" in row else picture
        cell = shown, [row["prompt"], found["said"]], found["right"] and all(made), found["sure"]
        cells.setdefault(row["section"], []).append(cell)
        if row["section"] == "edits":
            count("edit kept", found["right"])
            count("edit made", all(made))
        elif (w, h) == (256, 256):
            count("right", found["right"])
            count(f"right, {row['section']}", found["right"])
            for k in ("colour", "ground", "count", "scale"):
                if k in found:
                    count(k, found[k])
        else:
            count(f"right at {w}x{h}", found["right"])
    (out / "table.jsonl").write_text("".join(json.dumps(t) + "\n" for t in table))
    for section, some in cells.items():
        lay_out(some, out / f"{section.replace(' ', '-')}.jpg", section == "edits")
    worst = sorted((c for s, some in cells.items() if s != "edits" for c in some), key=lambda c: c[2:])
    lay_out(worst[:24], out / "worst.jpg")
    share = {name: float(np.mean(x)) for name, x in counts.items()}
    for w, h in SIZES if "right, sizes" in share else ():  # as a part of what the same prompts reach at 256x256
        share[f"{w}x{h}"] = share[f"right at {w}x{h}"] / max(share["right, sizes"], 1e-9)
    for name, x in counts.items():
        print(f"{name}: {share[name]:.1%} of {len(x)}")
    for name, limit in LIMITS:
        print(
            f"{'reached' if share.get(name, 0) >= limit else 'MISSED '} {name}: {share.get(name, 0):.1%}, wanted {limit:.0%}"
        )


def things(a):
    from PIL import Image

    import judge

    found, names = judge.load(a.weights)
    rows = [r for r in read() if not {"count", "beside", "from", "scale"} & set(r) and r["section"] not in ("colours", "sizes")]
    jobs = [(r, seed, a.out / f"{k}-{seed}.png") for k, r in enumerate(rows) for seed in (1, 2)]
    a.out.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(dict(prompt=r["prompt"], seed=seed, output=str(path))) + "\n" for r, seed, path in jobs]
    (a.out / "list.jsonl").write_text("".join(lines))
    subprocess.run([a.lazuli, "batch", a.out / "list.jsonl", "-m", a.model, "-q"], check=True)
    right = {}
    for r, _, path in jobs:
        scores = judge.name(found, np.array(Image.open(path).convert("RGB"))[None])
        right.setdefault(r["section"], []).append(names[int(scores.argmax())] in r["things"])
    for section, hits in right.items():
        print(f"{section}: {sum(hits)} of {len(hits)}")


def main():
    parser = argparse.ArgumentParser(description="everyday prompts for the second edition")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("check", "score", "things"):
        command = commands.add_parser(name)
        if name != "things":
            command.add_argument("cache", type=pathlib.Path)
        if name != "check":
            command.add_argument("weights")
            command.add_argument("model")
            command.add_argument("lazuli")
            command.add_argument("out", type=pathlib.Path)
        if name == "score":
            command.add_argument("--steps", type=int)
            command.add_argument("--every", type=int, default=1, help="of every so many prompts one, for a short test")
    a = parser.parse_args()
    if a.command == "check":
        check(a.cache)
    else:
        dict(score=score, things=things)[a.command](a)


if __name__ == "__main__":
    main()
