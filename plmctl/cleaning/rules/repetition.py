"""Gopher's rules of repetition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from plmctl.cleaning.rule import Drop, TextRule, find_beyond
from plmctl.cleaning.text_view import TextView
from plmctl.cleaning.word_hashes import hash_ngrams
from plmctl.core.parts import part_of
from plmctl.core.values import Rate


@part_of("rule")
class Repetition(TextRule):
    """Little of a document stands in it twice (Rae et al., 2021, arXiv:2112.11446, table A1).

    Shares are those of lines, of paragraphs, and of the characters of the document. In scripts
    without spaces two characters count as a word.

    Args:
        lines, paragraphs: The largest share of lines, paragraphs, that stand before, too.
        line_characters, paragraph_characters: The largest share of characters in them.
        top_2, top_3, top_4: The largest share of characters in the most frequent n-gram.
        repeated_5, repeated_6, repeated_7, repeated_8, repeated_9, repeated_10: The largest share
            of characters in n-grams that stand before, too; none counts twice.
    """

    def __init__(
        self,
        *,
        lines: Rate | None = 0.3,
        paragraphs: Rate | None = 0.3,
        line_characters: Rate | None = 0.2,
        paragraph_characters: Rate | None = 0.2,
        top_2: Rate | None = 0.2,
        top_3: Rate | None = 0.18,
        top_4: Rate | None = 0.16,
        repeated_5: Rate | None = 0.15,
        repeated_6: Rate | None = 0.14,
        repeated_7: Rate | None = 0.13,
        repeated_8: Rate | None = 0.12,
        repeated_9: Rate | None = 0.11,
        repeated_10: Rate | None = 0.1,
    ) -> None:
        self.lines, self.paragraphs = lines, paragraphs
        self.line_characters, self.paragraph_characters = line_characters, paragraph_characters
        self.top = {2: top_2, 3: top_3, 4: top_4}
        repeated = (repeated_5, repeated_6, repeated_7, repeated_8, repeated_9, repeated_10)
        self.repeated = dict(enumerate(repeated, 5))

    def apply(self, view: TextView) -> TextView | Drop:
        if not view.text:
            return view
        return next(filter(None, self._look(view)), None) or view

    def _look(self, view: TextView) -> Iterator[Drop | None]:
        size = len(view.text)
        for name, pieces, most, most_characters in (
            ("paragraphs", view.paragraphs, self.paragraphs, self.paragraph_characters),
            ("lines", view.raw_lines, self.lines, self.line_characters),
        ):
            count, characters = count_repeated(pieces)
            yield find_beyond(f"repeated {name}", count / len(pieces), most=most)
            what = f"characters of repeated {name}"
            yield find_beyond(what, characters / size, most=most_characters)
        words, (numbers, lengths) = view.words, number_words(view.words)
        units = 1 if view.has_spaces else 2
        for n, most in self.top.items():
            share = find_top(words, numbers, n * units, "" if units > 1 else " ") / size
            yield find_beyond(f"most frequent {n}-gram", share, most=most)
        for n, most in self.repeated.items():
            if most is not None and bound_repeated(numbers, lengths, n * units) > most * size:
                share = count_characters(words, n * units) / size
                yield find_beyond(f"repeated {n}-grams", share, most=most)


def count_repeated(pieces: Sequence[str]) -> tuple[int, int]:
    """(number, characters) of the pieces that stand before, too."""
    counts = Counter(pieces)
    return len(pieces) - len(counts), sum(len(p) * (n - 1) for p, n in counts.items() if n > 1)


def number_words(words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """(a number for each word, [N] uint64; its length, [N]); equal words have equal numbers."""
    table: dict[str, int] = {}
    numbers = np.fromiter((table.setdefault(w, len(table) + 1) for w in words), np.uint64)
    return numbers, np.fromiter(map(len, words), np.int64, len(words))


def find_top(words: Sequence[str], numbers: np.ndarray, n: int, sign: str = " ") -> int:
    """The characters of all occurrences of the most frequent n-gram, the first of several, with
    `sign` between its words; 0 if it occurs once.
    """
    ngrams = hash_ngrams(numbers, n)
    if not len(ngrams):
        return 0
    _, first, counts = np.unique(ngrams, return_index=True, return_counts=True)
    often = counts == counts.max()
    start = int(first[often].min())
    length = len(sign.join(words[start : start + n]))
    return length * int(counts.max()) if counts.max() > 1 else 0


def bound_repeated(numbers: np.ndarray, lengths: np.ndarray, n: int) -> int:
    """No less than `count_characters`, and fast: overlaps count as often as they occur."""
    ngrams = hash_ngrams(numbers, n)
    if not len(ngrams):
        return 0
    again = np.ones(len(ngrams), bool)
    again[np.unique(ngrams, return_index=True)[1]] = False
    ends = np.concatenate([[0], np.cumsum(lengths)])
    starts = np.flatnonzero(again)
    return int((ends[starts + n] - ends[starts]).sum())


def count_characters(words: Sequence[str], n: int) -> int:
    """The characters of the n-grams that stand before, too, from left to right without overlap."""
    seen: set[tuple[str, ...]] = set()
    characters = place = 0
    while place <= len(words) - n:
        ngram = tuple(words[place : place + n])
        if ngram in seen:
            characters += sum(map(len, ngram))
            place += n
        else:
            seen.add(ngram)
            place += 1
    return characters
