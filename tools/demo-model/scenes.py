"""Scenes of the second edition: drawn at random, said in captions, laid out for any size, and changed for edits.

A scene is a dict: kind (single, pair, count), things, style, tints (a colour of each thing, or None for its own),
ground, line (the said colour of a line drawing), scale (small, big), place, relation, count, say_style. `layout`
turns it into numbers for Painter (paint.py):

    row [SLOTS,5]: drawing, x, y, size in pixels, tint (number in TINTS, or -1)
    colours [2,3]: ground, ink of line drawings (-1: none)
"""

import random

import numpy as np

import captions
import data

SLOTS = 6
# Sizes in tokens of 16 pixels (height, width), and their shares: 128 to 512 pixels a side, 1:2 to 2:1, 316 tokens on
# average.
BUCKETS = {
    (16, 16): 0.48,
    (8, 8): 0.09,
    (12, 12): 0.05,
    (24, 24): 0.05,
    (32, 32): 0.05,
    (8, 16): 0.03,
    (16, 8): 0.03,
    (12, 16): 0.03,
    (16, 12): 0.03,
    (16, 24): 0.03,
    (24, 16): 0.03,
    (16, 32): 0.035,
    (32, 16): 0.035,
    (24, 32): 0.01,
    (32, 24): 0.01,
    (20, 32): 0.01,
}
EDIT_BUCKETS = {  # a reference doubles the tokens, so edits are smaller
    (16, 16): 0.60,
    (8, 8): 0.08,
    (12, 12): 0.06,
    (24, 24): 0.05,
    (16, 24): 0.06,
    (24, 16): 0.06,
    (16, 32): 0.04,
    (32, 16): 0.04,
    (32, 32): 0.01,
}
SHARES = dict(single=0.63, pair=0.2, count=0.17)
CHANGES = dict(style=0.5, ground=0.16, tint=0.14, count=0.14, scale=0.06)  # a new style is the hardest change


class Deck:
    """What scenes are drawn from: the things, which drawings exist, and which of them can be recoloured."""

    def __init__(self, rows: list, index: np.ndarray, tintable: np.ndarray, own: list):
        """index [things,styles]: number of the drawing or -1; tintable [drawings]; own [drawings]: its colour, or None"""
        self.names = captions.Names(rows)
        self.index, self.tintable, self.own = index, tintable, own
        self.out = data.held_out_pairs(rows, index)
        self.trained = (index >= 0) & ~self.out  # what may be in scenes for training; train2.py adds what translate.py draws
        self.weights = np.array([data.GROUPS.get(r["group"], 1.0) for r in rows])
        self.weights *= np.where(self.names.everyday, 1.5, 1.0)
        self.cumulative = np.cumsum(self.weights * (index >= 0).any(1))

    def pick(self, r: random.Random, out: bool, style: int | None = None):
        """A (thing, style); only held-out pairs, or none of them."""
        for _ in range(10000):
            thing = int(np.searchsorted(self.cumulative, r.random() * self.cumulative[-1]))
            s = (
                style
                if style is not None
                else r.choices(range(len(data.NAMES)), [data.STYLES[n][0] for n in data.NAMES])[0]
            )
            if (self.out if out else self.trained)[thing, s]:
                return thing, s
        raise RuntimeError("no such drawing")

    def drawing(self, thing: int, style: str) -> int:
        return int(self.index[thing, data.NAMES.index(style)])

    def can_tint(self, thing: int, style: str) -> bool:
        name = self.names.names[thing]
        return bool(self.tintable[self.drawing(thing, style)]) and captions.plain(name) not in data.COLOURS


def draw_ground(r: random.Random):
    return r.choice(list(data.COLOURS)) if r.random() < 0.75 else None  # white if nothing is said


def stands_out(colour: str, ground: str | None) -> bool:
    a, b = np.array(data.COLOURS[colour], float), np.array(data.COLOURS[ground or "white"], float)
    return np.abs(a - b).sum() > 150


def draw_tint(r: random.Random, deck: Deck, thing: int, style: str, ground: str | None, share: float):
    if style == "fluent-line" or not deck.can_tint(thing, style) or r.random() > share:
        return None
    fine = [t for t in captions.TINTS if stands_out(t, ground)]
    plain = [t for t in fine if t not in ("black", "white", "grey", "brown")]
    return r.choice(plain if r.random() < 0.85 and plain else fine) if fine else None


