"""The best pairing of rows with columns (Kuhn, 1955, "The Hungarian Method for the Assignment
Problem"), by shortest paths (Jonker and Volgenant, 1987).
"""

from __future__ import annotations

import numpy as np


def assign(gains: np.ndarray) -> list[tuple[int, int]]:
    """The (row, column) pairs, min(n, m) of them with no row and no column twice, whose gains
    [n, m] have the largest sum; in the order of the rows.
    """
    if gains.shape[0] > gains.shape[1]:
        return sorted((row, column) for column, row in assign(gains.T))
    n, m = gains.shape
    costs = -np.asarray(gains, dtype=np.float64)
    of_row, of_column = np.zeros(n), np.zeros(m)  # potentials: costs less both are never negative
    row_of = np.full(m, -1)  # the row of each column that is taken
    for row in range(n):
        _add_row(row, costs, of_row, of_column, row_of)
    return sorted((int(row), column) for column, row in enumerate(row_of) if row >= 0)


def _add_row(
    row: int, costs: np.ndarray, of_row: np.ndarray, of_column: np.ndarray, row_of: np.ndarray
) -> None:
    """Give `row` a column, along the cheapest path of changes of the taken columns."""
    m = costs.shape[1]
    distance, before = np.full(m, np.inf), np.full(m, -1)  # to a column, and the column before it
    done = np.zeros(m, dtype=bool)
    at, here, walked = -1, row, 0.0
    while True:
        through = walked + costs[here] - of_row[here] - of_column
        nearer = ~done & (through < distance)
        distance[nearer], before[nearer] = through[nearer], at
        at = int(np.where(done, np.inf, distance).argmin())
        walked = float(distance[at])
        if row_of[at] < 0:
            break
        done[at] = True
        here = int(row_of[at])
    of_row[row] += walked
    of_row[row_of[done]] += walked - distance[done]
    of_column[done] -= walked - distance[done]
    while at >= 0:  # back along the path
        row_of[at] = row if before[at] < 0 else row_of[before[at]]
        at = int(before[at])
