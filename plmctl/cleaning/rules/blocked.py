"""Decontamination: texts of evaluation sets do not stand in the text of training."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from plmctl.cleaning.rule import Drop, TextRule
from plmctl.cleaning.text_view import TextView
from plmctl.cleaning.word_hashes import WordHashes, find_simple_words, hash_ngrams
from plmctl.core.parts import part_of
from plmctl.core.values import Count, Whole
from plmctl.text.letters import UNSPACED

_UNITS = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")


@part_of("rule")
class BlockedNgrams(TextRule):
    """Overlaps with evaluation sets are cut out, with their surroundings.

    Brown et al., 2020, arXiv:2005.14165, app. C: words without case and signs; 13-grams; 200
    characters on both sides are cut; pieces below 200 characters, and documents in more than 10
    pieces, are dropped. A shorter item is found by its 8-grams; one of fewer words blocks documents
    that are nothing but it.

    Differs: the pieces of a document stay one document, with blank lines between them. An n-gram
    counts however many documents have it.

    Args:
        evaluation: The texts of the evaluation sets.
        ngram: The number of words of an n-gram.
        short: The same for an item with fewer words than `ngram`.
        margin: The characters that are cut on both sides.
        least: The least number of characters of a piece.
        pieces: The largest number of pieces of a document.
    """

    def __init__(
        self,
        *,
        evaluation: Sequence[str],
        ngram: Count = 13,
        short: Count = 8,
        margin: Whole = 200,
        least: Whole = 200,
        pieces: Count = 10,
    ) -> None:
        self._hashes = WordHashes(fold_numbers=False)
        self.margin, self.least, self.pieces = margin, least, pieces
        sizes = (ngram, min(short, ngram))
        found: dict[int, list[np.ndarray]] = {size: [] for size in sizes}
        self._whole: set[bytes] = set()
        for item in evaluation:
            words = self._hashes(item)
            if size := next((size for size in sizes if len(words) >= size), 0):
                found[size].append(hash_ngrams(words, size))
            elif len(words):
                self._whole.add(words.tobytes())
        self._blocked = {
            size: np.unique(np.concatenate(ngrams)) for size, ngrams in found.items() if ngrams
        }
        self._longest = 8 * max(sizes)  # bytes of the hashes of a short item, at most

    def apply(self, view: TextView) -> TextView | Drop:
        if not (self._blocked or self._whole):
            return view
        words = self._hashes(view.text)
        if words.nbytes <= self._longest and words.tobytes() in self._whole:
            return Drop("an item of an evaluation set")
        found = [*self._find(words)]
        if not found:
            return view
        pieces = list(self._cut(view.text, found))
        if len(pieces) > self.pieces:
            return Drop("many pieces around evaluation sets", len(pieces), self.pieces)
        if not pieces:
            return Drop("nothing left around evaluation sets")
        return TextView("\n\n".join(pieces))

    def _find(self, words: np.ndarray) -> Iterator[tuple[int, int]]:
        """(first word, word behind the last) of each blocked n-gram."""
        for size, blocked in self._blocked.items():
            for start in np.flatnonzero(np.isin(hash_ngrams(words, size), blocked)):
                yield int(start), int(start) + size

    def _cut(self, text: str, found: Iterable[tuple[int, int]]) -> Iterator[str]:
        """The pieces of a text between blocked n-grams with their margins."""
        places = locate_words(text)
        spans = sorted(
            (places[first][0] - self.margin, places[end - 1][1] + self.margin)
            for first, end in found
        )
        begin = 0
        for start, end in [*spans, (len(text), len(text))]:
            piece = text[begin : max(begin, start)].strip()
            if piece and len(piece) >= self.least:
                yield piece
            begin = max(begin, end)


def locate_words(text: str) -> list[tuple[int, int]]:
    """Where each word of `find_simple_words` stands in a text: its signs and those of its
    neighbours without a space count as the word.
    """
    places = []
    for unit in _UNITS.finditer(text):
        places += [unit.span()] * len(find_simple_words(unit[0]))
    return places
