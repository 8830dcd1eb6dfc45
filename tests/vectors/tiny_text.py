"""A small text as numbers of words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from plmctl.vectors.corpus import WordCorpus, count_corpus


def make_corpus(sentences: Sequence[str], folder: Path, least: int = 1) -> WordCorpus:
    return count_corpus(sentences, folder, least=least, split="spaces", lowercase=False)


def draw_sentences(groups: int = 4, members: int = 6, count: int = 800) -> list[str]:
    """Sentences of one group of words each: words of a group share their contexts."""
    draw = np.random.default_rng(0)
    sentences = []
    for _ in range(count):
        group = draw.integers(groups)
        own = draw.integers(members, size=8)
        sentences.append(" ".join(f"g{group}w{n}" for n in own))
    return sentences


def measure_purity(words: Sequence[str], table: np.ndarray) -> float:
    """How many of the nearest neighbours are of the same group."""
    unit = table / np.linalg.norm(table, axis=1, keepdims=True)
    alike = unit @ unit.T
    np.fill_diagonal(alike, -2)
    return float(np.mean([words[n][:2] == words[m][:2] for n, m in enumerate(alike.argmax(1))]))
