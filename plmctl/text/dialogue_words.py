"""Blenderbot-small's pieces: BPE of lower-case words, whose pieces end with `@@` but for the last
(Roller et al., 2021, arXiv:2004.13637; released code).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from tokenizers import models

from plmctl.text.backend import Cut, Span, cut_at_spaces

JOINED = "@@"  # the end of a piece that another one of its word follows
NEW_LINE = "__newln__"  # the word for the end of a line
_LAST = "</w>"  # the end of the last piece of a word, in the list of merges
_UNKNOWN = "\uffff"  # a letter that the list of merges lacks
_WORD = re.compile(r"\S+\n?")
# an apostrophe stands alone, other punctuation begins a word
_PART = re.compile(r"'|[.,!?()]?[^.,!?()'\n]+|[.,!?()]|\n")


class DialogueWords:
    """The pieces of a text by Blenderbot-small's rules.

    Args:
        merges: The content of its merges.txt; the first line is a remark.
        tokens: The tokens of its vocab.json.
    """

    def __init__(self, merges: str, tokens: Iterable[str]) -> None:
        self.cut: Cut = cut_at_spaces
        lines = merges.split("\n")[1:-1]
        pairs = [(pair[0], pair[1]) for line in lines if len(pair := line.split()) == 2]
        known = [
            token.removesuffix(JOINED) if token.endswith(JOINED) else f"{token}{_LAST}"
            for token in tokens
        ]
        merged = [part for left, right in pairs for part in (left, right, left + right)]
        pieces = dict.fromkeys([_UNKNOWN, *known, *merged])
        self._pieces = models.BPE(
            {piece: number for number, piece in enumerate(pieces)},
            pairs,
            unk_token=_UNKNOWN,
            end_of_word_suffix=_LAST,
        )

    def cut_pieces(self, text: str) -> tuple[list[str], list[Span]]:
        """The pieces of `text`, and the span of each."""
        pieces: list[str] = []
        spans: list[Span] = []
        for word in _WORD.finditer(text):
            for part in _PART.finditer(word[0]):
                if part[0] == "\n" and word[0].endswith("'\n"):
                    continue  # published code joins the space behind the apostrophe with it
                start = word.start() + part.start()
                own = self._cut_word(NEW_LINE if part[0] == "\n" else part[0].lower())
                exact = sum(size for _, size in own) == len(part[0])
                for piece, size in own:
                    pieces.append(piece)
                    spans.append((start, start + size if exact else word.start() + part.end()))
                    start += size * exact
        return pieces, spans

    def join(self, pieces: Sequence[str], whole: Collection[str] = ()) -> str:
        """The text of pieces, which the last piece of a word ends."""
        return " ".join(pieces).replace(f"{JOINED} ", "").strip()

    def normalize(self, text: str) -> str:
        """`text` in lower case."""
        return text.lower()

    def _cut_word(self, word: str) -> list[tuple[str, int]]:
        """(piece, letters of it) of a word."""
        tokens = self._pieces.tokenize(word)
        names = [token.value.removesuffix(_LAST) for token in tokens]
        sizes = [1 if name == _UNKNOWN else len(name) for name in names]
        ends = [JOINED] * (len(names) - 1) + [""]
        return [
            (name if name == _UNKNOWN else name + end, size)
            for name, end, size in zip(names, ends, sizes, strict=True)
        ]
