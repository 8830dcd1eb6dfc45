"""Tokenizers whose vocab.json numbers the pieces that other files cut.

M2M-100: one sentencepiece model; tokens of languages, `__en__`, follow the pieces (Fan et al.,
2021, arXiv:2010.11125). Marian: one model cuts sources and another one targets; `>>fra<<` at the
beginning of a source is one token (Tiedemann and Thottingal, 2020: OPUS-MT). Blenderbot-small: see
`dialogue_words.py`; XLM and FlauBERT: see `moses_words.py`. (Released code.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from plmctl.text.added import check_ids
from plmctl.text.backend import Cut, Span
from plmctl.text.dialogue_words import DialogueWords
from plmctl.text.moses_words import RULES, MosesWords
from plmctl.text.sentence_piece import SentencePiece

NUMBERS, MERGES, SOURCE, TARGET = "vocab.json", "merges.txt", "source.spm", "target.spm"
PARTS = (SOURCE, TARGET, MERGES, RULES)  # the files that cut a text, as plmctl stores them
LANGUAGE = re.compile(r"__[a-z]+__")  # M2M-100's tokens of languages
_CODE = re.compile(r">>.*?<<", re.DOTALL)  # Marian's


class Cutter(Protocol):
    """The part that cuts a text into pieces."""

    cut: Cut

    @property
    def kind(self) -> str:
        """The kind of tokenizer, by which words are found."""
        ...

    def cut_pieces(self, text: str) -> tuple[list[str], list[Span]]:
        """The pieces of `text`, and for each its span of characters."""
        ...

    def join(self, pieces: Sequence[str], whole: Collection[str] = ()) -> str:
        """The text of pieces; those in `whole` stand for no text."""
        ...

    def normalize(self, text: str) -> str:
        """`text` as it is before it is cut."""
        ...


class NumberedBackend:
    """A `Backend`: pieces by a sentencepiece model or a list of merges, ids by vocab.json. A piece
    that it lacks is unknown.

    Args:
        numbers: The ids of the tokens.
        parts: The contents of the files that cut texts, by the names in `PARTS`.
        unknown: The token of unknown pieces.
    """

    def __init__(
        self, numbers: Mapping[str, int], parts: Mapping[str, bytes], unknown: str
    ) -> None:
        check_ids(numbers.values())
        self.tokens = [f"[unused id {n}]" for n in range(max(numbers.values(), default=-1) + 1)]
        for token, number in numbers.items():
            self.tokens[number] = token
        self.numbers, self.parts, self.unknown = dict(numbers), dict(parts), unknown
        self._cutter, self._other = _open_cutters(parts, numbers)
        self.cut: Cut = self._cut_safely
        # M2M-100's languages
        self.spoken = [t for t in self.tokens if set(parts) == {SOURCE} and LANGUAGE.fullmatch(t)]
        self.special = list(self.spoken)
        self.reserve(())

    @property
    def kind(self) -> str:
        """The kind of tokenizer by the rule that cuts."""
        return self._cutter.kind

    @property
    def of_targets(self) -> NumberedBackend | None:
        """The backend that cuts what a model writes, where it is another one."""
        if self._other is None:
            return None
        names = {SOURCE: TARGET, TARGET: SOURCE}
        parts = {names[name]: content for name, content in self.parts.items()}
        return NumberedBackend(self.numbers, parts, self.unknown)

    def reserve(self, tokens: Collection[str]) -> None:
        """Let none of these tokens stand for text either."""
        self.special = list(dict.fromkeys([*self.special, *tokens]))
        never = {*self.special, self.unknown}
        self._ids = {token: n for token, n in self.numbers.items() if token not in never}

    def encode(self, text: str) -> list[int]:
        """The ids of `text`."""
        return self.encode_offsets(text)[0]

    def encode_offsets(self, text: str) -> tuple[list[int], list[Span]]:
        """Ids, and for each the span of characters of `text` that it covers."""
        code = _CODE.match(text) if self._other else None
        first = code.end() if code else 0
        pieces, spans = self._cutter.cut_pieces(text[first:])
        if code:
            pieces = [code[0], *pieces]
            spans = [(0, first), *((start + first, end + first) for start, end in spans)]
        unknown = self.numbers[self.unknown]
        return [self._ids.get(piece, unknown) for piece in pieces], spans

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; tokens that stand for no text are spelled out."""
        pieces = [self.tokens[number] for number in ids]
        return (self._other or self._cutter).join(pieces, {*self.special, self.unknown})

    def normalize(self, text: str) -> str:
        """`text` as it is before it is cut."""
        return self._cutter.normalize(text)

    def files(self) -> dict[str, bytes]:
        """vocab.json, and the files that cut texts."""
        return {NUMBERS: json.dumps(self.numbers, ensure_ascii=False).encode(), **self.parts}

    def _cut_safely(self, text: str) -> list[str] | None:
        """The parts that may be encoded alone; a code of a language may have spaces."""
        return None if ">>" in text else self._cutter.cut(text)


def _open_cutters(
    parts: Mapping[str, bytes], tokens: Collection[str]
) -> tuple[Cutter, Cutter | None]:
    """The cutter of sources, and that of targets where it is another one."""
    if RULES in parts:
        return MosesWords(parts[MERGES].decode(), parts[RULES], tokens), None
    if MERGES in parts:
        return DialogueWords(parts[MERGES].decode(), tokens), None
    other = SentencePiece(parts[TARGET]) if TARGET in parts else None
    return SentencePiece(parts[SOURCE]), other
