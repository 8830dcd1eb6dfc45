"""From `Rows` to a `Batch`: numpy arrays become tensors, and labels become targets with counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from plmctl.core.batch import IGNORE, Batch, Rows, Seq, Targets

if TYPE_CHECKING:
    from torch import Tensor

READ = "words_read"  # the value of rows whose sum is the count "words"


def collate(
    rows: Rows,
    capacity: Mapping[str, int],
    *,
    keep: frozenset[str] | None = None,
    pinned: bool = False,
) -> Batch:
    """Make torch tensors of `rows`.

    Args:
        rows: ids, lengths and labels become int64.
        capacity: slots a row of each target (absent: one a token).
        keep: names of tracks that are kept (None: all).
        pinned: page-locked memory.
    """
    import torch

    def tensor(array: np.ndarray) -> Tensor:
        wide = array if array.dtype.kind in "bf" else array.astype(np.int64, copy=False)
        result = torch.from_numpy(np.ascontiguousarray(wide))
        return result.pin_memory() if pinned else result

    def seq(rows_of_seq: Seq) -> Seq:
        tracks = {
            name: tensor(x)
            for name, x in rows_of_seq.tracks.items()
            if keep is None or f"tracks.{name}" in keep
        }
        full = "real" not in rows_of_seq.tracks and bool(
            (rows_of_seq.length == rows_of_seq.ids.shape[1]).all()
        )
        return Seq(
            tensor(rows_of_seq.ids), tensor(rows_of_seq.length), tracks, full, rows_of_seq.view
        )

    def tensors_of(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
        return {name: tensor(x) for name, x in arrays.items()}

    def targets(name: str, labels: np.ndarray) -> Targets:
        index, ids, count = _compact(name, labels, slots=capacity.get(name, labels.shape[1]))
        return Targets(tensor(index), tensor(ids), count)

    tensors = {name: targets(name, labels) for name, labels in rows.targets.items()}
    return Batch(
        key=tensor(rows.key),
        seqs={name: seq(given) for name, given in rows.seqs.items()},
        targets=tensors,
        counts={name: target.count for name, target in tensors.items()} | _count(rows),
        anchors=None if rows.anchors is None else tensor(rows.anchors),
        source=rows.source,
        labels=tensors_of(rows.labels),
        spans=tensors_of(rows.spans),
        values=tensors_of(rows.values),
    )


def _compact(name: str, labels: np.ndarray, *, slots: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Where `labels [n, T]` are not IGNORE, [n * slots], their ids, and their number."""
    size, labelled = len(labels) * slots, np.flatnonzero(labels.ravel() != IGNORE)
    if len(labelled) > size:
        raise ValueError(
            f"{len(labelled)} targets.{name} in a batch, but its noise promised at most {size}"
        )
    index, ids = np.zeros(size, np.int64), np.full(size, IGNORE, np.int64)
    index[: len(labelled)], ids[: len(labelled)] = labelled, labels.ravel()[labelled]
    return index, ids, len(labelled)


def _count(rows: Rows) -> dict[str, int]:
    """The numbers of labels by name, of tokens, each counted once, of rows, and of words."""
    read = [seq for seq in rows.seqs.values() if not seq.view] or rows.seqs.values()
    return {
        **{name: _count_labels(labels) for name, labels in rows.labels.items()},
        "tokens": sum(int(seq.length.sum()) for seq in read),
        "rows": int((rows.key >= 0).sum()),
        **({"words": int(rows.values[READ].sum())} if READ in rows.values else {}),
    }


def _count_labels(labels: np.ndarray) -> int:
    """The number of labels that are not IGNORE."""
    return int((labels.reshape(len(labels), -1) != IGNORE).any(axis=1).sum()) if len(labels) else 0
