"""Pieces by a list of merges in which `</w>` ends the last piece of a word (Sennrich et al., 2016,
arXiv:1508.07909, sec. 3.2).
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import models

LAST = "</w>"
UNKNOWN = "\uffff"  # a letter that the list of merges lacks


class SuffixedPieces:
    """The pieces of a word.

    Args:
        merges: The lines of a list of merges; those of fewer than two parts are left out, and what
            follows the two is a count.
        known: Further pieces, spelled as in the list.
    """

    def __init__(self, merges: Iterable[str], known: Iterable[str]) -> None:
        parts = [line.split() for line in merges]
        pairs = [(pair[0], pair[1]) for pair in parts if len(pair) in (2, 3)]
        merged = [part for left, right in pairs for part in (left, right, left + right)]
        pieces = dict.fromkeys([UNKNOWN, *known, *merged])
        self._pieces = models.BPE(
            {piece: number for number, piece in enumerate(pieces)},
            pairs,
            unk_token=UNKNOWN,
            end_of_word_suffix=LAST,
        )

    def cut(self, word: str) -> list[tuple[str, int]]:
        """(piece, letters of it) of a word; the last piece ends with `</w>`, unless it is
        unknown.
        """
        names = [token.value for token in self._pieces.tokenize(word)]
        sizes = [1 if name == UNKNOWN else len(name.removesuffix(LAST)) for name in names]
        return list(zip(names, sizes, strict=True))
