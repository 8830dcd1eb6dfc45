"""Intervals of scores: against draws one by one, and against Google's bootstrap of ROUGE."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plmctl.report.panels.scores import panel
from plmctl.report.subject import find_subject
from plmctl.tasks import intervals, rouge, written
from plmctl.tasks.bundles import bundle_rows, score_bundles
from plmctl.tasks.intervals import bootstrap
from plmctl.tasks.label_score import score_labels
from tests.report import fabricated

WORDS = ["a", "red", "house", "is", "the", "old", "one"]
NAMES = ["rouge1", "rouge2", "rougeL", "rougeLsum", "exact", "perplexity", "bleu", "distinct1"]


def make_rows(count: int, seed: int = 0) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    return [
        {
            "id": str(n),
            "golds": [" ".join(draw.choices(WORDS, k=6)) for _ in range(1 + n % 2)],
            "guess": " ".join(draw.choices(WORDS, k=5)),
            "nll": draw.random() * 9,
            "tokens": draw.randint(3, 9),
        }
        for n in range(count)
    ]


def score(rows: Any, names: list[str] = NAMES) -> dict[str, float]:
    return written.score(rows, names, tokenize="13a", lowercase=False)[0]


@pytest.mark.slow  # the formula stays
def test_every_draw_is_scored_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sacrebleu")
    monkeypatch.setattr(intervals, "SAMPLES", 200)
    rows = make_rows(25)
    found = bootstrap(rows, score, NAMES, seed=3)
    assert set(found) == set(NAMES) - {"distinct1"}  # whose n-grams are those of all texts
    rng, drawn = np.random.default_rng(3), []
    for _ in range(200):
        drawn.append(score([rows[index] for index in rng.integers(25, size=25)], list(found)))
    for name, pair in found.items():
        values = sorted(each[name] for each in drawn)
        # 2.5% of 200 draws are below, 2.5% above
        for value, at in zip(pair, (5, 195), strict=True):
            assert values[at - 1] - 1e-9 <= value <= values[at] + 1e-9, name
        assert pair[0] <= score(rows)[name] <= pair[1]
    assert found == bootstrap(rows, score, NAMES, seed=3)
    assert found != bootstrap(rows, score, NAMES, seed=4)


def test_rouge_as_google_draws_it() -> None:
    scoring = pytest.importorskip("rouge_score.scoring")
    rows = make_rows(80, seed=1)
    single = [
        {name: rouge.mean(name, [row["golds"]], [row["guess"]]) for name in rouge.METRICS}
        for row in rows
    ]
    np.random.seed(0)  # of their draws
    theirs = scoring.BootstrapAggregator()
    for each in single:
        theirs.add_scores({name: scoring.Score(0, 0, value) for name, value in each.items()})
    ours = bootstrap(rows, score, list(rouge.METRICS), seed=0)
    for name, one in theirs.aggregate().items():
        spread = np.std([each[name] for each in single]) / 80**0.5
        # two samples of 1,000: an outer percentile varies by 0.08 of a standard error
        assert ours[name] == pytest.approx((one.low.fmeasure, one.high.fmeasure), abs=0.4 * spread)


def test_bundles_are_drawn_whole() -> None:
    """Twelve questions of five answers that are all right or all wrong are twelve draws."""
    rows = [
        {"id": str(n), "gold": "1", "guess": str(n // 5 % 2), "bundle": str(n // 5)}
        for n in range(60)
    ]

    def accuracy(rows: Any) -> dict[str, float]:
        return score_labels(rows, ["accuracy"], positive="1")

    low, high = bootstrap(rows, accuracy, ["accuracy"], seed=0)["accuracy"]
    whole = bootstrap(bundle_rows(rows), score_bundles(accuracy), ["accuracy"], seed=0)["accuracy"]
    assert whole[1] - whole[0] > 1.8 * (high - low)  # 5 ** 0.5 is 2.2


def test_a_report_shows_them(tmp_path: Path) -> None:
    metrics = {"dev": {"rouge1": 31.5, "loss": 2.0}}
    folder = fabricated.tuned(tmp_path / "r", {"name": "summarization"}, metrics)
    file = folder / "result.json"
    known = json.loads(file.read_text())
    page = panel(find_subject([folder]))
    assert "bootstrap" not in str(page)
    file.write_text(json.dumps({**known, "intervals": {"dev": {"rouge1": [30.25, 32.75]}}}))
    page = panel(find_subject([folder]))
    assert "31.5 (30.25 to 32.75)" in str(page)
    assert "bootstrap" in str(page)
