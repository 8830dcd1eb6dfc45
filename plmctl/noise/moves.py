"""Moves, deletions and insertions of tokens with all that belongs to them: tracks, targets, spans,
anchors and positions.

A move names for every token of the new rows the slot from which it comes. Slots are counted as slot
= row * T + column in the flattened input. Tokens never leave their row. If noise also keeps them in
their document, positions restart there as before.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from plmctl.core.batch import IGNORE, Rows, Seq
from plmctl.noise.masking import expand_runs
from plmctl.noise.units import Units
from plmctl.text.vocab import Vocab


def make_movable(vocab: Vocab) -> Vocab:
    """The vocabulary in which mask and sentinels are ordinary tokens, so that tokens of an earlier
    noise may move like words.
    """
    special = vocab.special.copy()
    special[[token for token in (vocab.mask, *vocab.sentinels) if token is not None]] = False
    return replace(vocab, special=special)


def find_stretches(units: Units) -> tuple[np.ndarray, np.ndarray]:
    """(first slot, length), each [s]: the runs of ordinary tokens between special tokens and the
    ends of documents.
    """
    edge = units.start[units.edge]
    ordinary = units.ordinary[edge[:-1]]
    return edge[:-1][ordinary], np.diff(edge)[ordinary]


def permute(rows: Rows, take: np.ndarray) -> Rows:
    """Slot i gets the token of slot `take[i]` [n*T], of the same row and document; lengths and
    positions stay.
    """
    seq = rows.seqs[rows.input]
    here = ("position", "document", "real")  # belong to positions, not to tokens
    tracks = {name: x if name in here else _gather(x, take) for name, x in seq.tracks.items()}
    changed = replace(seq, ids=_gather(seq.ids, take), tracks=tracks)
    targets = {
        name: _gather(x, take) if x.shape == seq.ids.shape else x
        for name, x in rows.targets.items()
    }
    rows = rows.with_seq(rows.input, changed).with_targets(**targets)
    return (
        _follow(rows, take, np.arange(len(take)), seq.ids, seq.ids.shape[1])
        if _followers(rows)
        else rows
    )


def keep_tokens(rows: Rows, keep: np.ndarray, *, pad: int) -> Rows:
    """Keep only the real tokens that `keep [n, T]` marks, moved together."""
    keep = keep & rows.seqs[rows.input].real
    return move_tokens(rows, np.flatnonzero(keep), np.count_nonzero(keep, axis=1), pad=pad)


def move_tokens(
    rows: Rows,
    take: np.ndarray,
    length: np.ndarray,
    *,
    pad: int,
    width: int | None = None,
    added: np.ndarray | None = None,
    token: int | np.ndarray | None = None,
) -> Rows:
    """Rows of `length` [n] tokens: row by row, the tokens of the slots `take`.

    Args:
        take: the slot of each new token.
        length: tokens of each new row.
        pad: id of padding.
        width: columns; None: as many as before.
        added: indices into `take` of new tokens, which copy only the tracks of their slot.
        token: the id of the new tokens, or of each of them.
    """
    seq = rows.seqs[rows.input]
    changed, into = gather(seq, take, length, pad=pad, width=width)
    targets = {name: x for name, x in rows.targets.items() if x.shape == seq.ids.shape}
    targets = {
        name: _place(x, take, into, changed.ids.shape, IGNORE) for name, x in targets.items()
    }
    old = np.ones(len(take), bool)
    if added is not None and len(added):
        old[added] = False
        changed.ids.ravel()[into[added]] = token
        for x in targets.values():
            x.ravel()[into[added]] = IGNORE
        if "word_start" in changed.tracks:
            changed.tracks["word_start"].ravel()[into[added]] = True
    if "prefix" in rows.values:
        inside = take % seq.ids.shape[1] < rows.values["prefix"][take // seq.ids.shape[1]]
        prefix = np.bincount(take[inside] // seq.ids.shape[1], minlength=len(length))
        rows = replace(
            rows, values={**rows.values, "prefix": prefix.astype(rows.values["prefix"].dtype)}
        )
    rows = rows.with_seq(rows.input, changed).with_targets(**targets)
    return (
        _follow(rows, take[old], into[old], seq.ids, changed.ids.shape[1])
        if _followers(rows)
        else rows
    )


def gather(
    seq: Seq,
    take: np.ndarray,
    length: np.ndarray,
    *,
    pad: int,
    width: int | None = None,
    restart: bool = True,
) -> tuple[Seq, np.ndarray]:
    """The tokens of the slots `take` as rows of `length`, and their new slots; `restart=False`:
    positions are carried along.
    """
    shape = (len(length), seq.ids.shape[1] if width is None else width)
    into = np.flatnonzero(np.arange(shape[1]) < length[:, None])
    assert len(into) == len(take), "a noised row is longer than the rows are wide"
    ids = _place(seq.ids, take, into, shape, pad)
    tracks = {
        name: _place(x, take, into, shape, -1 if name == "document" else 0)
        for name, x in seq.tracks.items()
    }
    if "position" in tracks and restart:
        part = np.zeros(seq.ids.shape, np.int32)  # part of the row, up to where positions restart
        np.cumsum(
            seq.tracks["position"][:, 1:] <= seq.tracks["position"][:, :-1], axis=1, out=part[:, 1:]
        )
        tracks["position"] = _restarting(_place(part, take, into, shape, -1)).astype(
            seq.tracks["position"].dtype
        )
    return Seq(ids, length.astype(seq.length.dtype), tracks, full=len(into) == ids.size), into


def _gather(x: np.ndarray, take: np.ndarray) -> np.ndarray:
    return x.ravel().take(take).reshape(x.shape)


def _place(
    x: np.ndarray, take: np.ndarray, into: np.ndarray, shape: tuple[int, ...], fill: int
) -> np.ndarray:
    if len(into) == shape[0] * shape[1]:
        return x.ravel().take(take).reshape(shape)
    out = np.full(shape, fill, x.dtype)
    out.ravel()[into] = x.ravel().take(take)
    return out


def _restarting(part: np.ndarray) -> np.ndarray:
    """[n, T] columns counted from the beginning of each part."""
    column = np.arange(part.shape[1], dtype=np.int32)
    begin = np.zeros(part.shape, np.int32)
    np.multiply(part[:, 1:] != part[:, :-1], column[1:], out=begin[:, 1:])
    return column - np.maximum.accumulate(begin, axis=1)


def _followers(rows: Rows) -> bool:
    return bool(rows.spans) or rows.anchors is not None


def _follow(rows: Rows, take: np.ndarray, into: np.ndarray, before: np.ndarray, width: int) -> Rows:
    """Spans and anchors after the tokens of the slots `take` of `before [n, T]` went to the slots
    `into` of rows of `width`.

    A span stays if all its tokens are still neighbours in their order; an anchor is removed with
    its token, and so are its labels.
    """
    new_slot = np.full(before.size, -1)  # nowhere
    new_slot[take] = into
    anchors, labels = rows.anchors, rows.labels
    if anchors is not None:
        slot = new_slot[anchors[:, 0] * before.shape[1] + anchors[:, 1]]
        stays = slot >= 0
        anchors = np.stack([anchors[stays, 0], slot[stays] % width], 1)
        labels = {name: x[stays] for name, x in labels.items()}

    def follow(table: np.ndarray) -> np.ndarray:
        return _move_spans(table, new_slot, before.shape[1], width)

    return replace(
        rows,
        anchors=anchors,
        labels=labels,
        spans={name: follow(x) for name, x in rows.spans.items()},
    )


def _move_spans(table: np.ndarray, new_slot: np.ndarray, before: int, width: int) -> np.ndarray:
    table = table[table[:, 2] > 0]
    if not len(table):
        return table
    first, length = table[:, 0] * before + table[:, 1], table[:, 2].astype(np.int64)
    slot, offset = new_slot[expand_runs(first, length)], np.cumsum(length) - length
    begin = slot[offset]
    together = np.logical_and.reduceat(
        slot == np.repeat(begin - offset, length) + np.arange(len(slot)), offset
    ) & (begin >= 0)
    kept = table[together].copy()
    kept[:, 1] = begin[together] % width
    return kept[np.lexsort((kept[:, 1], kept[:, 0]))]
