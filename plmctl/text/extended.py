"""A tokenizer with more tokens, learned from the words of another text. All old ids stay as they
are, and so does every text in which no new token stands.
"""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby, pairwise
from typing import Any

import tokenizers

from plmctl.core.errors import ConfigError
from plmctl.text.backend import Backend, replace_surrogates
from plmctl.text.letters import is_letter
from plmctl.text.merging import Join, Merge, learn_merges
from plmctl.text.protobuf import spell_field
from plmctl.text.roles import Roles
from plmctl.text.rust import Rust
from plmctl.text.sentence_piece import FILE, SentencePiece
from plmctl.text.trial import remember

SPACE = "▁"  # with which the first piece of a word begins, in sentencepiece's vocabularies
SCORE = b"\x15"  # key of ModelProto.SentencePiece.score, a 32-bit float
_MORE = 0.1  # by which a new piece is more probable than those it is made of
KINDS = ("wordpiece", "byte_bpe", "bpe", "unigram")


def extend_backend(
    backend: Backend, roles: Roles, kind: str, texts: Iterable[str], *, tokens: int, least: int
) -> tuple[Backend, list[list[int]]]:
    """The tokenizer with at most so many new tokens behind its own, and for each new token the old
    ids of its parts.

    New merges come behind all others. New pieces of a unigram model are as probable as they are
    frequent, but more than the pieces of which they are made.

    Raises:
        ConfigError: A tokenizer of another kind, or a text in which nothing stands often enough.
    """
    _check_kind(backend, kind)
    there = count_words(backend, texts)
    words = {word: times for word, times in there.items() if roles.unk not in word}
    ids = {token: number for number, token in enumerate(backend.tokens)}
    learn = partial(
        learn_merges,
        words,
        join=_choose_join(backend, kind),
        known=ids,
        keep_all=kind in ("bpe", "byte_bpe"),
    )
    if not (merges := learn(tokens=tokens, least=least)):
        raise _explain_nothing(learn, least, sum(words.values()), there.total())
    total = sum(times * len(word) for word, times in words.items())
    grown: Backend
    if isinstance(backend, SentencePiece):
        grown = _grow_pieces(backend, roles, merges, total)
    else:
        assert isinstance(backend, Rust)
        grown = _grow_rust(backend, merges, total)
    return grown, [[ids[piece] for piece in merge.pieces] for merge in merges]


def _explain_nothing(
    learn: Callable[..., Sequence[Merge]], least: int, known: int, total: int
) -> ConfigError:
    """Why a text gives no new token, and what would help: `known` of its `total` words consist of
    tokens.
    """
    allowed = f"no two tokens stand {least} times side by side inside a word of this text"
    if known < total:
        allowed += f"; {total - known:,} of its {total:,} words have letters that no token has"
    often = max((merge.count for merge in learn(tokens=1, least=1)), default=0)
    fix = "data.path=<more text>" if known else "a model whose tokenizer knows these words"
    if often > 1 and learn(tokens=1, least=often):
        fix = f"least={often}, or {fix}"
    return ConfigError("least", least, allowed, fix=fix)


def count_words(backend: Backend, texts: Iterable[str]) -> Counter[tuple[str, ...]]:
    """How often each word stands in the texts, by its tokens."""
    split = _split_rust if isinstance(backend, Rust) else _split_pieces
    words = Counter[tuple[str, ...]]()
    for text in texts:
        words.update(split(backend, replace_surrogates(text)))  # type: ignore[arg-type]
    return words


def _split_rust(backend: Rust, text: str) -> Iterator[tuple[str, ...]]:
    encoding = backend.tokenizer.encode(text, add_special_tokens=False)
    # by id: of an unknown piece, a Unigram's own `tokens` have the letters
    tokens = (backend.tokens[number] for number in encoding.ids)
    pairs = zip(encoding.word_ids, tokens, strict=True)
    for number, word in groupby(pairs, key=lambda pair: pair[0]):
        if number is not None:
            yield tuple(token for _, token in word)


