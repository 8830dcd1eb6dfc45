"""Intervals of scores: against draws one by one, and against Google's bootstrap of ROUGE."""

from __future__ import annotations

import json
import random
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from plmctl.report.panels.scores import panel
from plmctl.report.subject import find_subject
from plmctl.report.text import describe_method, spell_within
from plmctl.tasks import intervals
from plmctl.tasks.intervals import bootstrap, describe_scores, wilson
from plmctl.tasks.scores import rouge, written
from plmctl.tasks.scores.bundles import add_bundles, bundle_rows, score_bundles
from plmctl.tasks.scores.class_counts import ClassMean, Counts, matthews
from plmctl.tasks.scores.label_sets import score_sets
from plmctl.tasks.scores.labels import LabelScores, score_labels
from plmctl.tasks.scores.metrics import pearson
from plmctl.tasks.scores.relation import score_all
from plmctl.tasks.scores.resampling import find_forms
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
    right = sum(each["exact"] > 0 for each in (score([row], ["exact"]) for row in rows))
    assert found.pop("exact") == pytest.approx([100 * end for end in wilson(right, 25)])
    for name, pair in found.items():
        values = sorted(each[name] for each in drawn)
        # 2.5% of 200 draws are below, 2.5% above
        for value, at in zip(pair, (5, 195), strict=True):
            assert values[at - 1] - 1e-9 <= value <= values[at] + 1e-9, name
        assert pair[0] <= score(rows)[name] <= pair[1]
    again = bootstrap(rows, score, NAMES, seed=3)
    assert found == {name: again[name] for name in found}
    assert found != bootstrap(rows, score, [*found], seed=4)


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


