"""Captions of the second edition: what people call a thing, and the sentences around it.

Lazuli reads synonyms, characters, fillers and unknown words as names or as nothing (words.txt) before the model sees a
prompt, so most captions have plain names. The other ways are rare, for programs that give a prompt as it was typed: a
thing is called by a word of SYNONYMS and NOUNS (words.py), by any of its keywords, or by its character. A keyword of many
things is said less often of each ("animal" may mean any animal). Fillers (cute, 8k, a photo of) change nothing, and
neither do unknown words: random syllables, and the words of unknown.txt, which name no thing.
"""

import pathlib
import random
import re

import data
import words

ADJECTIVES = """cute adorable lovely beautiful gorgeous pretty nice cool awesome amazing stunning epic funny fancy wonderful
fantastic great perfect majestic magical simple minimalist realistic detailed happy friendly fresh young old""".split()
LEADS = """a photo of|a photo of|photo of|a picture of|picture of|an image of|image of|a drawing of|
an illustration of|a painting of|a render of|a realistic photo of|a close-up of|a portrait of|
an icon of|draw|draw me|please draw|paint|paint me|show me|make|make me|create|generate|give me|
i want|i would like""".replace(
    "\n", ""
).split(
    "|"
)
TAGS = """8k|4k|hd|highly detailed|very detailed|best quality|high quality|masterpiece|digital art|
concept art|cinematic|studio lighting|soft lighting|trending on artstation|sharp focus|
award winning|professional|high resolution|octane render|photorealistic""".replace(
    "\n", ""
).split(
    "|"
)
NUMBERS = {
    2: ["two", "two", "2", "a pair of", "a couple of"],
    3: ["three", "three", "3"],
    4: ["four", "four", "4"],
    5: ["five", "five", "5"],
    6: ["six", "six", "6", "half a dozen"],
}
SMALL, BIG = ["small", "little", "tiny"], ["big", "large", "huge"]
TINTS = [
    "red",
    "orange",
    "yellow",
    "green",
    "blue",
    "purple",
    "pink",
    "teal",
    "brown",
    "black",
    "white",
    "grey",
]  # of things
SAID_TINTS = dict(purple=["purple", "purple", "violet"], grey=["grey", "gray"], teal=["teal", "turquoise"])
UNKNOWN = pathlib.Path(__file__).with_name("unknown.txt").read_text().split()


class Names:
    """How each thing may be called: ways[thing] = [(word, weight)], and its character."""

    def __init__(self, rows: list):
        known = data.Words(rows)
        self.names, self.other = known.names, known.other
        often = {}
        for keywords in known.keywords:
            for k in keywords:
                often[k] = often.get(k, 0) + 1
        synonyms = {}
        for line in words.SYNONYMS:
            name, said = line.split(" = ")
            synonyms.setdefault(name, []).extend(words.split(said))
        nouns, self.ways, self.character, self.everyday = set(words.NOUNS), [], [], []
        for row, name, other in zip(rows, known.names, known.other):
            common = synonyms.get(name, []) + [w for w in other if w in nouns]
            self.everyday.append(bool(common) or " " not in name)  # what people ask for most
            ways = {name: 8.0}
            for w in common:
                ways[w] = ways.get(w, 0) + 1.2 / len(common)
            for k in row["keywords"]:
                if re.fullmatch(r"[a-z0-9][a-z0-9 '-]{1,23}", k):
                    ways[k] = ways.get(k, 0) + 0.4 / len(row["keywords"]) / often[k] ** 0.7
            self.ways.append((list(ways), list(ways.values())))
            self.character.append("".join(chr(int(c, 16)) for c in row["codepoints"].split("-")))

    def call(self, r: random.Random, thing: int, coloured: bool) -> str:
        """coloured: a colour is said with the word, so that a colour in the name would contradict it"""
        if r.random() < 0.02:
            return r.choice([self.character[thing], self.character[thing].replace("\ufe0f", "")])
        word = r.choices(*self.ways[thing])[0]
        return plain(word) if coloured else word


