#!/usr/bin/env python3
"""Writes tests/data/seeing/: what tests/test_seeing.c compares templates of prompts and SSIM with.

values.json has SSIM by scikit-image, PSNR by NumPy, and prompts that a second implementation of the templates gives; the
.txt files are wildcards. Pictures of the comparison are made from a formula, here and in the test.
Run it with a python that has numpy and scikit-image: python3 tools/oracle/seeing.py
"""

import json
import pathlib
import re

import numpy as np
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests/data/seeing"
SIZES = [(11, 11, 3), (37, 29, 9), (64, 48, 40), (12, 90, 255), (128, 128, 1)]
WILDCARDS = {
    "colour": "# colours\nred\n\n  blue  \n3::green\n{dark|light} grey\n",
    "sub/animal": "\ufefffox\r\n__colour__ dog\r\ncat",
    "nobody": "# only a comment\n\n",
    "itself": "a __itself__",
}
TEMPLATES = [
    "{red|blue} car", "a {red|{dark|light} blue|} car", "{3::red|1::blue} car", "{0::red|1::blue|2.5::green}",
    "{2$$red|blue|green} car", "{1-3$$ and $$red|blue|green|black} car", "{5$$a|b}", "{0$$a|b}x", "{a b|c} {plain} {d|e}",
    "\\{a|b\\} {c|d}", "{a\\|b|c\\}}", "{ red | blue }", "{{a|b}|{c|d}} {e|f}", "{3:a|3::b}", "__colour__ on __colour__",
    "a __sub/animal__, {a|__colour__}", "{2$$__colour__|fox|{x|y}}", "|{a|b}|", "{a|b} } {c|d}", "{12::a|1.2.3::b|c::d}",
    "{\u72d0|gr\u00fcn} \\__colour__", "{a|b", "{a", "{}|{} {x|}", "{2$$a}", "{1-$$a|b}", "$${a|$$}", "{1$$|$$a|b}",
]
MASK = (1 << 64) - 1


def pictures(width: int, height: int, apart: int) -> tuple[np.ndarray, np.ndarray]:
    """Noise upon a gradient, and the same with differences of up to `apart`."""
    state, values = width * 1000 + height, []
    for _ in range(2 * width * height * 3):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        values.append(state >> 24)
    one, two = np.array(values).reshape(2, height, width, 3)
    y, x, k = np.meshgrid(np.arange(height), np.arange(width), np.arange(3), indexing="ij")
    a = (one // 4 + 3 * x + 2 * y + 20 * k) % 256
    b = np.clip(a + two % (2 * apart + 1) - apart, 0, 255)
    return a.astype(np.uint8), b.astype(np.uint8)


def measure(width: int, height: int, apart: int) -> dict:
    a, b = pictures(width, height, apart)
    ssim = structural_similarity(a, b, channel_axis=2, data_range=255, gaussian_weights=True, sigma=1.5,
                                 use_sample_covariance=False)
    d = np.abs(a.astype(int) - b.astype(int)).max(axis=2)
    y, x = np.unravel_index(d.argmax(), d.shape)
    return {"width": width, "height": height, "apart": apart, "ssim": ssim, "psnr": peak_signal_noise_ratio(a, b),
            "differing": int((d > 0).sum()), "largest": int(d.max()), "x": int(x), "y": int(y)}


class Template:
    """A second implementation, by regular expressions and recursion."""

    def __init__(self, seed: int):
        self.state = seed

    def share(self) -> float:  # splitmix64
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return ((z ^ (z >> 31)) >> 11) / 2**53

    def choose(self, weights: list[float]) -> int:
        left = self.share() * sum(weights)
        for i, w in enumerate(weights):
            if w > 0:
                left -= w
                if left < 0:
                    return i
        raise AssertionError

    @staticmethod
    def option(text: str) -> tuple[float, str]:
        text = text.strip()
        m = re.match(r"(\d+\.?\d*|\.\d+)::\s*(.*)$", text, re.S)
        return (float(m[1]), m[2]) if m else (1.0, text)

    @staticmethod
    def close(text: str, at: int) -> int:
        depth = 0
        while at < len(text):
            if text[at] == "\\" and text[at + 1 : at + 2] in tuple("{}|"):
                at += 1
            elif text[at] in "{}":
                depth += 1 if text[at] == "{" else -1
                if depth == 0:
                    return at
            at += 1
        return -1

    @classmethod
    def split(cls, text: str) -> list[str]:
        parts, begin, at = [], 0, 0
        while at < len(text):
            if text[at] == "\\" and text[at + 1 : at + 2] in tuple("{}|"):
                at += 1
            elif text[at] == "{" and cls.close(text, at) >= 0:
                at = cls.close(text, at)
            elif text[at] == "|":
                parts.append(text[begin:at])
                begin = at + 1
            at += 1
        return parts + [text[begin:]]

    def pick(self, inside: str) -> str:
        low = high = 1
        joiner = ", "
        m = re.match(r"(\d+)(?:-(\d+))?\$\$", inside)
        if m:
            low, high = sorted((int(m[1]), int(m[2] or m[1])))
            inside = inside[m.end() :]
            j = re.match(r"([^|{}]*?)\$\$", inside)
            if j:
                joiner, inside = j[1], inside[j.end() :]
        options = [self.option(t) for t in self.split(inside)]
        most = sum(w > 0 for w, _ in options)
        low, high = min(low, most), min(high, most)
        count = low + (self.choose([1.0] * (high - low + 1)) if high > low else 0)
        weights, made = [w for w, _ in options], []
        while len(made) < count and any(weights):
            i = self.choose(weights)
            made.append(self.expand(options[i][1]))
            weights[i] = 0
        return joiner.join(made)

    def wildcard(self, name: str) -> str:
        lines = [self.option(t) for t in WILDCARDS[name].lstrip("\ufeff").split("\n")]
        lines = [(w, t) for w, t in lines if t and not t.startswith("#")]
        return self.expand(lines[self.choose([w for w, _ in lines])][1])

    def expand(self, text: str) -> str:
        out, at = [], 0
        while at < len(text):
            name = re.match(r"__((?:(?!__)[-\w./])+)__", text[at:])
            end = self.close(text, at) if text[at] == "{" else -1
            if text[at] == "\\" and text[at + 1 : at + 2] in tuple("{}|"):
                out.append(text[at + 1])
                at += 2
            elif text.startswith("\\__", at):
                out.append("__")
                at += 3
            elif name:
                out.append(self.wildcard(name[1]))
                at += name.end()
            elif end >= 0 and len(self.split(text[at + 1 : end])) > 1:
                out.append(self.pick(text[at + 1 : end]))
                at = end + 1
            elif text[at] == "{" and end < 0 and len(self.split(text[at + 1 :])) > 1:
                raise ValueError
            else:
                out.append(text[at])
                at += 1
        return "".join(out)


def prompts(text: str) -> dict:
    made = []
    for seed in [0, 1, 2, 3, 42, 2**63 - 1]:
        try:
            made.append([str(seed), Template(seed).expand(text)])
        except ValueError:
            made.append([str(seed), None])
    return {"template": text, "prompts": made}


def main() -> None:
    for name, text in WILDCARDS.items():
        (FOLDER / f"{name}.txt").parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / f"{name}.txt").write_bytes(text.encode())
    values = {"pictures": [measure(*s) for s in SIZES], "templates": [prompts(t) for t in TEMPLATES]}
    (FOLDER / "values.json").write_text(json.dumps(values, indent=1) + "\n")


if __name__ == "__main__":
    main()
