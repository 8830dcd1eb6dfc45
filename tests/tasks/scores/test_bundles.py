"""Bundles of predictions are drawn, swapped and counted as a whole."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plmctl.tasks.intervals import describe_bundled
from plmctl.tasks.record import Example
from plmctl.tasks.scores.bundles import (
    bundle_rows,
    count_bundles,
    group_bundles,
    remark_alone,
    remark_few,
    score_bundles,
)
from plmctl.tasks.scores.labels import score_labels
from plmctl.tasks.scores.resampling import Whole, find_forms
from plmctl.tasks.splits import describe_bundles

SCORE = partial(score_labels, names=["f1", "exact", "parity"], positive="1")


def make_rows(draw: random.Random) -> list[dict[str, Any]]:
    return [
        {
            "id": f"{question}.{answer}",
            "gold": draw.choice("01"),
            "guess": draw.choice("01"),
            "bundle": str(question),
        }
        for question in range(12)
        for answer in range(draw.randint(1, 3))
    ]


def test_a_bundle_drawn_twice_counts_twice() -> None:
    rows = make_rows(random.Random(1))
    units = bundle_rows(rows)
    assert len(units) == 12
    score = score_bundles(SCORE)
    assert score(units) == SCORE(rows)
    right = [unit["gold"] == unit["guess"] for unit in units]
    drawn = [3, 3, 3, 0, 7]
    assert score([units[n] for n in drawn])["exact"] == np.mean([right[n] for n in drawn])


def test_rows_without_a_bundle_count_as_one_each() -> None:
    """The same number in training, in evaluation and in scores of bundles, whatever the ids."""
    names = ["Ann", "Ann", "", None, "  ", "Bob"]
    rows = [
        {"id": "x", "gold": "1", "guess": str(int(n < 4)), "bundle": name}
        for n, name in enumerate(names)
    ]
    assert group_bundles(rows) == [[0, 1], [2], [3], [4], [5]]
    assert count_bundles(rows) == len(bundle_rows(rows)) == 5
    assert count_bundles(rows[2:5]) is None
    assert remark_alone(rows) == "3 rows without a bundle count as one each"
    assert remark_alone(rows[3:4]) == remark_alone(rows[:2]) == ""
    assert SCORE(rows)["exact"] == 3 / 5
    assert "over 5 bundles: " in (said := describe_bundled(rows))
    assert said.endswith("; 3 rows without a bundle count as one each; " + remark_few(5))
    examples = [Example("x", {"text": str(n)}, bundle=name or "") for n, name in enumerate(names)]
    blank = [replace(each, bundle=each.bundle.strip()) for each in examples]
    line = "3 bundles in train, 2 in dev, none in both; 3 rows without a bundle count as one each"
    assert describe_bundles(blank[:4], blank[4:]) == line
    assert describe_bundles(blank[2:4], []) == ""


@pytest.mark.parametrize("name", ["f1", "exact", "parity"])
def test_scores_of_bundles_are_sums(name: str) -> None:
    units = bundle_rows(make_rows(random.Random(2)))
    score = score_bundles(SCORE)
    form = find_forms(units, score, [name])[name]
    assert not isinstance(form, Whole)
    picks = np.random.default_rng(5).integers(len(units), size=(6, len(units)))
    wanted = [score([units[n] for n in row])[name] for row in picks]
    np.testing.assert_allclose(form(picks), wanted, atol=1e-12)


def test_compare_counts_bundles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from plmctl.report.compare import compare

    for name, seed in (("a", 3), ("b", 3)):
        rows = make_rows(random.Random(seed))
        if name == "b":
            rows[0]["guess"] = rows[0]["gold"]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{name}.jsonl").write_text(text)
    compare(tmp_path / "a.jsonl", tmp_path / "b.jsonl", samples=100)
    out = capsys.readouterr().out
    assert f"{len(rows)} examples in 12 bundles" in out
    assert "100 random draws of whole bundles, the same for both (paired bootstrap)" in out
    assert "; 12 bundles are few" in out
    assert "right in a alone: 0 examples; in b alone: 1; more right in a: 0 bundles; in b: 1" in out
    assert "sign test of bundles: p 1.0000 (exact, not corrected)" in out


def test_bundles_are_tested_by_their_right_answers() -> None:
    """The sign test: 2 (C(5, 0) + C(5, 1)) / 2^5 of four bundles against one, and two equal."""
    from plmctl.analysis.paired import count_discordant

    found = count_discordant([3, 2, 5, 1, 0, 4, 4], [1, 1, 1, 0, 2, 4, 4])
    assert (found.first, found.second, found.exact) == (4, 1, 12 / 32)
