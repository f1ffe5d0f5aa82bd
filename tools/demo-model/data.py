"""Pictures and captions: scenes drawn at random from the emoji, their captions, and the tokenizer.

A scene is a row of numbers (which drawings, where, how large, on what background) and a few captions that say it. The
numbers are made on the host, the pixels on the GPU.

    python tools/demo-model/data.py .demo-cache          trains the tokenizer into .demo-cache/tokenizer, shows captions
"""

import io
import json
import pathlib
import random
import re
import sys
import tarfile
import zlib
from concurrent.futures import ProcessPoolExecutor

import numpy as np

STYLES = {  # folder: (weight, words)
    "fluent-3d": (1.7, ["3d", "3d", "3D"]),
    "fluent-flat": (1.0, ["flat", "flat", "flat"]),
    "noto": (1.0, ["cartoon", "cartoon", "noto"]),
    "noto-classic": (0.6, ["classic", "classic", "retro"]),
    "fluent-line": (0.7, ["line", "outline", "line"]),
}
NAMES = list(STYLES)
GROUPS = {
    "Animals & Nature": 2.0,
    "Food & Drink": 1.8,
    "Objects": 1.4,
    "Travel & Places": 1.4,
    "Activities": 1.4,
    "Smileys & Emotion": 1.2,
    "People & Body": 0.5,
    "Symbols": 0.4,
}
COLOURS = {
    "white": (255, 255, 255),
    "black": (18, 18, 20),
    "grey": (140, 142, 146),
    "gray": (140, 142, 146),
    "light grey": (212, 214, 218),
    "red": (214, 46, 48),
    "orange": (250, 142, 36),
    "yellow": (252, 218, 62),
    "green": (62, 164, 82),
    "light green": (172, 226, 160),
    "dark green": (22, 82, 48),
    "blue": (48, 106, 222),
    "light blue": (164, 212, 248),
    "dark blue": (20, 38, 104),
    "navy": (20, 38, 104),
    "purple": (126, 68, 184),
    "pink": (250, 164, 196),
    "brown": (124, 80, 48),
    "teal": (28, 146, 148),
    "beige": (240, 226, 200),
    "turquoise": (72, 208, 204),
    "lavender": (208, 192, 244),
}
LINES = ["red", "orange", "green", "blue", "dark blue", "purple", "brown", "teal", "pink", "white", "black"]
NUMBERS = {2: ["two", "two", "2", "a pair of"], 3: ["three", "three", "3"], 4: ["four", "four", "4"]}
PLACES = {
    "on the left": (0.27, 0.5),
    "on the right": (0.73, 0.5),
    "at the top": (0.5, 0.27),
    "at the bottom": (0.5, 0.73),
    "in the top left corner": (0.25, 0.25),
    "in the top right corner": (0.75, 0.25),
    "in the bottom left corner": (0.25, 0.75),
    "in the bottom right corner": (0.75, 0.75),
}
SLOTS = 4
PROMPT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


# ---------------------------------------------------------------------------------------------------------------------
# The emoji


def clean(name: str) -> str:
    name = re.sub(r"\(.*?\)|[!.#*]", "", name.replace("’", "'").replace(",", " and"))
    return re.sub(r"\s+", " ", name).strip().lower()


def held_out(codepoints: str, style: str) -> bool:
    return zlib.crc32(f"{codepoints}/{style}".encode()) % 20 == 0


def held_out_pairs(rows: list, index: np.ndarray) -> np.ndarray:
    """[things,styles]: which drawings are never trained on. index[thing][style]: number of the drawing or -1"""
    out = np.array([[held_out(r["codepoints"], s) for s in NAMES] for r in rows]) & (index >= 0)
    return out & ((index >= 0).sum(1) >= 3)[:, None]


def decode(data: bytes) -> np.ndarray:
    from PIL import Image

    picture = Image.open(io.BytesIO(data)).convert("RGBA")
    if picture.size != (256, 256):
        picture = picture.resize((256, 256), Image.LANCZOS)
    return np.asarray(picture)


