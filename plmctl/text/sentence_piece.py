"""Unigram and BPE by sentencepiece (Kudo and Richardson, 2018, arXiv:1808.06226)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby
from typing import Any

import sentencepiece
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

from plmctl.core.errors import DataError
from plmctl.text.backend import Cut, Span, cut_at_spaces, cut_nowhere
from plmctl.text.protobuf import parse_fields, replace_fields
from plmctl.text.roles import Roles
from plmctl.text.rust import Rust, finish
from plmctl.text.trial import try_out

FILE = "sentencepiece.model"  # trained here
GIVEN = "spiece.model"  # trained elsewhere: only its own library decides its ids
CONTROL = b"\x18\x03"  # ModelProto.SentencePiece.type: of a symbol that never matches text


class SentencePiece:
    """A sentencepiece model. Its control symbols have ids but never match text; `added` tokens
    follow its own, as in T5.

    A unigram model trained here (with `special`) has a twin in `tokenizers`, which is exported. If
    two segmentations of a word have the same score (00 000 and 000 00), the libraries round
    differently; then the twin decides.
    """

    def __init__(
        self, model: bytes, special: Roles | None = None, added: Sequence[str] = ()
    ) -> None:
        self.model, self._file = model, FILE if special else GIVEN
        try_out(model, self._file, kind="model")
        self._processor = _read_model(model)
        self.count: int = self._processor.get_piece_size()
        self.tokens: list[str] = [self._processor.id_to_piece(i) for i in range(self.count)]
        kinds = self._processor
        self.special = [
            t for i, t in enumerate(self.tokens) if kinds.is_control(i) or kinds.is_unused(i)
        ]
        added = [token for token in added if token not in set(self.tokens)]
        self.tokens, self.special = self.tokens + added, self.special + added
        self.unknown: str = self.tokens[kinds.unk_id()]
        self.cut: Cut = cut_at_spaces if self._words_stand_alone() else cut_nowhere
        self.twin = convert_to_rust(self, special) if special and self.kind == "unigram" else None
        self._scores = self.scores()

    def reserve(self, tokens: Collection[str]) -> None:
        """Let none of these tokens stand for text either: the model has them as control symbols."""
        if more := set(tokens).intersection(self.tokens) - {*self.special, self.unknown}:
            names = {token.encode() for token in more}

            def mark(piece: bytes) -> bytes:
                return piece + CONTROL * (dict(parse_fields(piece)).get(1) in names)

            self._processor = _read_model(replace_fields(self.model, 1, mark))
            self.special = [*self.special, *more]
        if self.twin:
            self.twin.reserve(tokens)

    @property
    def kind(self) -> str:
        """`bpe` or `unigram`, by TrainerSpec.model_type (sentencepiece_model.proto)."""
        trainer = dict(parse_fields(self.model)).get(2, b"")
        assert isinstance(trainer, bytes)
        model_type = dict(parse_fields(trainer)).get(3, 1)
        names: dict[Any, str] = {1: "unigram", 2: "bpe"}
        if model_type not in names:
            problem = "a sentencepiece model of type word or char is not supported"
            raise DataError(problem, file=FILE, fix="tokenizer=char")
        return names[model_type]

    @property
    def charsmap(self) -> bytes:
        """The compiled normalisation rules (NormalizerSpec.precompiled_charsmap)."""
        normalizer = dict(parse_fields(self.model)).get(3, b"")
        assert isinstance(normalizer, bytes)
        rules = dict(parse_fields(normalizer)).get(2, b"")
        assert isinstance(rules, bytes)
        return rules

    def scores(self) -> list[float]:
        """The score of each piece, by id."""
        return [self._processor.get_score(i) for i in range(self.count)]

    @property
    def byte_fallback(self) -> bool:
        """Whether an unknown character becomes its bytes."""
        return any(self._processor.is_byte(i) for i in range(self.count))

    def encode(self, text: str) -> list[int]:
        """The ids of `text`."""
        ids: list[int] = self._processor.encode(text)
        return other if (other := self._find_equal(text, ids)) else ids

    def encode_offsets(self, text: str) -> tuple[list[int], list[Span]]:
        """Ids, and for each the span of characters of `text` that it covers."""
        ids, _, spans = self._segment(text)
        if self.twin and self._find_equal(text, ids):
            return self.twin.encode_offsets(text)
        return ids, spans

    def cut_pieces(self, text: str) -> tuple[list[str], list[Span]]:
        """The pieces of `text`, those of unknown letters as the text spells them, and their
        spans.
        """
        _, names, spans = self._segment(text)
        return names, spans

    def join(self, pieces: Sequence[str], whole: Collection[str] = ()) -> str:
        """The text of pieces, of which this model may not know some; those in `whole` are spelled
        out.
        """
        parts = [
            " ".join(run) if spelled else str(self._processor.decode_pieces(list(run)))
            for spelled, run in groupby(pieces, lambda piece: piece in whole)
        ]
        return " ".join(parts).replace("▁", " ").strip()

    def _segment(self, text: str) -> tuple[list[int], list[str], list[Span]]:
        proto = self._processor.encode(text, out_type="serialized_proto")
        offsets = _character_offsets(text)
        ids: list[int] = []
        names: list[str] = []
        spans: list[Span] = []
        for number, value in parse_fields(proto):
            if number == 2:  # SentencePieceText.pieces: 1 piece, 2 id, 4 begin, 5 end (in bytes)
                assert isinstance(value, bytes)
                piece: dict[int, Any] = dict(parse_fields(value))
                ids.append(piece.get(2, 0))
                names.append(piece[1].decode())
                spans.append(_trim(text, offsets[piece.get(4, 0)], offsets[piece.get(5, 0)]))
        # if a character has several pieces, only the last has a width: give it to all
        for i in range(len(spans) - 2, -1, -1):
            (start, end), following = spans[i], spans[i + 1]
            if start == end == following[0] and names[i] != "▁":
                spans[i] = following
        return ids, names, spans

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; added tokens are spelled out."""
        runs = groupby(ids, lambda i: i < self.count)
        return " ".join(
            self._processor.decode(list(run)) if known else " ".join(self.tokens[i] for i in run)
            for known, run in runs
        )

    def normalize(self, text: str) -> str:
        """`text` as it is before it is split, without the sign that begins a word."""
        return str(self._processor.normalize(text)).replace("▁", " ").strip()

    def files(self) -> dict[str, bytes]:
        """The model, under the name that says where it was trained."""
        return {self._file: self.model}

    def _find_equal(self, text: str, ids: list[int]) -> list[int] | None:
        """The twin's ids if they differ and have the same score, and are not special tokens that
        the text spells.
        """
        other = self.twin.encode(text) if self.twin else ids
        if (
            other == ids
            or abs(sum(self._scores[i] for i in ids) - sum(self._scores[i] for i in other)) > 1e-3
        ):
            return None
        return other

    def _words_stand_alone(self) -> bool:
        """Whether words have the same pieces alone as in a line (true unless the model keeps or
        joins spaces).
        """
        probe = self._processor.encode("a")
        return self._processor.encode(" a  a ") == probe * 2 and not any(
            "▁" in token[1:].lstrip("▁") for token in self.tokens
        )


