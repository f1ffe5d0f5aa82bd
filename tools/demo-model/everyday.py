"""How often does the demo model paint what a beginner asks for? Paints everyday.txt and names each picture.

    python tools/demo-model/everyday.py ../shared/data/emoji build/lazuli OUT [SEEDS]     # OUT: sheets and a table

The thing in a picture is named by the nearest 3-D drawing at 48x48 pixels, on white: nothing said of style and ground means
these. The sheets are for looking: the nearest drawing errs where the model paints a mixture of two things.
"""

import io
import json
import lzma
import pathlib
import subprocess
import sys
import tarfile

import numpy as np
from PIL import Image, ImageDraw

import data

SIDE, COLUMNS = 48, 10


def read_prompts(path: pathlib.Path):
    half, rows = None, []
    for line in path.read_text().splitlines():
        if line in ("# build", "# held out"):
            half = line[2:]
        elif line and line[0] != "#":
            prompt, right = line.split(" = ")
            rows.append((half, prompt, [r.strip() for r in right.split(",")]))
    return rows


def read_drawings(folder: pathlib.Path):
    """-> names, pictures [N,SIDE,SIDE,3]: each drawing in the sizes and places that the captions leave open"""
    with lzma.open(folder / "emoji.jsonl.xz", "rt") as file:
        things = {t["codepoints"]: data.clean(t["name"]) for t in map(json.loads, file)}
    names, pictures = [], []
    with tarfile.open(folder / "fluent-3d.tar") as tar:
        for member in tar:
            if not member.name.endswith(".webp"):
                continue
            drawing = Image.open(io.BytesIO(tar.extractfile(member).read())).convert("RGBA")
            for size in (198, 210, 222):
                ground = Image.new("RGBA", (256, 256), "white")
                small = drawing.resize((size, size), Image.LANCZOS)
                ground.alpha_composite(small, ((256 - size) // 2, (256 - size) // 2))
                pictures.append(np.asarray(ground.convert("RGB").resize((SIDE, SIDE), Image.BOX), np.float32))
                names.append(things[pathlib.Path(member.name).stem])
    return names, np.stack(pictures).reshape(len(names), -1)


def main():
    source, lazuli, out = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    seeds = int(sys.argv[4]) if len(sys.argv) > 4 else 2
    rows = read_prompts(pathlib.Path(__file__).with_name("everyday.txt"))
    names, drawings = read_drawings(source)
    known = set(names)
    for _, prompt, right in rows:
        print(*(f"{prompt}: no 3-D drawing of '{r}'" for r in right if r not in known), sep="\n", end="")
    out.mkdir(parents=True, exist_ok=True)
    (out / "list.jsonl").write_text(
        "".join(json.dumps(dict(prompt=p, seed=list(range(1, seeds + 1)))) + "\n" for _, p, _ in rows)
    )
    order = [lazuli, "batch", out / "list.jsonl", "-m", "models/demo", "-o", f"{out}/{{n}}-{{seed}}.png", "-q"]
    subprocess.run(order, check=True)
    table, score = [], {}
    for half in ("build", "held out"):
        cells = []
        for n, (h, prompt, right) in enumerate(rows, 1):
            for seed in range(1, seeds + 1) if h == half else ():
                picture = Image.open(out / f"{n}-{seed}.png").convert("RGB")
                small = np.asarray(picture.resize((SIDE, SIDE), Image.BOX), np.float32).reshape(-1)
                said = names[int(((drawings - small) ** 2).sum(1).argmin())]
                score.setdefault(half, []).append(said in right)
                table.append(dict(half=half, n=n, prompt=prompt, seed=seed, said=said, right=said in right))
                cells.append((picture, f"{n}: {prompt}", said, said in right))
        sheet = Image.new("RGB", (COLUMNS * 160, -(-len(cells) // COLUMNS) * 190), "white")
        draw = ImageDraw.Draw(sheet)
        for k, (picture, prompt, said, good) in enumerate(cells):
            x, y = k % COLUMNS * 160, k // COLUMNS * 190
            sheet.paste(picture.resize((156, 156)), (x, y))
            draw.text((x, y + 158), prompt[:27], "black")
            draw.text((x, y + 170), said[:27], "green" if good else "red")
        sheet.save(out / f"{half.replace(' ', '-')}.png")
    (out / "table.jsonl").write_text("".join(json.dumps(line) + "\n" for line in table))
    for half, right in score.items():
        print(f"{half}: {sum(right)} of {len(right)}")


if __name__ == "__main__":
    main()
