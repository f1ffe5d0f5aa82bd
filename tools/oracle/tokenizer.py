"""Writes tests/data/tokenizer for tests/test_tokenizer.c: a small byte-level BPE tokenizer of the same making as Qwen's,
trained here with Hugging Face tokenizers, in both forms (tokenizer.json; vocab.json and merges.txt in separate/), and
golden.jsonl, texts with the ids that library gives them.

    python tools/oracle/tokenizer.py
"""

import json
import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data" / "tokenizer"
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"]
PLAIN = ["<tool_call>", "</tool_call>", "<think>", "</think>", "<think>deep"]  # the last tells longest from first
VOCABULARY = 1000

ENGLISH = """
A photo of a cat sitting on a wooden chair by the window, soft morning light. The painting shows an old lighthouse on a
cliff above the sea; there's a small boat, and it's raining. I'm sure they've seen what we'll do, and you'd say they're
right. Don't. A portrait of a woman with sunglasses, 85mm f/1.4, golden hour, highly detailed, oil on canvas. An
astronaut riding a horse on Mars, watercolour, 4k. The words on the sign say "hello world" in red letters.
def render(scene, width=1024, height=768):\n    return [camera.trace(x, y) for y in range(height) for x in range(width)]
"""
OTHERS = """
Ein großes Gemälde über schöne Vögel an der Küste. Une fenêtre à l'été, déjà près de la forêt. El niño pequeño soñó con
un pingüino. Красная площадь зимой, картина маслом. Ένα παλιό σπίτι δίπλα στη θάλασσα. 一只可爱的猫坐在窗边，水彩画。
桜の木の下で本を読む少女。 한국의 가을 산과 오래된 집. قطة صغيرة على السطح. बिल्ली खिड़की पर बैठी है। ภาพวาดแมวน้อย
"""


def train():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[],
        show_progress=False,
    )
    # The code gives runs of spaces and brackets, the repetition words enough counts to be merged whole.
    corpus = (ENGLISH * 3 + OTHERS * 2).splitlines(keepends=True) + ["\n\n", " \n", "    ", "!!!", "...", "  "] * 20
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in SPECIAL])
    tokenizer.add_tokens([AddedToken(t, normalized=False, special=False) for t in PLAIN])
    return tokenizer


def cases():
    yield ""
    yield from ENGLISH.strip().splitlines()
    yield from OTHERS.strip().splitlines()
    # contractions, in both cases, and what only looks like one; U+017F is a kind of s
    for base in ["it's", "don't", "they're", "we've", "I'm", "we'll", "you'd"]:
        yield from (base, base.upper(), base.title(), base.replace("'", "\u2019"))
    yield from ["'s's't", "'tis", "''s", "O'Reilly's", "rock'n'roll", "'\u017f", "a'\u017fb", "' s", "'x", "it'", "'"]
    # digits and numbers of other kinds
    yield from ["0", "12345", "3.14159", "1,000,000", "x2y3", " 42", "  42", "½ ² Ⅷ ⑨ ٣ ५ 一", "2024-01-31T12:34:56Z"]
    # white space
    for space in [" ", "  ", "   ", "\t", "\t\t", "\n", "\n\n", "\r\n", "\r", " \n", "\n ", " \n \n ", "\u00a0", "\u3000"]:
        yield from (space, "a" + space + "b", space + "end" + space)
    yield from ["\u0085", "a\u2028b\u2029c", "\u2003\u2009x", "\u180ex \u180e y", "\u200bzero\u200dwidth\ufeff", "\x1c\x1d\x1e\x1f"]
    yield from ["a \u180eb", "\x0b\x0c", "tab\tthen  two\n\n\nthree   ", "     indented:\n        more\n"]
    # combining marks: composed, not composed, in the wrong order, Hangul by parts, exclusions, no base
    yield from ["caf\u00e9", "cafe\u0301", "e\u0301\u0323", "e\u0323\u0301", "\u1e69 s\u0323\u0307 s\u0307\u0323", "\u0301 alone"]
    yield from ["\u1112\u1161\u11ab\u1100\u1173\u11af", "\u0958 \ufb2c \u2126 \u212b", "\U0001d15e", "x" + "\u0301\u0323" * 20]
    yield from ["A\u030a\u0327", "\u0928\u093c", "\u0f71\u0f72\u0f74", "\u0041\u0328\u0301", ">\u0338 =\u0338 <\u0338"]
    # emoji, with joiners, skin tones, flags, variation selectors
    yield from ["😀", "👍🏽", "👩‍👩‍👧‍👦", "🇩🇪🇫🇷", "❤️", "1️⃣", "cat 🐱 dog 🐶!", "🏳️‍🌈"]
    # astral letters, private use, the ends of the code space
    yield from ["𝒜𝓑𝔠", "𐍈𐌰", "\ue000", "\U0010ffff", "\ufffd", "\x00", "a\x00b", "\x7f\x80", "𠀀𪚥"]
    # punctuation runs
    yield from ["...", "!!!\n\n", " !?", "a--b", "«quoted»", "«\n", "$5 €6 £7", "#hash @at", "\\n", "{}[]()<>", "…\r\n\r\n"]
    # added tokens alone, inside text, broken, nested, after marks that would compose with them
    yield from [*SPECIAL, *PLAIN]
    yield from ["<|im_start|>user\nA cat<|im_end|>\n", "a<think>b</think>c", "<think>deeper", "<think>dee", "<|im_start|"]
    yield from ["<<think>>", "<|im_<|im_start|>start|>", "<think> \n</think>\n\n", "<think>\u0338", "e<think>\u0301"]
    yield from ["<|IM_START|>", "<think><think>", "<|endoftext|><|endoftext|> x", "< |im_start|>", " <think> "]
    yield from ["x" * 300, "ab" * 200, "é" * 100, " " * 200, " " * 100 + "x", "\n" * 50, "the" * 60, "7" * 40, "!" * 120]


def main():
    (DATA / "separate").mkdir(parents=True, exist_ok=True)
    tokenizer = train()
    whole = json.loads(tokenizer.to_str())
    (DATA / "tokenizer.json").write_text(json.dumps(whole, ensure_ascii=False, separators=(",", ":")) + "\n")
    vocabulary, merges = whole["model"]["vocab"], whole["model"]["merges"]
    (DATA / "separate" / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False, separators=(",", ":")))
    (DATA / "separate" / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))
    added = {token["content"]: token["id"] for token in whole["added_tokens"]}
    described = {str(token["id"]): {k: v for k, v in token.items() if k != "id"} for token in whole["added_tokens"]}
    (DATA / "separate" / "added_tokens.json").write_text(json.dumps(added, indent=0) + "\n")
    config = {"added_tokens_decoder": described, "pad_token": {"content": "<|im_end|>"}}
    (DATA / "separate" / "tokenizer_config.json").write_text(json.dumps(config, indent=0) + "\n")
    (DATA / "tokenizer_config.json").write_text(json.dumps({"pad_token": "<|endoftext|>"}) + "\n")

    seen = list(dict.fromkeys(cases()))
    with open(DATA / "golden.jsonl", "w") as file:
        for text in seen:
            file.write(json.dumps({"text": text, "ids": tokenizer.encode(text).ids}) + "\n")
    print(f"{len(vocabulary)} tokens, {len(merges)} merges, {len(added)} added tokens, {len(seen)} golden cases")


if __name__ == "__main__":
    main()