class Words:
    """rows of name and keywords; other: the keywords that belong to one thing only"""

    def __init__(self, rows: list):
        self.rows = rows
        self.names = [clean(r["name"]) or "sign" for r in rows]
        self.keywords = [r["keywords"] for r in rows]
        seen = {}
        for r in rows:
            for k in r["keywords"]:
                seen[k] = seen.get(k, 0) + 1
        taken = set(self.names)
        self.other = [
            [k for k in r["keywords"] if seen[k] == 1 and k not in taken and re.fullmatch("[a-z ]{4,20}", k)] for r in rows
        ]


class Things(Words):
    """and which drawings there are: index[thing][style] -> number of the drawing or -1"""

    def __init__(self, path: pathlib.Path, pixels: bool = True):
        with tarfile.open(path) as tar:
            files = {m.name: tar.extractfile(m).read() for m in tar if m.isfile()}
        super().__init__(json.loads(files.pop("things.json")))
        paths = sorted(files)
        place = {p: i for i, p in enumerate(paths)}
        self.take_index(np.array([[place.get(f"{s}/{r['codepoints']}.webp", -1) for s in NAMES] for r in self.rows]))
        if pixels:
            with ProcessPoolExecutor() as pool:
                self.pixels = np.stack(list(pool.map(decode, [files[p] for p in paths], chunksize=64)))

    def take_index(self, index: np.ndarray):
        self.index = index
        self.out = held_out_pairs(self.rows, index)
        self.weights = np.array([GROUPS.get(r["group"], 1.0) for r in self.rows])


# ---------------------------------------------------------------------------------------------------------------------
# Words


def plural(name: str) -> str:
    head, join, tail = name, "", ""
    for part in (" with ", " of ", " in ", " on ", " and "):
        if part in name:
            head, tail = name.split(part, 1)
            join = part
            break
    words = head.split(" ")
    w = words[-1]
    odd = {
        "man": "men",
        "woman": "women",
        "mouse": "mice",
        "leaf": "leaves",
        "person": "people",
        "child": "children",
        "fish": "fish",
        "sheep": "sheep",
        "foot": "feet",
        "tooth": "teeth",
        "wolf": "wolves",
        "knife": "knives",
    }
    if w in odd:
        w = odd[w]
    elif w.endswith("s") and not w.endswith("ss"):
        pass
    elif re.search("(ss|x|ch|sh)$", w):
        w += "es"
    elif re.search("[^aeiou]y$", w):
        w = w[:-1] + "ies"
    else:
        w += "s"
    return " ".join(words[:-1] + [w]) + join + tail


def with_article(name: str, r: random.Random, adjective: str = "") -> str:
    words = f"{adjective} {name}".strip()
    if name.endswith("s") and not name.endswith("ss"):
        return words if r.random() < 0.8 else f"some {words}"
    if r.random() < 0.2:
        return words
    if r.random() < 0.1:
        return f"the {words}"
    return ("an " if words[0] in "aeiou" else "a ") + words


def caption(
    r: random.Random,
    things: list,
    kind: str,
    style: str | None,
    ground: str | None,
    line: str | None,
    size: str | None,
    place: str | None,
    relation: str | None,
    count: int,
) -> str:
    """One of the many ways to say it."""
    said_style, lead = None, ""
    if style is not None:
        said_style = r.choice(STYLES[style][1])
    adjective = size or ""
    tail = []
    style_in_front = said_style and kind != "pair" and not line and r.random() < 0.3
    if style_in_front:
        drawing = {"line": "line drawing of ", "outline": "outline drawing of "}.get(said_style)
        if drawing:
            lead = r.choice(["a ", ""]) + drawing
        elif r.random() < 0.3:
            lead = r.choice(["a ", ""]) + f"{said_style} " + r.choice(["picture of ", "drawing of ", "emoji of "])
        else:
            adjective = f"{adjective} {said_style}".strip()
    elif said_style:
        colour = f"{line} " if line else ""
        tail.append(
            r.choice(
                [
                    f" in {colour}{said_style} style",
                    f" in {colour}{said_style} style",
                    f", {colour}{said_style} style",
                    f" {colour}{said_style} style",
                ]
            )
        )
    if kind == "count":
        words = r.choice(NUMBERS[count]) + " " + f"{adjective} {plural(things[0])}".strip()
    elif kind == "pair":
        a, b = with_article(things[0], r), with_article(things[1], r)
        words = {
            "left": r.choice(
                [
                    f"{a} left of {b}",
                    f"{a} to the left of {b}",
                    f"{b} right of {a}",
                    f"{b} to the right of {a}",
                    f"{a} on the left and {b} on the right",
                ]
            ),
            "above": r.choice([f"{a} above {b}", f"{b} below {a}", f"{a} over {b}", f"{b} under {a}"]),
            "and": r.choice([f"{a} and {b}", f"{a} and {b}", f"{a} next to {b}", f"{a} beside {b}"]),
        }[relation]
    else:
        words = with_article(things[0], r, adjective)
    words = lead + words
    if place:
        words += " " + place
    if ground:
        article = "an" if ground[0] in "aeiou" else "a"
        tail.append(
            r.choice(
                [
                    f" on {article} {ground} background",
                    f" on {article} {ground} background",
                    f" on {ground}",
                    f", {ground} background",
                    f" with {article} {ground} background",
                ]
            )
        )
    if len(tail) == 2 and r.random() < 0.35:
        tail.reverse()
    words += "".join(tail)
    if r.random() < 0.1:
        words = words[0].upper() + words[1:]
    return words + ("." if r.random() < 0.05 else "")


