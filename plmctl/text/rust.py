"""WordPiece, byte-level BPE and characters by the `tokenizers` library, and any Hugging Face
`tokenizer.json`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import tokenizers
from tokenizers import AddedToken, normalizers, processors

from plmctl.core.errors import DataError, PlmctlError
from plmctl.storage.reading import summarize_error
from plmctl.text.added import AGAIN, check_ids, hide_tokens, place_tokens
from plmctl.text.backend import (
    Cut,
    Span,
    cut_as_bert,
    cut_at_spaces,
    cut_before_spaces,
    cut_nowhere,
)
from plmctl.text.letters import close_gaps
from plmctl.text.roles import Roles
from plmctl.text.trial import try_out

FILE = "tokenizer.json"


@contextmanager
def blame_tokenizer(file: object) -> Iterator[None]:
    """Turn any failure of a tokenizer library into a DataError about `file`."""
    try:
        yield
    except PlmctlError:
        raise
    # These libraries raise a bare Exception for data that they cannot read. For unexpected data
    # they raise a panic of Rust, which is a BaseException.
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise DataError(
            f"not a tokenizer file ({summarize_error(error)})", file=file, fix=AGAIN
        ) from error


class Rust:
    """A `tokenizers.Tokenizer` by which no text gives a special token. A special token that a text
    spells is encoded as its letters, even if the vocabulary has it as a word or piece.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        tokenizer.encode_special_tokens = True
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self.tokenizer = tokenizer
        vocab = tokenizer.get_vocab(with_added_tokens=True)
        count = max(vocab.values(), default=-1) + 1
        check_ids(vocab.values())
        self.tokens = [f"[unused id {i}]" for i in range(count)]
        for token, index in vocab.items():
            self.tokens[index] = token
        self.special = [
            token.content
            for token in tokenizer.get_added_tokens_decoder().values()
            if token.special
        ]
        self.spec: dict[str, Any] = json.loads(tokenizer.to_str())
        self._spaced = (self.spec.get("decoder") or {}).get("type") == "WordPiece"
        self.cut: Cut = _safe_cut(self.spec)
        self._unknown = _find_unknown(self.spec["model"])
        self.reserve(())

    def reserve(self, tokens: Collection[str]) -> None:
        """Let none of these tokens stand for text either."""
        self.special = list(dict.fromkeys([*self.special, *tokens]))
        kept = {*self.special} - {self._unknown}
        self._never = frozenset(n for n, token in enumerate(self.tokens) if token in kept)
        unknown = [n for n, token in enumerate(self.tokens) if token == self._unknown]
        self._suspects = self._never.union(unknown)
        self.__dict__.pop("_letters", None)

    @classmethod
    def read(cls, content: bytes, file: object = FILE) -> Rust:
        """Read a tokenizer.json; `file` is its name in messages."""
        try_out(content, file, kind="json")
        with blame_tokenizer(file):
            tokenizer = tokenizers.Tokenizer.from_str(content.decode())
            added = json.loads(content).get("added_tokens") or []
            moved = [t for t in added if tokenizer.token_to_id(t["content"]) != t["id"]]
            return cls(tokenizer).with_tokens(moved) if moved else cls(tokenizer)

    def with_tokens(self, added: Sequence[dict[str, Any]], *, kept: Collection[str] = ()) -> Rust:
        """This tokenizer with tokens at the ids that they state.

        Args:
            added: The added tokens, as `added_tokens` of a tokenizer.json.
            kept: The tokens, among these and its own, that never represent text.
        """
        spec = place_tokens(self.spec, added, kept=kept)
        return Rust(tokenizers.Tokenizer.from_str(json.dumps(spec)))

    def lowered(self) -> Rust:
        """This tokenizer, which brings texts to lower case first."""
        rules = self.tokenizer.normalizer
        if "Lowercase" in _stage_types(self.spec.get("normalizer")):
            return self
        copy = tokenizers.Tokenizer.from_str(self.tokenizer.to_str())
        copy.normalizer = normalizers.Sequence(
            [normalizers.Lowercase(), *([rules] if rules else [])]
        )
        return Rust(copy)

    @property
    def added(self) -> list[str]:
        """The special tokens outside of the vocabulary of its model."""
        pieces = self.spec["model"]["vocab"]
        own = {piece for piece, _ in pieces} if isinstance(pieces, list) else pieces
        return [
            token["content"]
            for token in self.spec["added_tokens"]
            if token["special"] and token["content"] not in own
        ]

    @property
    def kind(self) -> str:
        """The kind by its parts; a `tokenizer.json` of another family counts as the nearest
        kind.
        """
        model, stages = self.spec["model"]["type"], _stage_types(self.spec.get("pre_tokenizer"))
        if model == "BPE" and "ByteLevel" in stages:
            return "byte_bpe"
        if model == "BPE" and not self.spec["model"]["merges"]:
            return "char"
        return {
            "WordPiece": "wordpiece",
            "Unigram": "unigram",
            "BPE": "bpe",
            "WordLevel": "word",
        }.get(model, "wordpiece")

    def encode(self, text: str) -> list[int]:
        """The ids of `text`."""
        encoding = self.tokenizer.encode(text, add_special_tokens=False)
        ids: list[int] = encoding.ids
        return ids if self._suspects.isdisjoint(ids) else self._spell(text, encoding).ids

    def encode_offsets(self, text: str) -> tuple[list[int], list[Span]]:
        """Ids, and for each the span of characters of `text` that it covers, without outer white
        space.
        """
        encoding = self.tokenizer.encode(text, add_special_tokens=False)
        if not self._suspects.isdisjoint(encoding.ids):
            encoding = self._spell(text, encoding)
        return encoding.ids, [_trim(text, start, end) for start, end in encoding.offsets]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, special tokens included. WordPiece makes each Han character a word,
        and its spaces are no text.
        """
        text = self.tokenizer.decode(list(ids), skip_special_tokens=False)
        return close_gaps(text) if self._spaced else text

    def find_parts(self, ids: np.ndarray) -> np.ndarray:
        """[N] bool: the byte-level tokens of a text that begin a part. Parts are words with the
        space before them, digits, and marks (GPT-2's pattern).
        """
        pieces = [self.tokens[i] for i in ids]
        text = self.tokenizer.decoder.decode(pieces)
        parts = [part for part, _ in self.tokenizer.pre_tokenizer.pre_tokenize_str(text)]
        # counted from the end: the tokenizer may add a space before the text
        begins, cuts = _count_to_end(pieces), _count_to_end(parts)
        return np.isin(begins, cuts) | (np.arange(len(begins)) == 0)

    def normalize(self, text: str) -> str:
        """`text` as it is before it is split: in lower case, without accents, ..."""
        rules = self.tokenizer.normalizer
        return text if rules is None else str(rules.normalize_str(text))

    def files(self) -> dict[str, bytes]:
        """tokenizer.json and its content."""
        return {FILE: self.tokenizer.to_str(pretty=False).encode()}

    def _spell(self, text: str, encoding: tokenizers.Encoding) -> tokenizers.Encoding:
        """`encoding` of a text, or one by its letters where it has special tokens."""
        spelled = self._unknown is not None and self._unknown in text
        if not spelled and self._never.isdisjoint(encoding.ids):  # unknown, as it should be
            return encoding
        # a character as long as the noncharacter
        text = text.replace("\uffff", "\ufffd")
        return self._letters.encode(text, add_special_tokens=False)

    @cached_property
    def _letters(self) -> tokenizers.Tokenizer:
        """The same tokenizer, whose vocabulary has its special tokens under no name of a text."""
        spec = hide_tokens(self.spec, {*self.special, *filter(None, [self._unknown])})
        hidden = tokenizers.Tokenizer.from_str(json.dumps(spec))
        hidden.encode_special_tokens = True
        return hidden


SEGMENTED = ("[SEP]", "<sep>")  # the spellings of `sep` in families that number their segments


def finish(
    tokenizer: tokenizers.Tokenizer,
    special: Roles,
    *,
    framed: bool = False,
    segments: bool | None = None,
) -> tokenizers.Tokenizer:
    """Register the special tokens, and the template around one and two texts (of encoders, or if
    `framed`). Its segments have numbers where `segments` says so; None: as in the family.
    """
    numbered = special.sep in SEGMENTED if segments is None else segments
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False, lstrip=token == "<mask>")
            for token in special.tokens
        ]
    )
    if special.cls or framed:
        ids = [(token, tokenizer.token_to_id(token)) for token in special.tokens]
        around = [
            " ".join(_add_segment(special, order, n, numbered) for n in range(len(order)))
            for order in (special.single, special.pair)
        ]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=around[0], pair=around[1], special_tokens=ids
        )
    return tokenizer


def _add_segment(special: Roles, order: tuple[str, ...], index: int, numbered: bool) -> str:
    """A role of a template with its segment: 1 from B on (BERT), and always 0 for RoBERTa, which
    has no segments (not `numbered`).

    XLNet's last token is a segment of its own.
    """
    role, before = order[index], order[: index + 1]
    number = int(numbered and "B" in before)
    if role in "AB":
        return f"${role}:{number}"
    return f"{special.spell(role)}:{2 if role == 'cls' and 'A' in before else number}"


def _count_to_end(parts: Sequence[str]) -> np.ndarray:
    """[N] the characters from the begin of each part to the end of the last one."""
    return np.cumsum([len(part) for part in reversed(parts)])[::-1]


def _find_unknown(model: dict[str, Any]) -> str | None:
    """The token of unknown text, where there is one."""
    if model["type"] == "Unigram":
        return None if model["unk_id"] is None else str(model["vocab"][model["unk_id"]][0])
    return model.get("unk_token") or None


def _stage_types(stage: dict[str, Any] | None) -> list[str]:
    if stage is None:
        return []
    inner = stage.get("pretokenizers") or stage.get("normalizers")
    return [name for part in inner for name in _stage_types(part)] if inner else [stage["type"]]


def _safe_cut(spec: dict[str, Any]) -> Cut:
    """How texts may be cut without changing an id, for the pipelines whose rule is known."""
    normalizer, pre = spec.get("normalizer") or {}, spec.get("pre_tokenizer") or {}
    if any(not token["special"] for token in spec.get("added_tokens", [])):
        return cut_nowhere
    if (
        spec["model"]["type"] == "WordLevel"
        and (pre.get("pretokenizers") or [pre])[0].get("type") == "WhitespaceSplit"
    ):
        return cut_at_spaces if normalizer.get("type", "Lowercase") == "Lowercase" else cut_nowhere
    if (
        spec["model"]["type"] == "WordPiece"
        and pre.get("type") == "BertPreTokenizer"
        and normalizer.get("type") == "BertNormalizer"
    ):
        chinese = normalizer["handle_chinese_chars"] and normalizer["clean_text"]
        return cut_as_bert if chinese else cut_nowhere
    if spec["model"]["type"] == "BPE" and pre.get("type") == "ByteLevel" and not normalizer:
        return (
            cut_before_spaces
            if pre.get("use_regex", True) and not pre.get("add_prefix_space")
            else cut_nowhere
        )
    return cut_nowhere


def _trim(text: str, start: int, end: int) -> Span:
    """The span without white space at its ends, which byte-level pieces carry; spans of only white
    space stay.
    """
    inner = text[start:end]
    if not inner or inner.isspace():
        return start, end
    return end - len(inner.lstrip()), start + len(inner.rstrip())
