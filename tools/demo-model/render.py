"""Draws every emoji of ../shared/data/emoji at 256x256 once, as WebP with alpha, into one file that the GPU machine can
read without a renderer of SVG:

    python tools/demo-model/render.py ../shared/data/emoji .demo-cache/emoji.tar      (needs rsvg-convert and Pillow)

The tar holds <style>/<codepoints>.webp and things.json (names, groups, keywords).
"""

import io
import json
import lzma
import pathlib
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor

from PIL import Image


def webp(picture: Image.Image) -> bytes:
    """The smaller of lossless and nearly lossless."""
    forms = []
    for options in (dict(lossless=True, quality=50, method=3), dict(quality=93, alpha_quality=100, method=3)):
        buffer = io.BytesIO()
        picture.save(buffer, "WEBP", **options)
        forms.append(buffer.getvalue())
    return min(forms, key=len)


def draw(job: tuple[str, str]) -> tuple[str, bytes]:
    path, svg = job
    done = subprocess.run(
        ["rsvg-convert", "-w", "256", "-h", "256"],
        input=svg.replace("currentColor", "#000000").encode(),
        stdout=subprocess.PIPE,
        check=True,
    )
    return path, webp(Image.open(io.BytesIO(done.stdout)).convert("RGBA"))


def main():
    source, target = pathlib.Path(sys.argv[1]), sys.argv[2]
    with lzma.open(source / "emoji.jsonl.xz", "rt") as file:
        things = [json.loads(line) for line in file]
    jobs = [(f"{style}/{t['codepoints']}.webp", svg) for t in things for style, svg in t["svg"].items()]
    files = {}
    with tarfile.open(source / "fluent-3d.tar") as tar:
        for member in tar:
            if member.isfile() and member.name.endswith(".webp"):
                files[member.name] = tar.extractfile(member).read()
    with ThreadPoolExecutor(3) as pool:
        files.update(pool.map(draw, jobs))
    kept = [{k: t[k] for k in ("codepoints", "name", "group", "keywords")} for t in things]
    files["things.json"] = json.dumps(kept).encode()
    with tarfile.open(target, "w") as tar:
        for path, data in sorted(files.items()):
            info = tarfile.TarInfo(path)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    print(f"{len(files) - 1} drawings, {sum(map(len, files.values())) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