# ---------------------------------------------------------------------------------------------------------------------
# Scenes


def pick(r: random.Random, t: Things, cumulative: np.ndarray, out: bool, style: int | None = None):
    """A (thing, style); only held-out pairs, or none of them."""
    while True:
        thing = int(np.searchsorted(cumulative, r.random() * cumulative[-1]))
        s = style if style is not None else r.choices(range(len(NAMES)), [STYLES[n][0] for n in NAMES])[0]
        if t.index[thing, s] >= 0 and bool(t.out[thing, s]) == out:
            return thing, s


def make_scene(r: random.Random, t: Things, cumulative: np.ndarray, out: bool, n_captions: int):
    kind = r.choices(["single", "pair", "count"], [0.7, 0.15, 0.15])[0]
    thing, s = pick(r, t, cumulative, out)
    things, style = [thing], NAMES[s]
    if kind == "pair":
        things.append(pick(r, t, cumulative, False, s)[0])
    ground = r.choice(list(COLOURS)) if r.random() < 0.78 else None  # white where nothing is said
    rgb = np.array(COLOURS[ground or "white"], float)
    if ground not in (None, "white"):
        rgb = np.clip(rgb + np.array([r.uniform(-5, 5) for _ in range(3)]), 0, 255)
    line, tint = None, None
    if style == "fluent-line":
        bright = rgb @ [0.3, 0.59, 0.11]
        tint = COLOURS["black"] if bright > 90 else COLOURS["white"]
        choice = [c for c in LINES if np.abs(np.array(COLOURS[c]) - rgb).sum() > 220]
        if r.random() < 0.35 and choice:
            line = r.choice(choice)
            tint = COLOURS[line]
    unsaid = style == "fluent-3d" and r.random() < 0.3  # 3d where nothing is said
    size_word = place = relation = None
    jitter = lambda a: r.uniform(-a, a)  # noqa: E731
    count, boxes = 1, []  # (x, y, size) as parts of the picture
    if kind == "single":
        how = r.random()
        if how < 0.66:
            boxes = [(0.5 + jitter(0.02), 0.5 + jitter(0.02), r.uniform(0.76, 0.88))]
        elif how < 0.76:
            size_word = r.choice(["small", "little", "tiny"])
            boxes = [(0.5 + jitter(0.03), 0.5 + jitter(0.03), r.uniform(0.3, 0.38))]
        elif how < 0.86:
            size_word = r.choice(["big", "large", "huge"])
            boxes = [(0.5 + jitter(0.01), 0.5 + jitter(0.01), r.uniform(0.96, 1.04))]
        else:
            place = r.choice(list(PLACES))
            x, y = PLACES[place]
            boxes = [(x + jitter(0.02), y + jitter(0.02), r.uniform(0.42, 0.5))]
    elif kind == "pair":
        relation = r.choice(["left", "left", "and", "and", "above"])
        size = r.uniform(0.43, 0.49)
        at = [(0.5, 0.26), (0.5, 0.74)] if relation == "above" else [(0.26, 0.5), (0.74, 0.5)]
        boxes = [(x + jitter(0.015), y + jitter(0.015), size) for x, y in at]
    else:
        count = r.choice([2, 2, 3, 4])
        size = {2: r.uniform(0.43, 0.49), 3: r.uniform(0.3, 0.33), 4: r.uniform(0.4, 0.46)}[count]
        at = {
            2: [(0.26, 0.5), (0.74, 0.5)],
            3: [(0.18, 0.5), (0.5, 0.5), (0.82, 0.5)],
            4: [(0.27, 0.27), (0.73, 0.27), (0.27, 0.73), (0.73, 0.73)],
        }[count]
        boxes = [(x + jitter(0.01), y + jitter(0.01), size) for x, y in at]
        things = things * count
    captions = []
    for _ in range(n_captions):
        words = [r.choice(t.other[i]) if t.other[i] and r.random() < 0.1 else t.names[i] for i in things[:2]]
        captions.append(
            caption(
                r,
                words,
                kind,
                None if unsaid and r.random() < 0.7 and not line else style,
                ground,
                line,
                size_word,
                place,
                relation,
                count,
            )
        )
    row = np.full((SLOTS, 4), -1, np.float32)  # drawing, x, y, size in pixels
    for k, (i, box) in enumerate(zip(things, boxes)):
        row[k] = t.index[i, s], box[0] * 256, box[1] * 256, box[2] * 256
    colours = np.array([rgb, tint if tint else (-1, -1, -1)], np.float32)  # ground, tint
    return row, colours, captions


