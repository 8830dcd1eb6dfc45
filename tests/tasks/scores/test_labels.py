"""Scores of labels over everything, over bundles and over slices, against loops over the
published definitions.
"""

from __future__ import annotations

import random
import statistics
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from plmctl.core.errors import ConfigError
from plmctl.tasks.answers.number import NumberAnswer
from plmctl.tasks.record import Example
from plmctl.tasks.scores.label_sets import SetScores
from plmctl.tasks.scores.labels import LabelScores, score_labels
from plmctl.tasks.scores.numbers import NumberScores


def predict(*rows: tuple[str, str, str]) -> list[dict[str, Any]]:
    """Of (gold, guess, bundle)."""
    return [{"gold": gold, "guess": guess, "bundle": bundle} for gold, guess, bundle in rows]


def count_multirc(rows: list[tuple[str, str, str]]) -> tuple[float, float]:
    """(F1a, EM) by Khashabi et al. (2018): F1 of right answers over all options of all questions,
    and the share of questions whose options are all judged right.
    """
    right = said = there = 0
    questions: dict[str, bool] = {}
    for gold, guess, question in rows:
        right += gold == guess == "1"
        said += guess == "1"
        there += gold == "1"
        questions[question] = questions.get(question, True) and gold == guess
    precision = right / said if said else 0
    recall = right / there if there else 0
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0
    return f1, sum(questions.values()) / len(questions)


@pytest.mark.parametrize("seed", range(20))
def test_multirc_counts_options_and_questions(seed: int) -> None:
    draw = random.Random(seed)
    rows = [
        (draw.choice("01"), draw.choice("01"), str(draw.randrange(9)))
        for _ in range(draw.randint(1, 30))
    ]
    found = score_labels(predict(*rows), ["mean", "f1", "exact"], "1")
    f1, exact = count_multirc(rows)
    assert (found["f1"], found["exact"]) == pytest.approx((f1, exact), abs=1e-12)
    assert found["mean"] == pytest.approx((f1 + exact) / 2, abs=1e-12)


def test_commitment_bank_is_the_mean_of_accuracy_and_macro_f1() -> None:
    draw = random.Random(0)
    names = ["contradiction", "entailment", "neutral"]
    gold, guess = ([draw.choice(names) for _ in range(57)] for _ in range(2))
    rows = [{"gold": g, "guess": p} for g, p in zip(gold, guess, strict=True)]
    found = score_labels(rows, ["mean", "accuracy", "macro_f1"])
    f1 = []
    for name in names:
        right = sum(g == p == name for g, p in zip(gold, guess, strict=True))
        precision, recall = right / guess.count(name), right / gold.count(name)
        f1.append(2 * precision * recall / (precision + recall))
    accuracy = sum(g == p for g, p in zip(gold, guess, strict=True)) / 57
    assert found["mean"] == pytest.approx((accuracy + statistics.fmean(f1)) / 2, abs=1e-12)


def test_parity_asks_for_equal_answers_not_for_right_ones() -> None:
    pairs = [("a", "b", "1"), ("a", "b", "1"), ("a", "a", "2"), ("a", "b", "2")]
    found = score_labels(predict(*pairs), ["accuracy", "parity"])
    assert (found["accuracy"], found["parity"]) == (0.25, 0.5)


def test_an_example_without_a_bundle_stands_alone() -> None:
    rows = [{"gold": "a", "guess": guess} for guess in "aab"]
    assert score_labels(rows, ["exact", "accuracy"])["exact"] == pytest.approx(2 / 3)


def test_slices_overlap_and_one_of_everything_is_left_out() -> None:
    rows = [
        {"gold": "a", "guess": "a", "slices": ["all", "x"]},
        {"gold": "b", "guess": "a", "slices": ["all", "x", "y"]},
        {"gold": "b", "guess": "b", "slices": ["all"]},
    ]
    found = score_labels(rows, ["accuracy", "macro_f1"])
    assert {name: v for name, v in found.items() if "/" in name} == {
        "accuracy/x": 0.5,
        "accuracy/y": 0.0,
    }


def test_slices_of_numbers_and_of_sets_are_scored_as_the_whole_is() -> None:
    numbers = np.random.default_rng(0).normal(size=(2, 12))
    rows: list[dict[str, Any]] = [
        {"gold": float(x), "guess": float(y), "slices": [language]}
        for x, y, language in zip(*numbers, "de" * 6, strict=True)
    ]
    found = NumberScores()(rows, ["pearson", "spearman"])
    assert [*found] == ["pearson", "spearman", "pearson/d", "pearson/e"]
    for language in "de":
        own = [(r["gold"], r["guess"]) for r in rows if r["slices"] == [language]]
        wanted = np.corrcoef(*zip(*own, strict=True))[0, 1]
        assert found[f"pearson/{language}"] == pytest.approx(wanted)
    sets = [
        {"gold": ["a"], "guess": ["a"], "probabilities": {"a": 0.9, "b": 0.1}, "slices": ["de"]},
        {"gold": ["b"], "guess": ["a"], "probabilities": {"a": 0.9, "b": 0.1}, "slices": ["en"]},
    ]
    found = SetScores()(sets, ["subset_accuracy"])
    assert (found["subset_accuracy/de"], found["subset_accuracy/en"]) == (1, 0)


def test_a_predicted_number_keeps_the_slices_of_its_example() -> None:
    example = Example("7", {"text": "x"}, None, "t:1", slices=("de",), bundle="b")
    rows: Any = SimpleNamespace(values={"example": np.array([0])})
    (found,) = NumberAnswer().predict(np.array([0.5]), rows, [example], None)
    assert found == {"id": "7", "gold": None, "guess": 0.5, "slices": ["de"], "bundle": "b"}


def test_the_floor_of_a_mean_is_the_best_constant_answer() -> None:
    rows = predict(("1", "1", "p"), ("0", "0", "q"), ("0", "1", "r"))
    found = score_labels(rows, ["mean", "f1", "exact"], "1")
    assert found["constant_mean"] == pytest.approx(max((0.5 + 1 / 3) / 2, (0 + 2 / 3) / 2))


def test_nothing_to_score() -> None:
    assert score_labels([], ["mean", "accuracy", "exact", "parity"])["mean"] == 0


def test_a_mean_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="with others, of which it is the mean"):
        LabelScores().check(["mean"])
