"""Scores of relations, against loops that count as their definitions say."""

from __future__ import annotations

import random

import pytest

from plmctl.tasks.scores.relation import score_all

KINDS = ["Cause-Effect", "Component-Whole", "Message-Topic"]
LABELS = [f"{kind}({order})" for kind in KINDS for order in ("e1,e2", "e2,e1")] + ["Other"]


def draw(seed: int, names: list[str]) -> tuple[list[str], list[str]]:
    rng = random.Random(seed)
    gold = [rng.choice(names) for _ in range(60)]
    return gold, [g if rng.random() < 0.5 else rng.choice(names) for g in gold]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_semevals_official_score(seed: int) -> None:
    """A confusion table of undirected relations with a column of its own for guesses of the wrong
    direction, as the official scorer prints it.
    """
    gold, guess = draw(seed, LABELS)
    total = [0.0, 0.0, 0.0]
    for kind in KINDS:
        correct = wrong_direction = proposed = answer = 0
        for g, p in zip(gold, guess, strict=True):
            of_gold, of_guess = g.startswith(kind), p.startswith(kind)
            answer += of_gold
            if of_gold and of_guess and g != p:
                wrong_direction += 1
            elif of_guess:
                proposed += 1
                correct += g == p
        precision = correct / (proposed + wrong_direction) if proposed + wrong_direction else 0
        recall = correct / answer if answer else 0
        f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0
        total = [a + b for a, b in zip(total, (precision, recall, f1), strict=True)]
    scores = score_all(gold, guess, "Other")
    found = [scores[f"semeval_{name}"] for name in ("precision", "recall", "f1")]
    assert found == pytest.approx([each / len(KINDS) for each in total])


def test_a_relation_that_is_only_guessed_counts_as_a_wrong_guess_of_no_kind() -> None:
    gold, guess = ["A-B(e1,e2)", "Other"], ["A-B(e1,e2)", "C-D(e1,e2)"]
    assert score_all(gold, guess, "Other")["semeval_f1"] == 1.0  # of the relations of the key
    assert score_all(gold, guess, "Other")["precision"] == 0.5


def test_micro_is_tacreds() -> None:
    gold, guess = draw(5, ["no_relation", "a", "b", "c"])
    right = guessed = present = 0
    for g, p in zip(gold, guess, strict=True):
        if p == "no_relation":
            present += g != "no_relation"
        elif g == "no_relation":
            guessed += 1
        else:
            right, guessed, present = right + (g == p), guessed + 1, present + 1
    precision, recall = right / guessed, right / present
    scores = score_all(gold, guess, "no_relation")
    assert (scores["precision"], scores["recall"]) == pytest.approx((precision, recall))
    assert scores["f1"] == pytest.approx(2 * precision * recall / (precision + recall))


def test_macro_is_sklearns() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    gold, guess = draw(6, ["a", "b", "c", "d"])
    scores = score_all(gold, guess, None)
    wanted = metrics.precision_recall_fscore_support(gold, guess, average="macro", zero_division=0)
    found = [scores[f"macro_{name}"] for name in ("precision", "recall", "f1")]
    assert found == pytest.approx(wanted[:3])
    labels = ["b", "c", "d"]  # a is no relation
    wanted = metrics.precision_recall_fscore_support(
        gold, guess, average="macro", zero_division=0, labels=labels
    )
    assert score_all(gold, guess, "a")["macro_f1"] == pytest.approx(wanted[2])


def test_nothing_guessed_and_nothing_there() -> None:
    assert set(score_all(["NA"], ["NA"], "NA").values()) == {0.0}
    assert set(score_all([], [], None).values()) == {0.0}
