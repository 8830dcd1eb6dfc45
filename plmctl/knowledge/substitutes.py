"""Rare words that may stand for frequent ones: synonyms of a lexicon, and misspellings (Schick and
Schütze, 2020, sec. 4.2).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from plmctl.core.errors import DataError
from plmctl.knowledge.words import plain_words
from plmctl.text.inputs import read_lines
from plmctl.text.letters import compose

SYNONYM, MISSPELLING = "synonym", "misspelling"


@dataclass(frozen=True)
class Substitute:
    """A rare word, where it comes from, and how often it stands in the corpus."""

    word: str
    kind: str
    count: int


Substitutes = Mapping[str, tuple[Substitute, ...]]  # substitutes of each frequent word


def find_synonyms(
    pairs: Iterable[tuple[str, str]], counts: Mapping[str, int], *, least: int, below: int
) -> dict[str, list[Substitute]]:
    """For each word that stands `below` times or more, its synonyms that stand `least` times or
    more, but less than `below`.

    Args:
        pairs: The pairs of synonyms, in any order; pairs with several words are passed over.
        counts: The counts of words in the corpus that contexts come from.
    """
    found: dict[str, list[Substitute]] = {}
    for pair in pairs:
        for word, other in (pair, pair[::-1]):
            rare, frequent = counts.get(other, 0), counts.get(word, 0)
            single = plain_words().fullmatch(other) and plain_words().fullmatch(word)
            if single and least <= rare < below <= frequent:
                found.setdefault(word, []).append(Substitute(other, SYNONYM, rare))
    return {word: sorted(set(own), key=lambda s: s.word) for word, own in sorted(found.items())}


def misspell(
    word: str, count: int, known: Collection[str], draws: np.random.Generator
) -> list[str]:
    """Up to `count` words that differ from a word by one slip: two letters swapped, one left out,
    or one typed twice; none of `known`.
    """
    swapped = [word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in range(len(word) - 1)]
    dropped = [word[:i] + word[i + 1 :] for i in range(1, len(word))]
    doubled = [word[: i + 1] + word[i:] for i in range(len(word))]
    slips = sorted({*swapped, *dropped, *doubled} - {word} - set(known))
    chosen = draws.permutation(len(slips))[:count]
    return [slips[number] for number in sorted(chosen.tolist())]


def read_substitutes(file: Path, counts: Mapping[str, int]) -> dict[str, tuple[Substitute, ...]]:
    """A table of frequent words: word, substitute and optionally its kind in each line, with tabs
    between.

    Raises:
        DataError: for a line with fewer columns.
    """
    found: dict[str, list[Substitute]] = {}
    for number, line in read_lines(file, cut=False):
        word, *cells = line.split("\t")
        if not word or not cells or not cells[0]:
            message = f"'{line[:60]}' is no word with its substitute"
            raise DataError(message, file=file, line=number, fix="word<tab>substitute<tab>kind")
        kind = cells[1] if len(cells) > 1 else SYNONYM
        found.setdefault(compose(word.lower()), []).append(
            Substitute(cells[0], kind, counts.get(cells[0], 0))
        )
    return {word: tuple(own) for word, own in found.items()}


def spell_substitutes(substitutes: Substitutes) -> str:
    """The table that `read_substitutes` reads."""
    return "".join(
        f"{word}\t{other.word}\t{other.kind}\t{other.count}\n"
        for word, own in substitutes.items()
        for other in own
    )
