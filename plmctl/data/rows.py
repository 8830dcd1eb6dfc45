"""Rows put together: those of two epochs in one batch, and blank ones that fill the last batch of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from plmctl.batch import IGNORE, Rows, Seq


def join(parts: Sequence[Rows]) -> Rows:
    """All rows of `parts`, which have the same fields and widths, one after the other."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    offset = np.cumsum([0] + [len(part.key) for part in parts])
    anchors = None
    if first.anchors is not None:
        anchors = np.concatenate([_moved(part.anchors, by) for part, by in zip(parts, offset[:-1], strict=True)])
    return replace(
        first, key=np.concatenate([part.key for part in parts]), anchors=anchors,
        seqs={name: _join_seq([part.seqs[name] for part in parts]) for name in first.seqs},
        targets=_join_each([part.targets for part in parts]), labels=_join_each([part.labels for part in parts]),
        values=_join_each([part.values for part in parts]),
        spans={
            name: np.concatenate([_moved(part.spans[name], by) for part, by in zip(parts, offset[:-1], strict=True)])
            for name in first.spans
        },
    )  # fmt: skip


def blank(like: Rows, count: int) -> Rows:
    """`count` rows that count for nothing: key -1, length 0, no targets, the anchors of the first row with labels IGNORE."""
    anchors, labels = None, {}
    if like.anchors is not None:
        places = like.anchors[like.anchors[:, 0] == 0, 1]
        anchors = np.stack([np.repeat(np.arange(count), len(places)), np.tile(places, count)], 1)
        labels = {name: np.full((len(anchors), *x.shape[1:]), IGNORE, x.dtype) for name, x in like.labels.items()}
    return replace(
        like, key=np.full(count, -1, like.key.dtype), anchors=anchors, labels=labels,
        seqs={name: _blank_seq(seq, count) for name, seq in like.seqs.items()},
        targets={name: np.full((count, *x.shape[1:]), IGNORE, x.dtype) for name, x in like.targets.items()},
        spans={name: x[:0] for name, x in like.spans.items()},
        values={name: np.zeros((count, *x.shape[1:]), x.dtype) for name, x in like.values.items()},
    )  # fmt: skip


def _blank_seq(seq: Seq, count: int) -> Seq:
    """Rows of length 0; their ids repeat a token of the batch, which no real token ever sees."""
    tracks = {name: np.zeros((count, *x.shape[1:]), x.dtype) for name, x in seq.tracks.items()}
    if "document" in tracks:
        tracks["document"] -= 1  # padding belongs to no document
    return Seq(np.full((count, *seq.ids.shape[1:]), seq.ids.flat[0]), np.zeros(count, seq.length.dtype), tracks)


def _join_seq(seqs: Sequence[Seq]) -> Seq:
    ids, length = np.concatenate([seq.ids for seq in seqs]), np.concatenate([seq.length for seq in seqs])
    return Seq(ids, length, _join_each([seq.tracks for seq in seqs]), full=all(seq.full for seq in seqs))


def _join_each(maps: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([each[name] for each in maps]) for name in maps[0]}


def _moved(table: np.ndarray | None, by: int) -> np.ndarray:
    """A table whose first column is a row number, `by` rows further down."""
    assert table is not None
    moved = table.copy()
    moved[:, 0] += by
    return moved