def test_remarks_on_scores_name_bundles_and_rare_classes() -> None:
    known: Any = SimpleNamespace(scores=LabelScores(), metrics=["accuracy", "macro_f1"])
    rows = [
        {"id": str(n), "gold": "a" if n else "b", "guess": "c" if n == 1 else "a"}
        for n in range(12)
    ]
    (line,) = describe_scores(known, rows).values()
    assert "the mean of 3 classes" in line
    assert line.endswith("fewer than 10 rows have: c 0, b 1")
    named = [{**row, "bundle": str(n // 4)} for n, row in enumerate(rows)]
    assert "over 3 bundles" in describe_scores(known, named)["intervals"]
    assert "3 bundles are few" in describe_scores(known, named)["intervals"]
    result = add_bundles({"metrics": {}}, {"dev": named, "test": rows})  # of an earlier version
    assert result == {"bundles": {"dev": 3}, "metrics": {}}
    assert spell_within(result, "dev").startswith(" in 3 bundles (3 bundles are few")
    assert spell_within(result, "test") == ""
    assert "for a share of examples, such as accuracy, Wilson's formula" in describe_method(False)
    assert "1,000 random draws of whole bundles" in describe_method(True)
    assert "Where examples are in bundles: " in describe_method(True, False)


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


def by_table(table: list[list[int]]) -> list[dict[str, str]]:
    """Rows of gold labels (lines) and guesses (columns)."""
    return [
        {"id": f"{g}{p}{n}", "gold": str(g), "guess": str(p)}
        for g, line in enumerate(table)
        for p, count in enumerate(line)
        for n in range(count)
    ]


def by_class(rows: Any) -> dict[str, float]:
    return score_labels(rows, ["macro_f1", "accuracy"])


@pytest.mark.parametrize(
    ("table", "f1", "error"),
    [
        ([[40, 10], [5, 45]], 0.84962, 0.03579),
        ([[50, 5, 0], [4, 20, 6], [1, 2, 2]], 0.63951, 0.0668),
    ],
)
def test_a_mean_over_frequent_classes_is_that_of_the_delta_method(
    table: list[list[int]], f1: float, error: float
) -> None:
    """Worked by hand: `E[influence^2] / n` is the squared standard error."""
    rows = by_table(table)
    assert by_class(rows)["macro_f1"] == pytest.approx(f1, abs=1e-5)
    form = find_forms(rows, by_class, ["macro_f1"])["macro_f1"]
    assert isinstance(form, ClassMean)
    low, high = bootstrap(rows, by_class, ["macro_f1"], seed=0)["macro_f1"]
    wanted = (f1 - 1.96 * error, f1 + 1.96 * error)
    assert (low, high) == pytest.approx(wanted, abs=0.3 * error)


def test_labels_that_a_draw_misses_do_not_leave_the_mean() -> None:
    """120 labels of four rows: the interval is about the score."""
    draw = random.Random(0)
    rows = [
        {
            "id": str(n),
            "gold": str(n % 120),
            "guess": str(n % 120 if draw.random() < 0.1 else n % 5),
        }
        for n in range(480)
    ]
    found = by_class(rows)["macro_f1"]
    low, high = bootstrap(rows, by_class, ["macro_f1"], seed=0)["macro_f1"]
    assert abs((low + high) / 2 - found) < 0.1 * (high - low)
    # as it was: each draw over its own labels
    drawn = [by_class(draw.choices(rows, k=len(rows)))["macro_f1"] for _ in range(100)]
    assert abs(np.mean(drawn) - found) > 0.3 * (high - low)


def test_a_label_that_every_draw_may_miss_is_no_error() -> None:
    """All right, labels 0, 0, 0, 1: of draws with absent labels as 0 the mean is .84."""
    rows = by_table([[3, 0], [0, 1]])
    form = find_forms(rows, by_class, ["macro_f1"])["macro_f1"]
    assert (form(np.array([[0, 1, 2, 0], [3, 3, 3, 3]])) == 1).all()
    assert "macro_f1" not in bootstrap(rows, by_class, ["macro_f1"], seed=0)


def test_few_rows_say_little() -> None:
    """Wilson, 1927: 8 of 10, 0 of 10; 0 of 4 is no interval from 0 to 0."""
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    found = bootstrap(by_table([[0, 2], [2, 0]]), by_class, ["accuracy", "macro_f1"], seed=0)
    assert found == {"accuracy": pytest.approx((0.0, 0.4899), abs=1e-4)}
    rows = [{"id": str(n), "golds": ["a b"], "guess": "c"} for n in range(4)]
    exact = bootstrap(rows, lambda rows: score(rows, ["exact"]), ["exact"], seed=0)["exact"]
    assert exact == pytest.approx((0.0, 48.99), abs=1e-2)
    numbers = [{"id": str(n), "gold": float(n), "guess": 1.0} for n in range(4)]

    def correlate(rows: Any) -> dict[str, float]:
        return {"pearson": pearson([r["gold"] for r in rows], [r["guess"] for r in rows])}

    assert bootstrap(numbers, correlate, ["pearson"], seed=0) == {}


def test_correlations_of_one_guess_are_no_shares() -> None:
    """Matthews' correlation of a constant guess is 0, of how many rows ever."""

    def correlate(rows: Any) -> dict[str, float]:
        return score_labels(rows, ["matthews"])

    assert bootstrap(by_table([[20, 0], [20, 0]]), correlate, ["matthews"], seed=0) == {}


def test_the_mean_of_two_metrics_has_an_interval() -> None:
    rows = by_table([[8, 2, 1], [1, 9, 0], [2, 1, 3]])

    def both(rows: Any) -> dict[str, float]:
        return score_labels(rows, ["mean", "accuracy", "macro_f1"])

    low, high = bootstrap(rows, both, ["mean", "accuracy", "macro_f1"], seed=0)["mean"]
    assert low < both(rows)["mean"] < high


def test_means_over_classes_as_scikit_learn_has_them() -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    draw = random.Random(4)
    labels = ["none", "a", "b", "c", "d"]
    gold = [draw.choice(labels) for _ in range(60)]
    guess = [g if draw.random() < 0.4 else draw.choice(labels) for g in gold]
    rows = [{"gold": g, "guess": p} for g, p in zip(gold, guess, strict=True)]

    def measure(rows: Any) -> dict[str, float]:
        pair = [row["gold"] for row in rows], [row["guess"] for row in rows]
        own = sklearn.precision_recall_fscore_support(
            *pair, labels=sorted({*pair[0], *pair[1]} - {"none"}), average="macro", zero_division=0
        )
        return {
            **dict(zip(("precision", "recall", "f1"), own, strict=False)),
            "balanced": sklearn.balanced_accuracy_score(*pair),
        }

    forms = find_forms(rows, measure, ["precision", "recall", "f1", "balanced"])
    assert all(isinstance(form, ClassMean) for form in forms.values())
    picks = np.random.default_rng(1).integers(60, size=(2, 60))
    drawn = [measure([rows[n] for n in row]) for row in picks]
    for name, form in forms.items():
        np.testing.assert_allclose(form(picks), [each[name] for each in drawn], atol=1e-12)


def test_sets_of_labels_and_directed_relations() -> None:
    draw = random.Random(3)
    names = ["x", "y", "z", "w"]
    sets = [
        {
            "gold": draw.sample(names, draw.randint(0, 3)),
            "guess": draw.sample(names, draw.randint(0, 3)),
            "probabilities": dict.fromkeys(names, 0.5),
        }
        for _ in range(30)
    ]
    kinds = ["A(e1,e2)", "A(e2,e1)", "B(e1,e2)", "Other"]
    relations = [{"gold": draw.choice(kinds), "guess": draw.choice(kinds)} for _ in range(40)]

    def of_sets(rows: Any) -> dict[str, float]:
        return score_sets([r["gold"] for r in rows], [r["guess"] for r in rows], names)

    def of_relations(rows: Any) -> dict[str, float]:
        return dict(score_all([r["gold"] for r in rows], [r["guess"] for r in rows], "Other"))

    for rows, measure, prefix in ((sets, of_sets, "macro"), (relations, of_relations, "semeval")):
        asked = [f"{prefix}_{part}" for part in ("f1", "precision", "recall")]
        forms = find_forms(rows, measure, asked)
        assert all(isinstance(form, ClassMean) for form in forms.values()), prefix
        found = bootstrap(rows, measure, asked, seed=0)
        assert all(found[name][0] < measure(rows)[name] < found[name][1] for name in asked)


def test_thousands_of_labels_take_little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linear in labels and rows: a table of labels by labels alone would take 72 MB."""
    monkeypatch.setattr(intervals, "SAMPLES", 20)
    rows = [{"id": str(n), "gold": f"l{n}", "guess": f"l{n // 2}"} for n in range(3000)]

    def measure(rows: Any) -> dict[str, float]:
        return score_labels(rows, ["macro_f1", "matthews", "accuracy"])

    tracemalloc.start()
    found = bootstrap(rows, measure, ["macro_f1", "matthews", "accuracy"], seed=0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert set(found) == {"macro_f1", "matthews", "accuracy"}
    assert peak < 40e6


def test_counts_of_several_labels_warn_of_no_correlation(recwarn: pytest.WarningsRecorder) -> None:
    counts = Counts(*(np.array([each]) for each in ([1, 0, 1], [1, 1, 0], [3, 3, 3])))
    assert np.isfinite(matthews(counts)).all()
    assert not recwarn.list


def test_draws_of_a_mean_over_classes_are_moved_to_its_score() -> None:
    """Two of five classes have one row each, which a third of the draws misses."""
    rows = by_table(
        [[9, 1, 0, 0, 0], [1, 6, 0, 0, 0], [0, 0, 4, 1, 0], [0, 0, 0, 1, 0], [1] + [0] * 4]
    )
    picks = np.random.default_rng(0).integers(len(rows), size=(1000, len(rows)))
    drawn = np.array([by_class([rows[n] for n in row])["macro_f1"] for row in picks])
    moved = drawn + by_class(rows)["macro_f1"] - drawn.mean()
    wanted = np.quantile(moved, [0.025, 0.975]).clip(0, 1)
    found = bootstrap(rows, by_class, ["macro_f1"], seed=0)["macro_f1"]
    assert found == pytest.approx(tuple(wanted))
    assert abs(drawn.mean() - by_class(rows)["macro_f1"]) > 0.01
