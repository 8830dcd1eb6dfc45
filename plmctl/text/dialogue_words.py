"""Blenderbot-small's pieces: BPE of lower-case words, whose pieces end with `@@` but for the last
(Roller et al., 2021, arXiv:2004.13637; released code).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from plmctl.text.backend import Cut, Span, cut_at_spaces
from plmctl.text.suffixed import LAST, UNKNOWN, SuffixedPieces

JOINED = "@@"  # the end of a piece that another one of its word follows
NEW_LINE = "__newln__"  # the word for the end of a line
_WORD = re.compile(r"\S+\n?")
# an apostrophe stands alone, other punctuation begins a word
_PART = re.compile(r"'|[.,!?()]?[^.,!?()'\n]+|[.,!?()]|\n")


class DialogueWords:
    """The pieces of a text by Blenderbot-small's rules.

    Args:
        merges: The content of its merges.txt; the first line is a remark.
        tokens: The tokens of its vocab.json.
    """

    kind = "wordpiece"

    def __init__(self, merges: str, tokens: Iterable[str]) -> None:
        self.cut: Cut = cut_at_spaces
        known = [
            token.removesuffix(JOINED) if token.endswith(JOINED) else f"{token}{LAST}"
            for token in tokens
        ]
        self._pieces = SuffixedPieces(merges.split("\n")[1:-1], known)

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
        own = self._pieces.cut(word)
        ends = [JOINED] * (len(own) - 1) + [""]
        return [
            (name if name == UNKNOWN else name.removesuffix(LAST) + end, size)
            for (name, size), end in zip(own, ends, strict=True)
        ]
