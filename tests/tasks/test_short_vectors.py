"""Vectors in bytes and bits: the published formulas, and what a search still finds."""

from __future__ import annotations

import numpy as np
import pytest

from plmctl.tasks.search import Index, search_vectors
from plmctl.tasks.short_vectors import (
    LEVELS,
    count_unlike,
    find_ranges,
    pack_signs,
    restore_bytes,
    restore_signs,
    round_to_bytes,
)
from plmctl.use.semantic_search import shorten


def draw(count: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)


def test_bytes_are_the_published_formula_and_restore_half_a_step() -> None:
    vectors = draw(40, 5)
    ranges = find_ranges(vectors)
    codes = round_to_bytes(vectors, ranges)
    for row in range(40):
        for column in range(5):
            own = vectors[:, column].astype(np.float64)
            share = 255 * (own[row] - own.min()) / (own.max() - own.min())
            expected = min(max(np.floor(share), 0), 255) - 128
            near = abs(share - round(share)) < 1e-3  # fp32 may round to either side
            assert abs(int(codes[row, column]) - expected) <= near
    steps = (ranges[1] - ranges[0]) / LEVELS
    assert (abs(restore_bytes(codes, ranges) - vectors) <= 0.5001 * steps).all()
    equal = np.ones((3, 2), np.float32)  # a column of one number
    assert (restore_bytes(round_to_bytes(equal, find_ranges(equal)), find_ranges(equal)) == 1).all()


def test_bits_are_those_of_signs() -> None:
    assert pack_signs(np.array([[1, -1, 0.5, 0, 2, -3, 0, 1]])).tolist() == [[169]]
    vectors = draw(9, 13)
    codes = pack_signs(vectors)
    assert codes.shape == (9, 2)
    assert (np.sign(restore_signs(codes, 13)) == np.where(vectors > 0, 1, -1)).all()
    unlike = ((vectors > 0) != (vectors[4] > 0)).sum(1)
    assert count_unlike(codes[4], codes).tolist() == unlike.tolist()


@pytest.mark.parametrize(("index", "least"), [("int8", 0.95), ("binary", 0.4)])
def test_a_search_finds_most_of_the_nearest(index: Index, least: float) -> None:
    documents = draw(500, 64)
    queries = documents[:30] + 0.3 * draw(30, 64, seed=1)
    names = [str(number) for number in range(500)]
    exact = search_vectors(queries, documents, names, top=5)
    short = list(search_vectors(queries, documents, names, top=5, index=index))
    shared = [len({*a.numbers} & {*b.numbers}) / 5 for a, b in zip(exact, short, strict=True)]
    assert np.mean(shared) >= least
    assert np.mean([ranked.numbers[0] == n for n, ranked in enumerate(short)]) > 0.9
    if index == "binary":
        signs = np.where(documents > 0, 1, -1) / 8
        assert short[0].scores[0] == pytest.approx(float(signs[0] @ queries[0]), rel=1e-5)


def test_all_of_the_lines_may_be_empty() -> None:
    arrays = [("hidden_0", np.zeros((1, 4), np.float32)), ("ids_0", np.zeros(0, np.int64))]
    assert dict(shorten(arrays, "int8"))["empty"].tolist() == [0]
