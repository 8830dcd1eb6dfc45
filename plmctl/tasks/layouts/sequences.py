"""From a source and a target to rows: side by side for an encoder-decoder, one behind the other
for a decoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from plmctl.core.batch import IGNORE, Rows, Seq
from plmctl.core.errors import ConfigError, find_meant, nearest
from plmctl.text.vocab import ROLES, Vocab

Ids = Sequence[Sequence[int]]
Template = Sequence[str] | None  # roles around A, a text: [bos, A, eos]
Cut = tuple[Seq, np.ndarray]  # rows, and how many tokens each has lost


def wrap_sources(sources: Ids, vocab: Vocab, *, max_length: int, template: Template = None) -> Cut:
    """Each source in its template."""
    return _wrap(sources, vocab, template, max_length, "task.max_length")


def add_targets(
    source: Cut, targets: Ids | None, vocab: Vocab, *, max_target: int, template: Template = None
) -> Rows:
    """`source` and `target`, in its template (None: the tokenizer's for one segment);
    targets.seq2seq holds all of the target.

    Texts that are too long are cut at their end; special tokens stay. Without `targets` there is a
    source alone.
    """
    left, cut = source
    seqs, labels = {"source": left}, {}
    if targets is not None:
        around = template or vocab.around_target
        seqs["target"], more = _wrap(targets, vocab, around, max_target, "task.max_target")
        cut = cut + more
        labels["seq2seq"] = np.where(seqs["target"].real, seqs["target"].ids, IGNORE)
    return _rows(seqs, labels, cut)


def lay_behind(
    sources: Ids,
    targets: Ids | None,
    vocab: Vocab,
    *,
    max_length: int,
    max_target: int,
    segments: Sequence[int] = (0, 1),
    predict: Literal["clm", "mlm"] = "clm",
) -> Rows:
    """One `text` a pair: the source as the first segment of the tokenizer's template for two, the
    target with its end behind.

    Source and target are the two `segments`; `predict` names the targets: those of "clm" hold each
    token of the target at the position before it, those of "mlm" at its own position. The source
    and the special tokens around it take `max_length` tokens at most, the target and its end
    `max_target` (Dong et al., 2019, arXiv:1905.03197, 2.4).
    """
    end, (before, between) = _end(vocab), _around(vocab)
    room = max_length - len(before) - len(between)
    _at_least_one(room, "task.max_length", max_length)
    _at_least_one(max_target - 1, "task.max_target", max_target)
    heads = [[*before, *source[:room], *between] for source in sources]
    tails = [
        [] if targets is None else [*targets[n][: max_target - 1], end] for n in range(len(heads))
    ]
    seq = pad([head + tail for head, tail in zip(heads, tails, strict=True)], vocab.pad)
    position, first = np.arange(seq.ids.shape[1]), np.array([len(head) for head in heads])[:, None]
    gold = np.where((position >= first) & seq.real, seq.ids, IGNORE).astype(np.int32)
    if predict == "clm":  # one position earlier
        gold = np.concatenate([gold[:, 1:], np.full_like(gold[:, :1], IGNORE)], 1)
    cut = np.array([max(0, len(source) - room) for source in sources])
    cut += (
        0
        if targets is None
        else np.array([max(0, len(target) - max_target + 1) for target in targets])
    )
    seq = seq.with_tracks(
        segment=np.where((position >= first) & seq.real, segments[1], segments[0]).astype(np.uint8)
    )
    return _rows({"text": seq}, {} if targets is None else {predict: gold}, cut)


def _wrap(texts: Ids, vocab: Vocab, template: Template, longest: int, path: str) -> Cut:
    roles = list(template or vocab.single)
    _check_template(roles, vocab, "source" if path == "task.max_length" else "target")
    at = roles.index("A")
    before, after = ([vocab.id(role) for role in part] for part in (roles[:at], roles[at + 1 :]))
    room = longest - len(before) - len(after)
    _at_least_one(room, path, longest)
    cut = np.array([max(0, len(text) - room) for text in texts])
    return pad([[*before, *text[:room], *after] for text in texts], vocab.pad), cut


def _check_template(roles: Sequence[str], vocab: Vocab, side: str) -> None:
    """ConfigError for a template with a token that the tokenizer lacks, or with another number of
    texts than one.
    """
    known = [role for role in ROLES if vocab.find(role) is not None]
    wrong = next((role for role in roles if role != "A" and vocab.find(role) is None), None)
    if wrong is None and roles.count("A") == 1:
        return
    allowed = f"one A, the text, and around it of {', '.join(known)}{nearest(str(wrong), known)}"
    meant = [find_meant(role, known) or role for role in roles if role != "A"]
    usual = [role for role in meant if role in known] or ["eos"]
    path = f"task.{side}_template"
    raise ConfigError(path, list(roles), allowed, fix=f"{path}=[A,{','.join(usual)}]")


def _around(vocab: Vocab) -> tuple[list[int], list[int]]:
    """The tokens before the first segment, and between it and the second: at least one token."""
    a, b = vocab.pair.index("A"), vocab.pair.index("B")
    between = [vocab.id(role) for role in vocab.pair[a + 1 : b]]
    return [vocab.id(role) for role in vocab.pair[:a]], between or [_end(vocab)]


def _end(vocab: Vocab) -> int:
    if vocab.eos is None:
        allowed = "this tokenizer has no such token, so that no text could end"
        raise ConfigError("tokenizer", "eos", allowed, fix="train one: plmctl tokenize")
    return vocab.eos


def _at_least_one(room: int, path: str, value: int) -> None:
    if room < 1:
        raise ConfigError(path, value, f"too short for {value - room} special tokens and any text")


def pad(ids: Sequence[Sequence[int]], spare: int) -> Seq:
    """Rows of ids, padded to the longest."""
    length = np.array([len(row) for row in ids], dtype=np.int64)
    padded = np.full((len(ids), max(1, int(length.max()))), spare, dtype=np.int32)
    for index, row in enumerate(ids):
        padded[index, : len(row)] = row
    return Seq(padded, length)


def _rows(seqs: dict[str, Seq], targets: dict[str, np.ndarray], cut: np.ndarray) -> Rows:
    number = np.arange(len(cut), dtype=np.int64)
    return Rows(key=number, seqs=seqs, targets=targets, values={"example": number, "cut": cut})