def make_scenes(job):
    """(things without pixels, seed, number, held out, captions each, tokenizer) -> rows, colours, ids, lengths"""
    t, seed, n, out, n_captions, tokenizer, length = job
    r = random.Random(seed)
    cumulative = np.cumsum(t.weights)
    scenes = [make_scene(r, t, cumulative, out, n_captions) for _ in range(n)]
    ids, lengths = tokenize(load_tokenizer(tokenizer), [c for s in scenes for c in s[2]], length)
    return (
        np.stack([s[0] for s in scenes]),
        np.stack([s[1] for s in scenes]),
        ids.reshape(n, n_captions, -1),
        lengths.reshape(n, n_captions),
        [s[2][0] for s in scenes[:8]],
    )


def many_scenes(pool, t: Things, seed: int, n: int, out: bool, n_captions: int, tokenizer: str, length: int):
    chunk = 1000
    bare = Things.__new__(Things)
    bare.__dict__ = {k: v for k, v in t.__dict__.items() if k != "pixels"}
    jobs = [
        (bare, seed * 100003 + i, min(chunk, n - i), out, n_captions, tokenizer, length) for i in range(0, n, chunk)
    ]
    parts = list(pool.map(make_scenes, jobs))
    return [np.concatenate([p[k] for p in parts]) for k in range(4)] + [parts[0][4]]


# ---------------------------------------------------------------------------------------------------------------------
# Pixels, on the GPU


class Painter:
    """Keeps all drawings on the GPU, in five sizes so that shrinking them never skips pixels."""

    SIZES = [256, 181, 128, 91, 64]

    def __init__(self, pixels: np.ndarray, device: str):
        import torch
        import torch.nn.functional as F

        self.device, self.levels = (
            device,
            [torch.empty(len(pixels), 4, s, s, dtype=torch.uint8, device=device) for s in self.SIZES],
        )
        for i in range(0, len(pixels), 512):
            p = torch.from_numpy(pixels[i : i + 512]).to(device).permute(0, 3, 1, 2).float()
            p[:, :3] *= p[:, 3:] / 255  # premultiplied
            for level, s in zip(self.levels, self.SIZES):
                small = p if s == 256 else F.interpolate(p, (s, s), mode="bilinear", antialias=True)
                level[i : i + 512] = small.round().clamp(0, 255).to(torch.uint8)

    def paint(self, rows: np.ndarray, colours: np.ndarray):
        """-> uint8 [B,3,256,256]"""
        import torch
        import torch.nn.functional as F

        canvas = torch.from_numpy(colours[:, 0]).to(self.device)[:, :, None, None].expand(-1, 3, 256, 256).contiguous()
        at = torch.arange(256, device=self.device) + 0.5
        for slot in range(SLOTS):
            used = np.nonzero(rows[:, slot, 0] >= 0)[0]
            level = np.array([sum(s >= size for s in self.SIZES[1:]) for size in rows[used, slot, 3]], int)
            for k in set(level.tolist()):
                who = used[level == k]
                to = torch.from_numpy(who).to(self.device)
                drawing, x, y, size = torch.from_numpy(rows[who, slot]).to(self.device).T
                source = self.levels[k][drawing.long()].float()
                gx = ((at[None] - x[:, None]) / size[:, None] * 2)[:, None, :].expand(-1, 256, -1)
                gy = ((at[None] - y[:, None]) / size[:, None] * 2)[:, :, None].expand(-1, -1, 256)
                p = F.grid_sample(source, torch.stack([gx, gy], -1), mode="bilinear", align_corners=False)
                tint = torch.from_numpy(colours[who, 1]).to(self.device)[:, :, None, None]
                rgb, a = torch.where(tint >= 0, tint * p[:, 3:] / 255, p[:, :3]), p[:, 3:] / 255
                canvas[to] = rgb + (1 - a) * canvas[to]
        return canvas.round().clamp(0, 255).to(torch.uint8)