def _read_model(model: bytes) -> Any:
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        raise DataError(
            "not a sentencepiece model, or a damaged one", file=FILE, fix="copy or train it again"
        ) from error


def _character_offsets(text: str) -> list[int] | range:
    """Byte offset in UTF-8 -> character offset."""
    if text.isascii():
        return range(len(text) + 1)
    offsets: list[int] = []
    for offset, character in enumerate(text):
        offsets += [offset] * len(character.encode("utf-8", "surrogatepass"))
    return [*offsets, len(text)]


def _trim(text: str, start: int, end: int) -> Span:
    while start < end and text[start].isspace():
        start += 1
    return start, end


def convert_to_rust(
    backend: SentencePiece,
    special: Roles,
    *,
    before: Sequence[Any] = (),
    pieces: Sequence[tuple[str, float]] | None = None,
) -> Rust:
    """Convert a sentencepiece model to a `tokenizers` pipeline: its normalisation table, `▁` before
    each word, the same pieces.

    Args:
        before: normalizers that come first.
        pieces: All pieces by their ids, and their scores, instead of the model's own.
    """
    if pieces is None:
        pieces = list(zip(backend.tokens, backend.scores(), strict=False))
    unknown, tokens = backend.unknown, [token for token, _ in pieces]
    model: models.Model
    if backend.kind == "unigram":
        model = models.Unigram(list(pieces), tokens.index(unknown), backend.byte_fallback)
    else:
        scores = [score for _, score in pieces]
        apart = {*backend.special, unknown, *set(tokens).difference(backend.tokens)}
        merges = _merges(tokens, scores, apart)
        vocab = {token: number for number, token in enumerate(tokens)}
        model = models.BPE(
            vocab, merges, unk_token=unknown, fuse_unk=True, byte_fallback=backend.byte_fallback
        )
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token in backend.tokens[backend.count :]
        ]
    )
    spaces = [normalizers.Replace(tokenizers.Regex(" {2,}"), " "), normalizers.Strip()]
    table = [normalizers.Precompiled(backend.charsmap)] if backend.charsmap else []
    tokenizer.normalizer = normalizers.Sequence([*before, *table, *spaces])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tail = [decoders.ByteFallback(), decoders.Fuse()] if backend.byte_fallback else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Metaspace(replacement="▁", prepend_scheme="always"), *tail]
    )
    return Rust(finish(tokenizer, special))


def _merges(tokens: list[str], scores: Sequence[float], special: set[str]) -> list[tuple[str, str]]:
    """BPE merges in order: every way to make a piece of two known ones, best pieces first.

    A model stores no merges, only pieces with scores; a better score was merged earlier:

        piece   score   merges
        ab      -1      (a, b)
        abc     -2      (ab, c); not (a, bc), since bc is not a piece
        abcab   -3      (abc, ab)
    """
    known = {token: number for number, token in enumerate(tokens)}
    merges = [
        (-scores[number], known[token[:cut]], known[token[cut:]], (token[:cut], token[cut:]))
        for number, token in enumerate(tokens)
        for cut in range(1, len(token))
        if token not in special and token[:cut] in known and token[cut:] in known
    ]
    return [pair for *_, pair in sorted(merges)]