def draw_scene(r: random.Random, deck: Deck, out: bool = False, shares: dict = SHARES) -> dict:
    kind = r.choices(list(shares), list(shares.values()))[0]
    thing, number = deck.pick(r, out)
    style, things = data.NAMES[number], [thing]
    ground = draw_ground(r)
    s = dict(
        kind=kind, things=things, style=style, ground=ground, line=None, scale=None, place=None, relation=None, count=1
    )
    if kind == "pair":
        things.append(deck.pick(r, False, number)[0])
        s["relation"] = r.choice(["left", "left", "and", "and", "and", "above"])
    share = 0.5 if kind == "pair" else 0.3
    s["tints"] = [draw_tint(r, deck, t, style, ground, share) for t in things]
    s["own"] = [
        deck.own[deck.drawing(t, style)] if not c and r.random() < 0.12 else None for t, c in zip(things, s["tints"])
    ]
    if style == "fluent-line" and r.random() < 0.35:
        fine = [c for c in data.LINES if stands_out(c, ground)]
        s["line"] = r.choice(fine) if fine else None
    if kind == "single":
        how = r.random()
        if how < 0.1:
            s["scale"] = "small"
        elif how < 0.2:
            s["scale"] = "big"
        elif how < 0.32:
            s["place"] = r.choice(list(data.PLACES))
    elif kind == "count":
        s["count"] = r.choice([2, 2, 3, 3, 4, 5, 6])
    s["say_style"] = style != "fluent-3d" or bool(s["line"]) or r.random() > 0.5  # 3d if nothing is said
    return s


def say(r: random.Random, deck: Deck, s: dict) -> str:
    """A caption. The own colour of a thing may be said too."""
    said = [t or o for t, o in zip(s["tints"], s["own"])]
    return captions.describe(
        r, deck.names, dict(s, tints=said, say_style=s["say_style"] or (s["style"] == "fluent-3d" and r.random() < 0.2))
    )


def change(r: random.Random, deck: Deck, s: dict):
    """-> the scene after one or two changes, and which (empty if none is possible)"""
    after, changed = dict(s, things=list(s["things"]), tints=list(s["tints"]), own=[None] * len(s["things"])), []
    for what in sorted(set(r.choices(list(CHANGES), list(CHANGES.values()), k=1 if r.random() < 0.75 else 2))):
        thing = s["things"][0]
        if what == "style":
            fine = [
                n
                for k, n in enumerate(data.NAMES)
                if n != s["style"] and deck.trained[thing, k]
            ]
            if s["tints"][0]:
                fine = [n for n in fine if n != "fluent-line" and deck.can_tint(thing, n)]
            if not fine:
                continue
            after.update(style=r.choice(fine), line=None)
        elif what == "ground":
            fine = [g for g in data.COLOURS if data.COLOURS[g] != data.COLOURS[s["ground"] or "white"]]
            after["ground"] = r.choice([g for g in fine if not after["tints"][0] or stands_out(after["tints"][0], g)])
        elif what == "tint":
            tint = draw_tint(r, deck, thing, after["style"], after["ground"], 1.0)
            if tint is None or tint == s["tints"][0]:
                continue
            after["tints"] = [tint]
        elif what == "count":
            after["count"] = r.choice([n for n in (1, 2, 2, 3, 3, 4, 5, 6) if n != s["count"]])
            after.update(kind="count" if after["count"] > 1 else "single", scale=None, place=None)
        else:
            if after["kind"] != "single":
                continue
            after.update(scale=r.choice([x for x in ("small", "big") if x != s["scale"]]), place=None)
        changed.append(what)
    return after, changed


# ---------------------------------------------------------------------------------------------------------------------
# Numbers


