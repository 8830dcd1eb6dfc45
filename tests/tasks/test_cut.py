"""Batches of rows of unlike lengths: the cheapest of all ways to cut them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from plmctl.tasks.batches import cut


def cost(length: list[int], ends: tuple[int, ...], overhead: int) -> int:
    starts = (0, *ends[:-1])
    return sum(
        overhead + (end - start) * length[start] for start, end in zip(starts, ends, strict=True)
    )


@pytest.mark.parametrize("overhead", [0, 3, 7, 1000])
@pytest.mark.parametrize("most", [1, 3, 8])
def test_no_other_cut_costs_less(most: int, overhead: int) -> None:
    draws = np.random.default_rng(most + overhead)
    for n in range(1, 9):
        length = sorted(draws.integers(1, 20, n).tolist(), reverse=True)
        ways = [
            (*inner, n)
            for size in range(n)
            for inner in combinations(range(1, n), size)
            if max(np.diff([0, *inner, n])) <= most
        ]
        found = tuple(part.stop for part in cut(length, most, overhead))
        assert [part.start for part in cut(length, most, overhead)] == [0, *found[:-1]]
        assert found in ways
        assert cost(length, found, overhead) == min(cost(length, way, overhead) for way in ways)


def test_without_a_cost_batches_are_full() -> None:
    assert [*cut([], 3)] == [*cut([], 3, 5)] == []
    assert [range(7)[part] for part in cut([9] * 7, 3)] == [range(3), range(3, 6), range(6, 7)]
