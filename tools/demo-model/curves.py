"""Draws the losses of log.jsonl as a picture, with Pillow alone.

python tools/demo-model/curves.py log.jsonl tools/demo-model/curves.png
"""

import json
import sys

from PIL import Image, ImageDraw

PANELS = [
    ("vae", "dB", "autoencoder: dB on the training pictures"),
    ("base", "loss", "transformer: flow matching loss"),
    ("distil", "loss", "student: distance from the guided teacher"),
]
W, H, EDGE = 420, 280, 46


def main():
    rows = [json.loads(line) for line in open(sys.argv[1])]
    picture = Image.new("RGB", (W * len(PANELS), H), "white")
    draw = ImageDraw.Draw(picture)
    for i, (stage, key, title) in enumerate(PANELS):
        points = [(r["step"], r[key]) for r in rows if r.get("stage") == stage and "step" in r and key in r]
        left, right, top, bottom = i * W + EDGE, (i + 1) * W - 14, 34, H - 30
        draw.text((left, 10), title, "black")
        if len(points) < 2:
            continue
        low, high = min(y for _, y in points), max(y for _, y in points)
        low, high = low - 0.05 * (high - low), high + 0.05 * (high - low)
        most = points[-1][0]
        place = [
            (left + (right - left) * x / most, bottom - (bottom - top) * (y - low) / (high - low)) for x, y in points
        ]
        draw.rectangle([left, top, right, bottom], outline="grey")
        for k in range(5):
            y = bottom - (bottom - top) * k / 4
            draw.line([left, y, right, y], "#dddddd")
            draw.text((i * W + 4, y - 6), f"{low + (high - low) * k / 4:.3g}", "black")
            draw.text((left + (right - left) * k / 4 - 12, bottom + 8), f"{most * k // 4}", "black")
        draw.line(place, "#2060c0", 2)
    picture.save(sys.argv[2])


if __name__ == "__main__":
    main()
