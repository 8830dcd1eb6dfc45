"""Joined rows, such as those of two epochs or corpora in one batch, and blank rows that fill the
last batch of an evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from plmctl.core.batch import IGNORE, Rows, Seq


def join(parts: Sequence[Rows], targets: Sequence[np.ndarray] | None = None) -> Rows:
    """Join the rows of `parts`, which have the same fields and widths: one after the other, or each
    at its indices in `targets`.

    Anchors, their labels and spans follow their rows, and come in the order of rows.
    """
    if len(parts) == 1:
        return parts[0]
    first, offset = parts[0], np.cumsum([0] + [len(part.key) for part in parts])
    indices = [np.arange(a, b) for a, b in pairwise(offset)] if targets is None else targets
    anchors, labels = first.anchors, first.labels
    if anchors is not None:
        anchors, lines = _join_tables([part.anchors for part in parts], indices)
        labels = {
            name: np.concatenate([part.labels[name] for part in parts])[lines] for name in labels
        }
    return replace(
        first,
        key=_join_rows([part.key for part in parts], indices),
        anchors=anchors,
        labels=labels,
        seqs={name: _join_seq([part.seqs[name] for part in parts], indices) for name in first.seqs},
        targets=_join_each([part.targets for part in parts], indices),
        values=_join_each([part.values for part in parts], indices),
        spans={
            name: _join_tables([part.spans[name] for part in parts], indices)[0]
            for name in first.spans
        },
    )


def cut_padding(rows: Rows) -> Rows:
    """The rows, each sequence as wide as its longest row; targets as wide as the sequence that is
    written: the `target` where there is one.
    """
    widths = {name: max(1, int(seq.length.max())) for name, seq in rows.seqs.items()}
    written = widths.get("target", next(iter(widths.values())))
    return replace(
        rows,
        seqs={
            name: replace(
                seq,
                ids=seq.ids[:, : widths[name]],
                tracks={track: values[:, : widths[name]] for track, values in seq.tracks.items()},
            )
            for name, seq in rows.seqs.items()
        },
        targets={name: labels[:, :written] for name, labels in rows.targets.items()},
    )


def make_blank(like: Rows, count: int) -> Rows:
    """`count` rows that count for nothing: key -1, length 0, no targets, the anchors of the first
    row with labels IGNORE.
    """
    anchors, labels = None, {}
    if like.anchors is not None:
        columns = like.anchors[like.anchors[:, 0] == 0, 1]
        anchors = np.stack([np.repeat(np.arange(count), len(columns)), np.tile(columns, count)], 1)
        labels = {
            name: np.full((len(anchors), *x.shape[1:]), IGNORE, x.dtype)
            for name, x in like.labels.items()
        }
    return replace(
        like,
        key=np.full(count, -1, like.key.dtype),
        anchors=anchors,
        labels=labels,
        seqs={name: _blank_seq(seq, count) for name, seq in like.seqs.items()},
        targets={
            name: np.full((count, *x.shape[1:]), IGNORE, x.dtype)
            for name, x in like.targets.items()
        },
        spans={name: x[:0] for name, x in like.spans.items()},
        values={name: np.zeros((count, *x.shape[1:]), x.dtype) for name, x in like.values.items()},
    )


def _blank_seq(seq: Seq, count: int) -> Seq:
    """Rows of length 0; their ids repeat a token of the batch, which no real token ever sees."""
    tracks = {name: np.zeros((count, *x.shape[1:]), x.dtype) for name, x in seq.tracks.items()}
    if "document" in tracks:
        tracks["document"] -= 1  # padding belongs to no document
    return Seq(
        np.full((count, *seq.ids.shape[1:]), seq.ids.flat[0]),
        np.zeros(count, seq.length.dtype),
        tracks,
        view=seq.view,
    )


def _join_seq(seqs: Sequence[Seq], indices: Sequence[np.ndarray]) -> Seq:
    tracks = _join_each([seq.tracks for seq in seqs], indices)
    ids = _join_rows([seq.ids for seq in seqs], indices)
    length = _join_rows([seq.length for seq in seqs], indices)
    full, view = all(seq.full for seq in seqs), seqs[0].view
    return Seq(ids, length, tracks, full=full, view=view)


def _join_each(
    maps: Sequence[Mapping[str, np.ndarray]], indices: Sequence[np.ndarray]
) -> dict[str, np.ndarray]:
    return {name: _join_rows([arrays[name] for arrays in maps], indices) for name in maps[0]}


def _join_rows(arrays: Sequence[np.ndarray], indices: Sequence[np.ndarray]) -> np.ndarray:
    """[n, ...] with the rows of each array at its indices."""
    joined = np.empty((sum(map(len, arrays)), *arrays[0].shape[1:]), np.result_type(*arrays))
    for array, index in zip(arrays, indices, strict=True):
        joined[index] = array
    return joined


def _join_tables(
    tables: Sequence[np.ndarray | None], indices: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Tables whose first column is a row number, as one table in the order of rows; and the order
    of its lines.
    """
    joined = np.concatenate([table for table in tables if table is not None])
    joined[:, 0] = np.concatenate(
        [
            index[table[:, 0]]
            for table, index in zip(tables, indices, strict=True)
            if table is not None
        ]
    )
    lines = np.argsort(joined[:, 0], kind="stable")
    return joined[lines], lines
