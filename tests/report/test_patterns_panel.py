"""Pictures of patterns: shares of pairs by loops over queries and keys."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch

from plmctl.attention.patterns.base import Pattern
from plmctl.attention.patterns.causal import Causal
from plmctl.attention.patterns.global_tokens import Global
from plmctl.attention.patterns.prefix import CausalWithPrefix
from plmctl.attention.patterns.window import Window
from plmctl.report.page import Chart, Heading, Paragraph, TableBlock
from plmctl.report.panels.patterns import panel, spell
from plmctl.report.patterns import evaluate, measure_patterns
from tests.report.built import build


def share(sees: Callable[[int, int], bool], length: int, n: int) -> list[list[float]]:
    """The share of pairs in each cell of n ranges of queries and of keys."""
    edges = [length * number // n for number in range(n + 1)]
    ranges = [range(a, b) for a, b in pairwise(edges)]
    return [
        [
            sum(sees(q, k) for q in queries for k in keys) / (len(queries) * len(keys))
            for keys in ranges
        ]
        for queries in ranges
    ]


def test_shares_of_ranges_and_of_all_pairs() -> None:
    segments = torch.tensor([0] * 25 + [1] * 25)
    cases: list[tuple[Pattern, Callable[[int, int], bool]]] = [
        (Causal() & Window(reach=3), lambda q, k: q - 3 <= k <= q),
        (Window(reach=2) | Global(tokens=1), lambda q, k: abs(q - k) <= 2 or q * k == 0),
        (CausalWithPrefix(), lambda q, k: k < 25 or (k <= q and q >= 25)),
    ]
    for pattern, sees in cases:
        for n in (7, 50):
            shares, seen = evaluate(pattern, segments, n)
            assert shares.tolist() == [pytest.approx(line, abs=1e-6) for line in share(sees, 50, n)]
        assert seen == pytest.approx(float(shares.mean()), abs=1e-6)


def test_layers_and_heads_that_differ_have_a_picture_each() -> None:
    words = ["pattern=windows", "pattern.reach=[[1,3],2,2]", "pattern.causal=true"]
    loaded, subject = build("gpt2", *words, "size.num_layers=3", "format.max_length=16")
    found, count = measure_patterns(loaded)
    assert count == 3
    assert [(seen.layers, seen.heads) for seen in found] == [
        ((1,), (0,)),
        ((1,), (1,)),
        ((2, 3), ()),
    ]
    for seen, reach in zip(found, (1, 3, 2), strict=True):
        wanted = share(lambda q, k, reach=reach: q - reach <= k <= q, 16, 16)
        assert seen.shares.tolist() == wanted
        assert seen.seen == pytest.approx(sum(map(sum, wanted)) / 256)
        assert seen.computed == 1.0  # short rows: all, under a mask
    heading, text, picture, table = panel(subject)
    assert isinstance(heading, Heading)
    assert isinstance(text, Paragraph)
    assert isinstance(picture, Chart)
    assert "layers 2-3" in picture.svg
    assert isinstance(table, TableBlock)
    pairs = 16 + 15 + 14
    share_of_all = f"{100 * pairs / 256:.1f}%"
    assert table.rows[2] == ["model", "2-3", "all", "16", share_of_all, "100.0%"]
    # equal patterns of several runs have one picture
    assert [
        type(block) for block in panel(build("gpt2", *words, "size.num_layers=3", runs=2)[1])
    ] == [Heading, Heading, Paragraph, Chart, TableBlock]


def test_segments_that_decide_what_is_seen() -> None:
    loaded, _ = build("unilm")
    found = {seen.segments: seen for seen in measure_patterns(loaded)[0]}
    assert sorted(found) == [(2, 2), (3, 3), (4, 5), (5, 5)]
    sees: dict[tuple[int, ...], Callable[[int, int], bool]] = {
        (2, 2): lambda q, k: k <= q,
        (3, 3): lambda q, k: k >= q,
        (4, 5): lambda q, k: k < 16 or (k <= q and q >= 16),
    }
    for segments, see in sees.items():
        assert found[segments].shares.tolist() == share(see, 32, 32)


def test_layers_without_attention_by_the_pattern_have_none() -> None:
    assert measure_patterns(build("reformer")[0]) == ([], 0)


def test_numbers_are_spelled_in_ranges() -> None:
    assert spell([1, 2, 3, 7, 9, 10]) == "1-3, 7, 9-10"
    assert spell([]) == ""
