"""Unigram and BPE by sentencepiece (Kudo and Richardson, 2018, arXiv:1808.06226)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sentencepiece

from plmctl.errors import DataError
from plmctl.text import wire
from plmctl.text.backend import Cut, Span, at_spaces, never

FILE = "sentencepiece.model"


class SentencePiece:
    """A sentencepiece model. Its control symbols have ids but never match text."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        try:
            self._processor: Any = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise DataError("not a sentencepiece model, or a damaged one", file=FILE, fix="copy or train it again") from error
        count = self._processor.get_piece_size()
        self.tokens: list[str] = [self._processor.id_to_piece(i) for i in range(count)]
        kinds = self._processor
        self.special = [t for i, t in enumerate(self.tokens) if kinds.is_control(i) or kinds.is_unused(i)]
        self.unknown: str = self.tokens[kinds.unk_id()]
        self.cut: Cut = at_spaces if self._words_stand_alone() else never

    @property
    def kind(self) -> str:
        """`bpe` or `unigram`, by TrainerSpec.model_type (sentencepiece_model.proto)."""
        trainer = dict(wire.fields(self.model)).get(2, b"")
        assert isinstance(trainer, bytes)
        model_type = dict(wire.fields(trainer)).get(3, 1)
        names: dict[Any, str] = {1: "unigram", 2: "bpe"}
        if model_type not in names:
            raise DataError("a sentencepiece model of type word or char is not supported", file=FILE, fix="tokenizer=char")
        return names[model_type]

    @property
    def charsmap(self) -> bytes:
        """The compiled normalisation rules (NormalizerSpec.precompiled_charsmap)."""
        normalizer = dict(wire.fields(self.model)).get(3, b"")
        assert isinstance(normalizer, bytes)
        found = dict(wire.fields(normalizer)).get(2, b"")
        assert isinstance(found, bytes)
        return found

    def scores(self) -> list[float]:
        return [self._processor.get_score(i) for i in range(len(self.tokens))]

    @property
    def byte_fallback(self) -> bool:
        return any(self._processor.is_byte(i) for i in range(len(self.tokens)))

    def encode(self, text: str) -> list[int]:
        return self._processor.encode(text)

    def encode_offsets(self, text: str) -> tuple[list[int], list[Span]]:
        proto = self._processor.encode(text, out_type="serialized_proto")
        places = _character_places(text)
        ids, names, spans = [], [], []
        for number, value in wire.fields(proto):
            if number == 2:  # SentencePieceText.pieces: 1 piece, 2 id, 4 begin, 5 end (in bytes)
                assert isinstance(value, bytes)
                piece: dict[int, Any] = dict(wire.fields(value))
                ids.append(piece.get(2, 0))
                names.append(piece[1])
                spans.append((places[piece.get(4, 0)], places[piece.get(5, 0)]))
        for i in range(len(spans) - 2, -1, -1):  # of one character's several pieces only the last has a width: give it to all
            (start, end), following = spans[i], spans[i + 1]
            if start == end == following[0] and names[i] != "▁".encode():
                spans[i] = following
        return ids, [_trim(text, span) for span in spans]

    def decode(self, ids: Sequence[int]) -> str:
        return self._processor.decode(list(ids))

    def files(self) -> dict[str, bytes]:
        return {FILE: self.model}

    def _words_stand_alone(self) -> bool:
        """Whether words have the same pieces alone as in a line (true unless the model keeps or joins spaces)."""
        probe = self._processor.encode("a")
        return self._processor.encode(" a  a ") == probe * 2 and not any("▁" in token[1:].lstrip("▁") for token in self.tokens)


def _character_places(text: str) -> list[int] | range:
    """Byte offset in UTF-8 -> character offset."""
    if text.isascii():
        return range(len(text) + 1)
    places: list[int] = []
    for place, character in enumerate(text):
        places += [place] * len(character.encode("utf-8", "surrogatepass"))
    return [*places, len(text)]


def _trim(text: str, span: Span) -> Span:
    start, end = span
    while start < end and text[start].isspace():
        start += 1
    return start, end
