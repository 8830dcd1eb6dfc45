"""Vectors of which most numbers are 0, by the other ones, and the search in them by an inverted
index.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from plmctl.tasks.scores.ranking import order_ties, take_best
from plmctl.tasks.search import Ranked


@dataclass(frozen=True)
class TermVectors:
    """Vectors [n, width] by the numbers that are not 0, one row after the other.

    Args:
        starts: [n + 1] the first number of each row, and the count of all numbers.
        columns: [m] the column of each number, rising in a row.
        values: [m] the numbers.
    """

    starts: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    width: int

    @classmethod
    def of(cls, vectors: np.ndarray) -> TermVectors:
        """Those of an array [n, width]."""
        rows, columns = np.nonzero(vectors)
        starts = np.searchsorted(rows, np.arange(len(vectors) + 1))
        values = vectors[rows, columns].astype(np.float32)
        return cls(starts, columns.astype(np.int32), values, vectors.shape[1])

    @classmethod
    def join(cls, parts: Sequence[TermVectors], width: int) -> TermVectors:
        """The rows of all parts, one part after the other."""
        sizes = [np.diff(part.starts) for part in parts]
        return cls(
            np.concatenate([[0], *sizes]).cumsum(),
            np.concatenate([np.zeros(0, np.int32), *(part.columns for part in parts)]),
            np.concatenate([np.zeros(0, np.float32), *(part.values for part in parts)]),
            width,
        )

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, rows: Sequence[int] | np.ndarray) -> TermVectors:
        """The rows with these numbers, in this order."""
        chosen = np.asarray(rows, np.int64)
        sizes = np.diff(self.starts)[chosen]
        starts = np.concatenate([[0], sizes]).cumsum()
        at = np.arange(starts[-1]) + np.repeat(self.starts[chosen] - starts[:-1], sizes)
        return TermVectors(starts, self.columns[at], self.values[at], self.width)

    def row(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """(columns, values) of a row."""
        part = slice(self.starts[number], self.starts[number + 1])
        return self.columns[part], self.values[part]

    def multiply(self, other: TermVectors) -> np.ndarray:
        """[n] the product of each row with that of `other` that has its number."""
        left, right = (
            np.repeat(np.arange(len(self)), np.diff(side.starts)) * self.width + side.columns
            for side in (self, other)
        )
        both, own, its = np.intersect1d(left, right, assume_unique=True, return_indices=True)
        products = self.values[own] * other.values[its]
        return np.bincount(both // self.width, products, minlength=len(self))

    def transpose(self) -> TermVectors:
        """An inverted index: for each column the rows that have a number there, rising."""
        order = np.argsort(self.columns, kind="stable")
        rows = np.repeat(np.arange(len(self), dtype=np.int32), np.diff(self.starts))
        starts = np.searchsorted(self.columns[order], np.arange(self.width + 1))
        return TermVectors(starts, rows[order], self.values[order], len(self))


def search_terms(
    queries: TermVectors, documents: TermVectors, names: Sequence[str], *, top: int
) -> Iterator[Ranked]:
    """As `search_vectors` with exact products: only documents that share a column with the
    question are read.
    """
    places, index = order_ties(names), documents.transpose()
    for number in range(len(queries)):
        scores = np.zeros(len(documents), np.float32)
        for column, value in zip(*queries.row(number), strict=True):
            found, values = index.row(column)
            scores[found] += value * values
        best = take_best(scores, places, min(top, len(documents)))
        yield Ranked(best, scores[best])