# ---------------------------------------------------------------------------------------------------------------------
# Tokenizer: byte-level BPE in the form of Qwen's

SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL, PLAIN = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], ["<think>", "</think>"]
TEMPLATE = """{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""


def train_tokenizer(t: Things, folder: pathlib.Path, vocabulary: int = 2560):
    from tokenizers import (
        AddedToken,
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
        trainers,
    )

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    r, cumulative = random.Random(0), np.cumsum(t.weights)
    corpus = [f" {n}" for n in t.names for _ in range(20)] + [n for n in t.names for _ in range(2)]
    corpus += [f" {plural(n)}" for n in t.names for _ in range(3)] + [
        f" {k}" for o in t.other for k in o for _ in range(2)
    ]
    corpus += [c for _ in range(3000) for c in make_scene(r, t, cumulative, False, 1)[2]] + [
        "user\n",
        "assistant\n",
        "\n\n",
    ] * 3000
    tokenizer.train_from_iterator(
        corpus,
        trainers.BpeTrainer(
            vocab_size=vocabulary - len(SPECIAL + PLAIN),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=[],
            show_progress=False,
        ),
    )
    tokenizer.add_special_tokens([AddedToken(x, normalized=False, special=True) for x in SPECIAL])
    tokenizer.add_tokens([AddedToken(x, normalized=False, special=False) for x in PLAIN])
    folder.mkdir(parents=True, exist_ok=True)
    whole = json.loads(tokenizer.to_str())
    (folder / "tokenizer.json").write_text(json.dumps(whole, ensure_ascii=False, separators=(",", ":")) + "\n")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            dict(
                add_prefix_space=None,
                backend="tokenizers",
                bos_token=None,
                eos_token="<|im_end|>",
                model_max_length=131072,
                pad_token="<|endoftext|>",
                tokenizer_class="Qwen2Tokenizer",
                unk_token=None,
            ),
            indent=2,
        )
        + "\n"
    )


def load_tokenizer(folder: str):
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(pathlib.Path(folder) / "tokenizer.json"))


def tokenize(tokenizer, captions: list, length: int):
    """-> ids [N,length] int16 padded on the right, lengths [N]"""
    pad = tokenizer.token_to_id("<|endoftext|>")
    ids = np.full((len(captions), length), pad, np.int16)
    lengths = np.zeros(len(captions), np.int16)
    for i, code in enumerate(tokenizer.encode_batch([PROMPT.format(c) for c in captions], add_special_tokens=False)):
        code = code.ids[:length]
        ids[i, : len(code)], lengths[i] = code, len(code)
    return ids, lengths


if __name__ == "__main__":
    cache = pathlib.Path(sys.argv[1])
    things = Things(cache / "emoji.tar", pixels=False)
    train_tokenizer(things, cache / "tokenizer")
    rng, cum = random.Random(5), np.cumsum(things.weights)
    lines = [c for _ in range(3000) for c in make_scene(rng, things, cum, False, 1)[2]]
    sizes = tokenize(load_tokenizer(cache / "tokenizer"), lines, 64)[1]
    print("\n".join(lines[:40]))
    print("tokens: mean", sizes.mean(), "99 %", np.percentile(sizes, 99), "most", sizes.max())
    print(
        "drawings", (things.index >= 0).sum(), "held out", things.out.sum(), "other words", sum(map(len, things.other))
    )
