"""The texts of `text_attack.json`: what TextAttack makes of 100 texts.

    python -m venv ta && ta/bin/pip install -e . textattack
    PYTHONPATH=. ta/bin/python tests/attack/text_attack.py

The library needs much that plmctl does not, and so an environment of its own. The model is a bag of
words and pairs of words, whose weights follow from their spelling. `test_text_attack.py` attacks
the same texts.

They leave out what is known to differ: words that count the same (of two equal ones TextAttack
takes either, since its sort is not stable), a neighbour of "I" (ours has a capital, too), stop
words with a capital (which ours keeps), and more than two labels (the words have another order).
"""

from __future__ import annotations

import itertools
import json
import random
import re
import zlib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from plmctl.attack.slips import LetterSlips
from plmctl.attack.word_text import WordText
from plmctl.knowledge.word_vectors import Neighbours

STORE = Path(__file__).with_suffix(".json")
STOP_WORDS = ("the", "of", "and", "is")
WORDS = (
    *("film", "movie", "story", "plot", "actor", "scene", "music", "ending", "Hollywood", "humour"),
    *("great", "dull", "moving", "clumsy", "bright", "slow", "tense", "stale", "warm", "odd"),
    *("well-made", "isn't", "it's", "20", "very", "never", "always", "almost", "quite", "hardly"),
    *("we", "watch", "laugh", "forget", "remember", "yawn", "cheer", "admire", "a", "they"),
)
COUNT, LEAST, WIDTH = 8, 0.6, 6  # neighbours of a word, their cosine, numbers of a vector


def make_texts() -> list[str]:
    """100 texts of 4 to 16 words, no word twice in a row."""
    draws = random.Random(20)
    texts = []
    for _ in range(100):
        drawn = draws.choices(WORDS + STOP_WORDS * 3, k=draws.randint(4, 16))
        words = [word for word, _ in itertools.groupby(drawn)]
        marks = draws.choices(["", ",", " --", " ("], weights=[12, 2, 1, 1], k=len(words))
        texts.append(" ".join(word + mark for word, mark in zip(words, marks, strict=True)) + " .")
    return texts


def score(texts: list[str]) -> np.ndarray:
    """[n, 2] from the sums of the weights of words and, less, of two neighbours: no two places of a
    text count the same.
    """
    sums = np.array([_add_up(re.findall(r"[\w'-]+", text)) for text in texts])
    first = np.round(1 / (1 + np.exp(-sums)), 6)
    return np.stack([first, 1 - first], 1)


def _add_up(words: list[str]) -> float:
    pairs = (_weigh(f"{a} {b}") for a, b in itertools.pairwise(words))
    return sum(map(_weigh, words)) + 0.1 * sum(pairs)


def _weigh(word: str) -> float:
    return float(np.random.default_rng(zlib.crc32(word.encode())).normal(scale=0.6))


def make_vectors() -> Neighbours:
    draws = np.random.default_rng(4)
    words = [word.lower() for word in WORDS]
    return Neighbours(words, draws.normal(size=(len(words), WIDTH)).astype(np.float32))


def slip(word: str) -> list[str]:
    """The slips of letters of a word."""
    return LetterSlips(seed=0).propose([(WordText(("", word, ""), (1,)), 0)])[0]


def main() -> None:
    from benchmarks.text_attack import Near, attack_texts, make_attack

    texts, table = make_texts(), make_vectors()
    golds = score(texts).argmax(1).tolist()
    near = Near(table.words, table.unit, COUNT, LEAST)
    how: dict[str, Any] = {"stop_words": STOP_WORDS, "batch_size": 32}
    found: dict[str, Any] = {"textattack": version("textattack")}
    for name, words, width in (
        ("letters", slip, None),
        ("neighbours", near, None),
        ("greedy", slip, 1),
        ("beam", slip, 3),
    ):
        rows = attack_texts(make_attack(score, words, width=width, **how), texts, golds)
        found[name] = [[row["result"], row["queries"], row["text"]] for row in rows]
        print(name, sum(row["result"] == "fooled" for row in rows), "of", len(rows))
    lines = [
        f"{json.dumps(name)}: {json.dumps(own, ensure_ascii=False)}" for name, own in found.items()
    ]
    STORE.write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