def _split_pieces(backend: SentencePiece, text: str) -> Iterator[tuple[str, ...]]:
    pieces = [backend.tokens[number] for number in backend.encode(text)]
    starts = [number for number, piece in enumerate(pieces) if piece.startswith(SPACE)]
    for start, end in pairwise([*starts, len(pieces)]):
        yield tuple(pieces[start:end])


def _choose_join(backend: Backend, kind: str) -> Join:
    """How two tokens are spelled as one. Words of sentencepiece end at spaces only: there letters
    and marks stay apart.
    """
    if kind == "wordpiece":
        return lambda left, right: left + right.removeprefix("##")
    if any(token.startswith(SPACE) for token in backend.tokens):
        return _join_alike
    return lambda left, right: left + right


def _join_alike(left: str, right: str) -> str | None:
    marks = [is_letter(character) for character in (left + right).removeprefix(SPACE)]
    return left + right if all(marks) or not any(marks) else None


def _check_kind(backend: Backend, kind: str) -> None:
    """ConfigError for a tokenizer to which nothing can be added."""
    known = isinstance(backend, Rust | SentencePiece) and kind in KINDS
    if not known:
        inner = type(backend).__name__.removesuffix("Backend").lower()
        what = kind if kind not in KINDS else f"{kind} with {inner} words"
        allowed = f"a model whose tokenizer is plain {', '.join(KINDS[:-1])} or {KINDS[-1]}"
        raise ConfigError("checkpoint", what, allowed, fix="inject gives it tokens of whole words")
    more = len(backend.tokens) - (
        backend.count if isinstance(backend, SentencePiece) else _count_pieces(backend)
    )
    if more > 0:
        allowed = f"pieces up to the last id; its last {more} are tokens behind its pieces"
        raise ConfigError("checkpoint", kind, allowed, fix="a model with another tokenizer")


def _count_pieces(backend: Backend) -> int:
    """Ids up to which a list of pieces must have one for each: 0 where they are a mapping."""
    assert isinstance(backend, Rust), backend
    pieces = backend.spec["model"]["vocab"]
    return len(pieces) if isinstance(pieces, list) else len(backend.tokens)


def _grow_pieces(
    backend: SentencePiece, roles: Roles, merges: Sequence[Merge], total: int
) -> SentencePiece:
    """sentencepiece's model with these pieces at the end of its list; `total`: tokens of the
    text.
    """
    known = backend.scores()
    if backend.kind == "bpe":  # where better scores were merged earlier
        scores = [min(known) - 1 - number for number in range(len(merges))]
    else:
        scores = _score(merges, dict(zip(backend.tokens, known, strict=True)), total)
    model = backend.model
    for merge, score in zip(merges, scores, strict=True):
        piece = spell_field(1, merge.token.encode()) + SCORE + struct.pack("<f", score)
        model += spell_field(1, piece)
    remember(model)
    return SentencePiece(model, roles if FILE in backend.files() else None)


def _grow_rust(backend: Rust, merges: Sequence[Merge], total: int) -> Rust:
    """A tokenizer.json with these tokens; `total`: tokens of the text."""
    spec: dict[str, Any] = json.loads(json.dumps(backend.spec))
    model, size = spec["model"], len(backend.tokens)
    if model["type"] == "Unigram":
        scores = _score(merges, dict(map(tuple, model["vocab"])), total)
        model["vocab"] += [[m.token, score] for m, score in zip(merges, scores, strict=True)]
    else:
        model["vocab"] |= {merge.token: size + n for n, merge in enumerate(merges)}
    if model["type"] == "BPE":
        model["merges"] += [[merge.left, merge.right] for merge in merges]
    return Rust(tokenizers.Tokenizer.from_str(json.dumps(spec)))


def _score(merges: Sequence[Merge], known: dict[str, float], total: int) -> list[float]:
    """The logarithm of the share of each new piece in the text."""
    return [
        max(math.log(merge.count / total), sum(known[piece] for piece in merge.pieces) + _MORE)
        for merge in merges
    ]
