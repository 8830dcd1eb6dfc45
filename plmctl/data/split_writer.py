"""The arrays of one split of a token directory, written piece by piece, on disk or in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from plmctl.data.encoding import COLUMNS, Encoded
from plmctl.data.shards import COUNTS, SPAN_KINDS
from plmctl.storage.arrays import ArrayWriter


class GrowingArray(Protocol):
    """A growing array: on disk, or in memory."""

    length: int

    def append(self, values: np.ndarray) -> None:
        """Append values."""

    def flush(self) -> int:
        """Keep what there is; the length."""

    def close(self) -> dict[str, Any]:
        """Finish it; its entry in the manifest."""


class MemoryArray:
    """An array in memory that grows."""

    def __init__(self, dtype: Any) -> None:
        self.dtype, self.length = np.dtype(dtype), 0
        self._pieces = [np.zeros(0, self.dtype)]

    def append(self, values: np.ndarray) -> None:
        self._pieces.append(np.asarray(values, self.dtype))
        self.length += len(values)

    def flush(self) -> int:
        return self.length

    def close(self) -> dict[str, Any]:
        return {"length": self.length, "dtype": self.dtype.name}

    def join(self) -> np.ndarray:
        """All of it."""
        self._pieces = [np.concatenate(self._pieces)]
        return self._pieces[0]


class SplitWriter:
    """The growing arrays of one split; it continues from the `state` of an earlier process.

    Args:
        folder: The folder of the token directory; None: the arrays stay in memory, in `arrays`.
        name: The name of the split.
        kinds: {array: its type} of ids and tracks.
        spans: names of the marked stretches.
        state: The state of an earlier writer.
    """

    def __init__(
        self,
        folder: Path | None,
        name: str,
        kinds: Mapping[str, Any],
        spans: Sequence[str],
        state: Mapping[str, Any] | None = None,
    ) -> None:
        kinds = {
            **kinds,
            **dict.fromkeys(("sentences", "documents", *COUNTS), np.int64),
            **{f"{track}.{part}": kind for track in spans for part, kind in SPAN_KINDS.items()},
        }
        lengths = state["lengths"] if state else {}
        self.arrays: dict[str, GrowingArray] = {
            array: MemoryArray(kind)
            if folder is None
            else ArrayWriter(folder / f"{name}.{array}.npy", kind, lengths.get(array))
            for array, kind in kinds.items()
        }
        self._ends = dict(state["ends"]) if state else {"sentences": 0, "documents": 0}
        self._totals = dict(state["totals"]) if state else dict.fromkeys(COUNTS, 0)
        self.left = Counter[str](state["left"] if state else {})
        for column in () if state else self._ends:
            self.arrays[column].append(np.zeros(1, np.int64))
        # the last document, which a further part may follow
        self._open = np.array(state["open"] if state else [], np.int64).reshape(-1, len(COLUMNS))

    def state(self) -> dict[str, Any]:
        """Flush the arrays; the state for `__init__`, as JSON."""
        lengths = {name: array.flush() for name, array in self.arrays.items()}
        return {
            "lengths": lengths,
            "ends": self._ends,
            "totals": self._totals,
            "left": self.left,
            "open": self._open.tolist(),
        }

    def append(self, encoded: Encoded) -> None:
        """Append encoded documents."""
        begin = self.arrays["ids"].length
        self.arrays["ids"].append(encoded.ids)
        self._offsets("sentences", encoded.lengths)
        for name, track in encoded.tracks.items():
            self.arrays[name].append(track)
        for name, table in encoded.spans.items():
            for part, column in zip(SPAN_KINDS, (table + np.array([begin, 0, 0])).T, strict=True):
                self.arrays[f"{name}.{part}"].append(column)
        self.left += encoded.left
        rows = np.concatenate([self._open, encoded.documents])
        if len(rows):
            begins = np.flatnonzero(np.append(True, rows[1:, COLUMNS.index("new")] > 0))
            rows = np.add.reduceat(rows, begins)
        self._documents(rows[:-1])
        self._open = rows[-1:]

    def close(self) -> dict[str, Any]:
        """Write the last document and close the arrays; the manifest's entry."""
        self._documents(self._open)
        entries = {name: array.close() for name, array in self.arrays.items()}
        numbers = {
            "documents": entries["bytes"]["length"],
            "sentences": entries["sentences"]["length"] - 1,
        }
        return {**numbers, "tokens": entries["ids"]["length"], **self._totals, "arrays": entries}

    def _documents(self, rows: np.ndarray) -> None:
        kept = rows[rows[:, COLUMNS.index("tokens")] > 0]
        self._offsets("documents", kept[:, COLUMNS.index("sentences")])
        for name in self._totals:
            column = kept[:, COLUMNS.index(name)]
            self.arrays[name].append(column)
            self._totals[name] += int(column.sum())

    def _offsets(self, name: str, lengths: np.ndarray) -> None:
        ends = self._ends[name] + np.cumsum(lengths)
        self.arrays[name].append(ends)
        if len(ends):
            self._ends[name] = int(ends[-1])
