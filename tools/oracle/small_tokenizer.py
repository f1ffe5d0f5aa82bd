#!/usr/bin/env python3
"""The part of Qwen3's tokenizer that its golden texts need: tests/data/qwen3-tokenizer.

    python3 tools/oracle/small_tokenizer.py ../shared/data/qwen3-tokenizer

The whole one (151,643 tokens, 5 MB) is too large for this repository. A merge that is never applied to a text does not
change its ids, so the tokens of the golden ids, and the merges that make them from bytes, give the same ids for the
same texts. Ids, the order of merges and all settings are the published ones.
"""

import json
import pathlib
import shutil
import sys

GOLDEN = ("golden.jsonl", "template.jsonl", "template_qwen_image.jsonl")
DATA = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "qwen3-tokenizer"


def merges_of(token: str, rank: dict[tuple[str, str], int], used: set[tuple[str, str]]) -> None:
    """Makes a token from its bytes as BPE does, and notes the merges."""
    parts = list(token)
    while len(parts) > 1:
        at = min(range(len(parts) - 1), key=lambda i: rank.get((parts[i], parts[i + 1]), len(rank)))
        pair = (parts[at], parts[at + 1])
        assert pair in rank, f"{token!r} is not made by merges"
        used.add(pair)
        parts[at:at + 2] = ["".join(pair)]


def dump(value, path: pathlib.Path) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":"), indent=None) + "\n", encoding="utf-8")


def main(source: pathlib.Path) -> None:
    DATA.mkdir(parents=True, exist_ok=True)
    whole = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary, merges = whole["model"]["vocab"], [tuple(m) for m in whole["model"]["merges"]]
    rank, token_of = {m: i for i, m in enumerate(merges)}, {i: t for t, i in vocabulary.items()}

    ids = set()
    for name in GOLDEN:
        shutil.copyfile(source / name, DATA / name)
        for line in (source / name).read_text(encoding="utf-8").splitlines():
            ids.update(json.loads(line)["ids"])
    used = set()
    for token in [token_of[i] for i in sorted(ids) if i in token_of]:
        merges_of(token, rank, used)

    kept = {t for t in vocabulary if len(t) == 1} | {"".join(m) for m in used}
    whole["model"]["vocab"] = {t: i for t, i in vocabulary.items() if t in kept}
    whole["model"]["merges"] = [list(m) for m in merges if m in used]
    dump(whole, DATA / "tokenizer.json")
    dump(whole["model"]["vocab"], DATA / "vocab.json")
    lines = ["#version: 0.2", *(" ".join(m) for m in merges if m in used)]
    (DATA / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name in "tokenizer_config.json", "LICENSE":
        shutil.copyfile(source / name, DATA / name)
    print(f"{len(kept)} of {len(vocabulary)} tokens, {len(used)} of {len(merges)} merges")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
