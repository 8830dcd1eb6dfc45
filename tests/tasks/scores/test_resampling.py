"""Scores of draws by sums, against the score itself of the rows that are drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from plmctl.tasks.scores import metrics, rouge, written
from plmctl.tasks.scores import relation as relation_score
from plmctl.tasks.scores import squad as squad_score
from plmctl.tasks.scores.resampling import RankCorrelation, Sums, Whole, find_forms

RNG = np.random.default_rng(5)
WORDS = ["a", "red", "house", "is", "the", "old", "one"]


def labels(names: list[str], n: int = 40) -> list[dict[str, Any]]:
    return [
        {"gold": str(g), "guess": str(g if right else p)}
        for g, p, right in zip(
            RNG.choice(names, n), RNG.choice(names, n), RNG.random(n) < 0.5, strict=True
        )
    ]


def tags() -> list[dict[str, Any]]:
    names = ["O", "B-X", "I-X", "B-Y"]
    sizes = RNG.integers(1, 6, size=20)
    return [{side: RNG.choice(names, n).tolist() for side in ("gold", "guess")} for n in sizes]


def texts() -> list[dict[str, Any]]:
    return [
        {
            "golds": [" ".join(RNG.choice(WORDS, 6)) for _ in range(1 + n % 2)],
            "guess": " ".join(RNG.choice(WORDS, 5)),
        }
        for n in range(15)
    ]


def by_labels(rows: Any) -> dict[str, float]:
    gold, guess = [row["gold"] for row in rows], [row["guess"] for row in rows]
    return {name: score(gold, guess) for name, score in metrics.by_name("b").items()}


def by_numbers(rows: Any) -> dict[str, float]:
    gold, guess = [row["gold"] for row in rows], [row["guess"] for row in rows]
    return {name: score(gold, guess) for name, score in metrics.CORRELATIONS.items()}


def by_tags(rows: Any) -> dict[str, float]:
    gold, guess = [row["gold"] for row in rows], [row["guess"] for row in rows]
    flat = [[tag for tags in side for tag in tags] for side in (gold, guess)]
    return {**metrics.entity_scores(gold, guess), "accuracy": metrics.accuracy(*flat)}


def by_relation(rows: Any) -> dict[str, float]:
    gold, guess = [row["gold"] for row in rows], [row["guess"] for row in rows]
    return dict(relation_score.score_all(gold, guess, "b"))


def by_rouge(rows: Any) -> dict[str, float]:
    golds, guesses = [row["golds"] for row in rows], [row["guess"] for row in rows]
    return {name: rouge.mean(name, golds, guesses) for name in ("rouge1", "rougeL")}


def numbers() -> list[dict[str, Any]]:
    return [{"gold": float(x), "guess": float(x + y)} for x, y in RNG.normal(size=(30, 2))]


CASES: dict[str, tuple[list[dict[str, Any]], Callable[..., Any], set[str]]] = {
    "labels": (labels(["a", "b", "c"]), by_labels, set()),
    "numbers": (numbers(), by_numbers, set()),
    "tags": (tags(), by_tags, set()),
    "relations": (labels(["a", "b", "c"]), by_relation, {"precision", "recall", "f1"}),
    "summaries": (texts(), by_rouge, set()),
    "answers": (texts(), squad_score.score_v1, set()),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_every_draw_has_the_score_of_its_rows(case: str) -> None:
    rows, score, slow = CASES[case]
    names = sorted(score(rows))
    forms = find_forms(rows, score, names)
    picks = np.random.default_rng(9).integers(len(rows), size=(6, len(rows)))
    for name in names:
        wanted = [score([rows[index] for index in row])[name] for row in picks]
        assert forms[name](picks) == pytest.approx(wanted, abs=1e-9), name
    assert slow <= {name for name in names if isinstance(forms[name], Whole)}
    if case != "relations":  # whose averages without a label are no plain sums
        assert {name for name in names if isinstance(forms[name], Whole)} == slow


def test_ranks_of_every_draw_correlate_as_in_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    values = RNG.integers(6, size=(2, 40)).astype(float) * [[0.1], [1e70]]  # with ties
    rows = [{"gold": x, "guess": y} for x, y in values.T.tolist()]
    form = find_forms(rows, by_numbers, ["spearman"])["spearman"]
    assert isinstance(form, RankCorrelation)
    picks = RNG.integers(40, size=(30, 40))
    wanted = [stats.spearmanr(*values[:, row]).statistic for row in picks]
    assert form(picks) == pytest.approx(wanted, abs=1e-14)
    assert form(np.zeros((1, 5), int)) == [0]  # constant: it has no correlation
    infinite = [*rows, {"gold": 1.0, "guess": float("inf")}]
    assert isinstance(find_forms(infinite, by_numbers, ["spearman"])["spearman"], Whole)


def test_bleu_is_one_of_sums() -> None:
    pytest.importorskip("sacrebleu")
    rows = texts()

    def score(rows: Any) -> dict[str, float]:
        return written.score(rows, ["bleu"], tokenize="13a", lowercase=False)[0]

    form = find_forms(rows, score, ["bleu"])["bleu"]
    assert isinstance(form, Sums)
    picks = np.random.default_rng(2).integers(len(rows), size=(4, len(rows)))
    wanted = [score([rows[index] for index in row])["bleu"] for row in picks]
    assert form(picks) == pytest.approx(wanted)