def plain(word: str) -> str:
    """Without a colour: "red apple" -> "apple" """
    kept = [w for w in word.split(" ") if w not in data.COLOURS and w != "light"]
    return " ".join(kept) or word


def is_character(word: str) -> bool:
    return not any(c.isascii() and c.isalnum() for c in word)


def plural(word: str) -> str:
    return word if is_character(word) else data.plural(word)


def noun(r: random.Random, adjectives: str, word: str) -> str:
    """With an article, most of the time"""
    if is_character(word):
        return r.choice([f"a {adjectives} {word}".replace("  ", " "), f"{adjectives} {word}".strip()])
    return data.with_article(word, r, adjectives)


def nonsense(r: random.Random) -> str:
    if r.random() < 0.7:
        return r.choice(UNKNOWN)
    part = (
        lambda: r.choice("bcdfghjklmnprstvwz") + r.choice("aeiou") + r.choice(["", "", "n", "r", "l", "x"])
    )  # noqa: E731
    return "".join(part() for _ in range(r.choice([2, 2, 3])))


def unknown_tail(r: random.Random) -> str:
    u = [nonsense(r) for _ in range(3)]
    return r.choice(
        [
            f" with a {u[0]}",
            f" in the {u[0]} {u[1]}",
            f" {u[0]} {u[1]}",
            f", {u[0]}",
            f", {u[0]}, {u[1]}",
            f" by {u[0]}",
            f" {u[0]} the {u[1]}",
            f" of {u[0]}",
            f" from {u[0]} {u[1]}",
            f" at {u[0]}",
            f" {u[0]}ing {u[1]}",
            f" in the style of {u[0]}",
            f" that {u[0]} {u[1]} {u[2]}",
        ]
    )


def said_tint(r: random.Random, tint: str) -> str:
    return r.choice(SAID_TINTS.get(tint, [tint]))


def said_style(r: random.Random, style: str) -> str:
    return r.choice(data.STYLES[style][1])


def on_ground(r: random.Random, ground: str) -> str:
    a = "an" if ground[0] in "aeiou" else "a"
    return r.choice(
        [
            f" on {a} {ground} background",
            f" on {a} {ground} background",
            f" on {ground}",
            f", {ground} background",
            f" with {a} {ground} background",
        ]
    )


def in_style(r: random.Random, style: str, line: str | None) -> str:
    word, colour = said_style(r, style), f"{line} " if line else ""
    return r.choice(
        [f" in {colour}{word} style", f" in {colour}{word} style", f", {colour}{word} style", f" {colour}{word} style"]
    )