def grid_of(n: int, width: float, height: float):
    """-> the centres of n equal cells and their side: as large as possible, the last row in the middle"""
    cell, rows = max((min(width / -(-n // rows), height / rows), -rows) for rows in range(1, n + 1))
    rows, left, at = -rows, n, []
    for row in range(rows):
        here = -(-left // (rows - row))
        left -= here
        at += [
            (width / 2 + (k - (here - 1) / 2) * cell, height / 2 + (row - (rows - 1) / 2) * cell) for k in range(here)
        ]
    return at, cell


def boxes(r: random.Random, s: dict, width: float, height: float) -> list:
    """(x, y, size) in pixels for each thing"""
    short = min(width, height)
    jitter = lambda a: r.uniform(-a, a) * short  # noqa: E731
    if s["kind"] == "single":
        x, y, size, a = 0.5, 0.5, r.uniform(0.76, 0.88), 0.02
        if s["scale"] == "small":
            size = r.uniform(0.3, 0.38)
        elif s["scale"] == "big":
            size, a = r.uniform(0.96, 1.04), 0.01
        elif s["place"]:
            (x, y), size = data.PLACES[s["place"]], r.uniform(0.42, 0.5)
        return [(x * width + jitter(a), y * height + jitter(a), size * short)]
    if s["kind"] == "pair":
        across = s["relation"] == "left" or (s["relation"] == "and" and width >= height)
        at = [(0.26, 0.5), (0.74, 0.5)] if across else [(0.5, 0.26), (0.5, 0.74)]
        room = min(width / 2, height) if across else min(width, height / 2)
        size = r.uniform(0.86, 0.97) * room
        return [(x * width + jitter(0.015), y * height + jitter(0.015), size) for x, y in at]
    at, cell = grid_of(s["count"], width, height)
    size = r.uniform(0.84, 0.94) * cell
    return [(x + jitter(0.01), y + jitter(0.01), size) for x, y in at]


def layout(r: random.Random, deck: Deck, s: dict, bucket: tuple):
    height, width = 16 * bucket[0], 16 * bucket[1]
    places = boxes(r, s, width, height)  # first, so that an edit with an equal r keeps the place
    ground = np.array(data.COLOURS[s["ground"] or "white"], np.float32)
    if s["ground"] not in (None, "white"):
        ground = np.clip(ground + np.array([r.uniform(-5, 5) for _ in range(3)]), 0, 255)
    ink = (-1, -1, -1)
    if s["style"] == "fluent-line":
        ink = data.COLOURS[s["line"] or ("black" if ground @ [0.3, 0.59, 0.11] > 90 else "white")]
    things, tints = (
        list(x) * s["count"] if s["kind"] == "count" else x
        for x in (s["things"][:1] if s["kind"] != "pair" else s["things"], s["tints"])
    )
    row = np.full((SLOTS, 5), -1, np.float32)
    for k, (thing, tint, box) in enumerate(zip(things, tints, places)):
        row[k] = deck.drawing(thing, s["style"]), *box, captions.TINTS.index(tint) if tint else -1
    return row, np.array([ground, ink], np.float32)


# ---------------------------------------------------------------------------------------------------------------------
# Many at once


def make(job):
    """(deck, seed, number, bucket, kind, captions each, tokenizer, length): kind is "plain", "held out" or "edit".
    -> dict of rows, colours, ids, lengths, said; for edits also the rows and colours of the reference"""
    deck, seed, n, bucket, kind, each, tokenizer, length = job
    r, rows, colours, before_rows, before_colours, said, specs = random.Random(seed), [], [], [], [], [], []
    while len(rows) < n:
        if kind == "edit":
            before = draw_scene(r, deck, False, dict(single=0.85, count=0.15))
            after, changed = change(r, deck, before)
            if not changed:
                continue
            here = r.random()
            row, colour = layout(random.Random(here), deck, before, bucket)
            before_rows.append(row)
            before_colours.append(colour)
            said += [captions.instruct(r, deck.names, before, after, changed) for _ in range(each)]
        else:
            after = draw_scene(r, deck, kind == "held out")
            here = r.random()
            said += [say(r, deck, after) for _ in range(each)]
        row, colour = layout(random.Random(here), deck, after, bucket)
        rows.append(row)
        colours.append(colour)
        specs.append(after)
    ids, lengths = data.tokenize(data.load_tokenizer(tokenizer), said, length)
    done = dict(
        rows=np.stack(rows), colours=np.stack(colours), ids=ids.reshape(n, each, -1), lengths=lengths.reshape(n, each)
    )
    if before_rows:
        done.update(before_rows=np.stack(before_rows), before_colours=np.stack(before_colours))
    return dict(done, bucket=bucket, kind=kind, said=said[: 8 * each : each], specs=specs[:2000])


def jobs(
    deck: Deck, seed: int, n: int, kind: str, each: int, tokenizer: str, length: int, chunk: int = 500, shares=None
) -> list:
    """n scenes, shared out among the buckets, as jobs of `make`"""
    found, shares = [], shares or BUCKETS
    total = sum(shares.values())
    for k, (bucket, share) in enumerate(shares.items()):
        left = max(round(n * share / total), 1)
        while left > 0:
            found.append(
                (deck, seed * 1000003 + 1009 * k + 17 * left, min(chunk, left), bucket, kind, each, tokenizer, length)
            )
            left -= chunk
    random.Random(seed).shuffle(found)
    return found
