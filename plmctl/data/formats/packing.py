"""Best-fit-decreasing packing (Ding et al., 2024, arXiv:2404.10830, sec. 3), with a number of steps
that does not depend on the size of the corpus.
"""

from __future__ import annotations

from array import array

import numpy as np

BLOCK = 1 << 20  # links that are Python numbers at a time: bounds the memory of `chain`


def best_fit_decreasing(size: np.ndarray, capacity: int) -> tuple[np.ndarray, np.ndarray]:
    """Pack items from the longest to the shortest, each into the fullest row with enough room.

    Args:
        size: [m] tokens of each item, at most `capacity`.
        capacity: tokens of a row.

    Returns:
        (order [m], row_start [R + 1]): row r holds `order[row_start[r]:row_start[r + 1]]`.

    Items of one size are packed together. The row that is the best fit for one of them stays the
    best fit for the next ones until it is full. So there are at most `capacity ** 2 / 2` steps,
    however many items there are. Sizes 6, 5, 4, 3, 2 in rows of 10:

        item   rows with their room           goes to
        6      -                              row 0, room 4
        5      0: 4                           row 1, room 5
        4      0: 4, 1: 5                     row 0, the fullest with room: 0
        3      1: 5                           row 1, room 2
        2      1: 2                           row 1, room 0; order 0 2 | 1 3 4
    """
    row_of = np.empty(len(size), np.int64)
    open_rows = [np.empty(0, np.int64) for _ in range(capacity + 1)]  # by the room left
    any_open = np.zeros(capacity + 1, bool)
    rows = 0
    by_size = np.argsort(-size, kind="stable")
    bounds = np.flatnonzero(np.diff(size[by_size], prepend=-1))
    for items in np.split(by_size, bounds[1:]) if len(size) else []:
        length = int(size[items[0]])
        while len(items):
            room = length + int(any_open[length:].argmax())
            if not any_open[room]:
                room, missing = capacity, -(-len(items) // (capacity // length))
                open_rows[room], rows = np.arange(rows, rows + missing), rows + missing
            items_per_row = room // length
            used, open_rows[room] = np.split(open_rows[room], [-(-len(items) // items_per_row)])
            count = min(len(items), len(used) * items_per_row)
            row_of[items[:count]] = np.repeat(used, items_per_row)[:count]
            # the last row may take fewer than `each`
            left = room - length * (count - (len(used) - 1) * items_per_row)
            for rest, of_rows in ((room - length * items_per_row, used[:-1]), (left, used[-1:])):
                open_rows[rest] = np.concatenate([open_rows[rest], of_rows])
                any_open[rest] = len(open_rows[rest]) > 0
            any_open[room] = len(open_rows[room]) > 0
            items = items[count:]
    order = np.argsort(row_of, kind="stable")
    return order, np.searchsorted(row_of[order], np.arange(rows + 1))


def cut_chunks(edges: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut the stretches between `edges` into chunks of `room` tokens and one shorter chunk.

    Returns:
        (start, size) of all chunks.
    """
    length = np.diff(edges)
    count = -(-length // room)
    number = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    start = np.repeat(edges[:-1], count) + number * room
    return start, np.minimum(room, np.repeat(edges[1:], count) - start)


def follow_links(following: np.ndarray) -> np.ndarray:
    """0, following[0], following[following[0]], ... up to the end; every link leads forward."""
    visited, position = array("q", [0]), 0
    for low in range(0, len(following), BLOCK):
        links = (following[low : low + BLOCK] - low).tolist()
        position -= low
        while position < len(links):
            position = links[position]
            visited.append(position + low)
        position += low
    return np.frombuffer(visited, np.int64)
