"""Pictures of patterns: shares of pairs by loops over queries and keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from plmctl.analysis.patterns import SeenPatterns, evaluate
from plmctl.attention.patterns.base import Pattern
from plmctl.attention.patterns.causal import Causal
from plmctl.attention.patterns.global_tokens import Global
from plmctl.attention.patterns.prefix import CausalWithPrefix
from plmctl.attention.patterns.window import Window
from plmctl.report.page import Chart, Folded, Heading, Paragraph, TableBlock
from plmctl.report.panels.patterns import panel, spell
from plmctl.report.subject import Subject
from tests.analysis.built import build


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
        begin, _ = evaluate(pattern, segments, 7, tokens=14)
        assert begin.tolist() == [pytest.approx(line, abs=1e-6) for line in share(sees, 14, 7)]


def test_layers_and_heads_that_differ_have_a_picture_each() -> None:
    words = ["pattern=windows", "pattern.reach=[[1,3],2,2]", "pattern.causal=true"]
    loaded, subject = build("gpt2", *words, "size.num_layers=3", "format.max_length=16")
    measured = SeenPatterns.of(loaded)
    assert measured is not None
    found = measured.shown
    assert measured.count == 3
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


def test_runs_share_pictures_of_equal_patterns_alone() -> None:
    long, words = "format.max_length=300", ["causal", "anticausal", "causal"]
    runs = []
    for name, word in zip("abc", words, strict=True):
        loaded, subject = build("gpt2", f"pattern={word}", long)
        runs.append(replace(subject.runs[0], name=name))
        vars(runs[-1])["loaded"] = loaded
    blocks = panel(Subject(runs))
    titles = [block.text for block in blocks if isinstance(block, Heading)]
    assert titles == ["Who sees whom", "a, c", "b"]  # as many pairs are seen in b
    shown = [Paragraph, Chart, Folded, TableBlock]
    assert [type(block) for block in blocks] == [Heading, Heading, *shown, Heading, *shown]


def test_a_long_row_is_reduced_and_its_beginning_is_larger() -> None:
    words = ["pattern=window", "pattern.reach=20", "format.max_length=300"]
    loaded, subject = build("bert", *words)
    measured = SeenPatterns.of(loaded)
    assert measured is not None
    (seen,) = measured.shown
    wanted = share(lambda q, k: abs(q - k) <= 20, 300, 64)
    assert seen.shares.tolist() == [pytest.approx(line, abs=1e-6) for line in wanted]
    assert seen.begin is not None
    wanted = share(lambda q, k: abs(q - k) <= 20, 256, 64)
    assert seen.begin.tolist() == [pytest.approx(line, abs=1e-6) for line in wanted]
    _, text, _, begin, _ = panel(subject)
    assert isinstance(text, Paragraph)
    assert "The row has 300 tokens, reduced to 64 lines" in text.text
    assert isinstance(begin, Folded)
    assert begin.title == "The first 256 tokens, larger"
    assert [type(block) for block in begin.blocks] == [Chart]


def test_segments_that_decide_what_is_seen() -> None:
    loaded, _ = build("unilm")
    measured = SeenPatterns.of(loaded)
    assert measured is not None
    found = {seen.segments: seen for seen in measured.shown}
    assert sorted(found) == [(2, 2), (3, 3), (4, 5), (5, 5)]
    sees: dict[tuple[int, ...], Callable[[int, int], bool]] = {
        (2, 2): lambda q, k: k <= q,
        (3, 3): lambda q, k: k >= q,
        (4, 5): lambda q, k: k < 16 or (k <= q and q >= 16),
    }
    for segments, see in sees.items():
        assert found[segments].shares.tolist() == share(see, 32, 32)


def test_layers_without_attention_by_the_pattern_have_none() -> None:
    assert SeenPatterns.of(build("reformer")[0]) is None


def test_numbers_are_spelled_in_ranges() -> None:
    assert spell([1, 2, 3, 7, 9, 10]) == "1-3, 7, 9-10"
    assert spell([]) == ""