def describe(r: random.Random, names: Names, s: dict) -> str:
    """One of the many ways to say the scene s (scenes.py)."""
    front = []
    lead = r.choice(LEADS) + " " if r.random() < 0.03 else ""
    if r.random() < 0.04:
        front.append(r.choice(ADJECTIVES) if r.random() < 0.75 else "very " + r.choice(ADJECTIVES))
    elif r.random() < 0.015:
        front.append(nonsense(r))
    if s["scale"]:
        front.append(r.choice(SMALL if s["scale"] == "small" else BIG))
    style_said = s["say_style"]
    tail = []
    if style_said and s["kind"] != "pair" and not s["line"] and r.random() < 0.25:
        word = said_style(r, s["style"])
        if word in ("line", "outline") and not lead:
            lead = r.choice(["a ", ""]) + f"{word} drawing of "
        elif not lead and r.random() < 0.3:
            lead = r.choice(["a ", ""]) + f"{word} " + r.choice(["picture of ", "drawing of ", "emoji of "])
        else:
            front.append(word)
    elif style_said:
        tail.append(in_style(r, s["style"], s["line"]))
    tints = [said_tint(r, t) if t else "" for t in s["tints"]]
    calls = [names.call(r, t, bool(c)) for t, c in zip(s["things"], tints)]
    if s["kind"] == "count":
        n = s["count"]
        if is_character(calls[0]) and n <= 3 and not tints[0] and r.random() < 0.5:
            body = calls[0] * n
        else:
            body = " ".join([r.choice(NUMBERS[n])] + front + [tints[0], plural(calls[0])])
    elif s["kind"] == "pair":
        a, b = (noun(r, c, w) for c, w in zip(tints, calls))
        body = {
            "left": [
                f"{a} left of {b}",
                f"{a} to the left of {b}",
                f"{b} right of {a}",
                f"{a} on the left and {b} on the right",
            ],
            "above": [f"{a} above {b}", f"{b} below {a}", f"{a} over {b}", f"{b} under {a}"],
            "and": [f"{a} and {b}", f"{a} and {b}", f"{a} next to {b}", f"{a} beside {b}", f"{a} with {b}"],
        }[s["relation"]]
        body = r.choice(body)
    else:
        body = noun(r, " ".join(front + ([tints[0]] if tints[0] else [])), calls[0])
    text = re.sub(" +", " ", lead + body)
    if s["place"]:
        text += " " + s["place"]
    if s["kind"] != "pair" and r.random() < 0.025:
        text += unknown_tail(r)
    if s["ground"]:
        tail.append(on_ground(r, s["ground"]))
    if len(tail) == 2 and r.random() < 0.35:
        tail.reverse()
    text += "".join(tail)
    if r.random() < 0.025:
        text += ", " + ", ".join(r.sample(TAGS, r.choice([1, 1, 2])))
    if r.random() < 0.04:
        text = text[0].upper() + text[1:]
    return text + ("." if r.random() < 0.04 else "")


def instruct(r: random.Random, names: Names, before: dict, after: dict, changed: list) -> str:
    """What to say with a picture of `before` as the reference, to get `after`."""
    if r.random() < 0.15:
        return describe(r, names, dict(after, say_style=True))
    it = r.choice(["it", "it", "it", "this", f"the {names.call(r, after['things'][0], True)}"])
    parts = []
    for what in changed:
        if what == "style":
            w = said_style(r, after["style"])
            some = [
                f"in {w} style",
                f"in {w} style",
                f"in {w} style",
                f"as a {w} drawing",
                f"redraw {it} in {w} style",
                f"turn {it} into a {w} picture",
            ]
            if w in ("cartoon", "line"):
                some += [f"turn {it} into a {w}", f"make {it} a {w} drawing"]
        elif what == "ground":
            g = after["ground"]
            a = "an" if g[0] in "aeiou" else "a"
            some = [
                f"on {a} {g} background",
                f"on {a} {g} background",
                f"on {g}",
                f"with {a} {g} background",
                f"make the background {g}",
            ]
            some += [f"change the background to {g}", f"put {it} on {a} {g} background", f"the same on {g}"]
        elif what == "tint":
            c = said_tint(r, after["tints"][0])
            some = [
                f"make {it} {c}",
                f"make {it} {c}",
                f"in {c}",
                f"paint {it} {c}",
                f"change its colour to {c}",
                f"a {c} one",
                f"the same in {c}",
            ]
        elif what == "count":
            n = after["count"]
            if n == 1:
                some = ["one of them", "just one of them", "only one", "make it one"]
            else:
                w = r.choice(NUMBERS[n][:3])
                some = [f"{w} of them", f"{w} of them", f"make it {w}", f"{w} of these"]
                if before["count"] < n:
                    some.append(f"add {['', 'one', 'two', 'three', 'four', 'five'][n - before['count']]} more")
        else:
            w = r.choice(SMALL if after["scale"] == "small" else BIG)
            some = [
                f"make {it} {w}",
                f"a {w} one",
                f"make {it} " + ("smaller" if after["scale"] == "small" else "bigger"),
            ]
        parts.append(r.choice(some))
    text = r.choice([" ", ", ", " and "]).join(parts)
    if r.random() < 0.05:
        text = r.choice(["please ", "now "]) + text
    return text[0].upper() + text[1:] if r.random() < 0.08 else text
