"""CoQA's and QuAC's scores beside their definitions, on hand-made and 150 random conversations."""

from __future__ import annotations

import random
import re
import string
from collections import Counter
from typing import Any

import pytest

from plmctl.tasks.scores import coqa as coqa_score
from plmctl.tasks.scores import quac as quac_score

NONE = "CANNOTANSWER"
Rows = list[dict[str, Any]]


def words(text: str) -> list[str]:
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def shared(guess: str, gold: str) -> float:
    left, right = words(guess), words(gold)
    same = sum((Counter(left) & Counter(right)).values())
    if not same:
        return 0
    precision, recall = 1.0 * same / len(left), 1.0 * same / len(right)
    return (2 * precision * recall) / (precision + recall)


def official_coqa(rows: Rows) -> dict[str, float]:
    """Each answer of people is left out once, where there are several."""
    totals = {"em": 0.0, "f1": 0.0}
    for row in rows:
        golds = row["golds"]
        rounds = [golds[:n] + golds[n + 1 :] for n in range(len(golds))] if golds[1:] else [golds]
        for name in totals:
            total = 0.0
            for others in rounds:
                found = []
                for gold in others:
                    both = words(gold), words(row["guess"])
                    if name == "em" or not (both[0] and both[1]):
                        found.append(float(both[0] == both[1]))
                    else:
                        found.append(shared(row["guess"], gold))
                total += max(found)
            totals[name] += total / max(1, len(golds))
    return {name: 100 * total / len(rows) for name, total in totals.items()}


def official_quac(rows: Rows) -> dict[str, float]:
    def best(guess: str, golds: list[str]) -> float:
        return max(
            (1.0 if guess == NONE else 0.0) if gold == NONE else shared(guess, gold)
            for gold in golds
        )

    every, kept, equal, nothing = (list[float]() for _ in range(4))
    good = dict[str, float]()
    acts: dict[str, list[float]] = {"yes_no": [], "followup": []}
    for row in rows:
        golds = row["golds"]
        if 2 * golds.count(NONE) >= len(golds):
            golds = [NONE]
        golds = golds if golds == [NONE] else [gold for gold in golds if gold != NONE]
        rounds = [golds[:n] + golds[n + 1 :] for n in range(len(golds))]
        people, own = 1.0, best(row["guess"], golds)
        if len(golds) > 1:
            pairs = [
                max(shared(gold, other) for other in rounds[n]) for n, gold in enumerate(golds)
            ]
            people = sum(pairs) / len(pairs)
            own = sum(best(row["guess"], others) for others in rounds) / len(rounds)
        every.append(own)
        good.setdefault(row["dialogue"], 1)
        if people < 0.4:
            continue
        kept.append(own)
        equal.append(own >= people)
        if own < people:
            good[row["dialogue"]] = 0
        if golds == [NONE]:
            nothing.append(own)
        for name, right in acts.items():
            right.append(row[name] == row[f"gold_{name}"])
    lists = {"f1": kept, "heq_q": equal, "heq_d": list(good.values()), **acts}
    lists |= {"unfiltered_f1": every, "unanswerable": nothing}
    return {name: 100.0 * sum(own) / len(own) if own else 0.0 for name, own in lists.items()}


WORDS = ["a", "the", "cat", "Cat.", "black", "sat", "on", "mat", "!", "yes"]


def draw_text(draw: random.Random) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(1, 4)))


def test_150_random_conversations_of_coqa() -> None:
    draw = random.Random(0)
    for _ in range(150):
        rows = [
            {"golds": [draw_text(draw) for _ in range(draw.choice([1, 2, 4]))], "guess": guess}
            for guess in (draw_text(draw) for _ in range(draw.randint(1, 8)))
        ]
        assert coqa_score.score(rows) == pytest.approx(official_coqa(rows), rel=1e-12)


def test_150_random_conversations_of_quac() -> None:
    draw = random.Random(1)
    for _ in range(150):
        rows = []
        for number in range(draw.randint(1, 12)):
            golds = [draw.choice([draw_text(draw), NONE]) for _ in range(draw.randint(1, 5))]
            row = {"golds": golds, "guess": draw.choice([*golds, draw_text(draw)])}
            for name, kinds in (("yes_no", "ynx"), ("followup", "ymn")):
                row |= {name: draw.choice(kinds), f"gold_{name}": draw.choice(kinds)}
            rows.append({**row, "dialogue": str(number // 3)})
        assert quac_score.score(rows) == official_quac(rows)  # to the last digit


@pytest.mark.parametrize(
    ("golds", "guess", "f1", "em"),
    [
        (["cat"], "the cat", 100, 100),
        (["yes", "yes"], "Yes.", 100, 100),
        (["yes", "no"], "yes", 50, 50),  # right beside one of the two
        (["yes", "no", "yes"], "yes", 100, 100),  # one is left every time
        (["yes", "no", "no"], "yes", 200 / 3, 200 / 3),
        (["unknown"], "unknown", 100, 100),
        (["black cat", "cat"], "cat", (100 * 2 / 3 + 100) / 2, 50),
        (["the"], "a", 100, 100),  # nothing and nothing
        (["the"], "cat", 0, 0),
        (["two", "2"], "three", 0, 0),
    ],
)
def test_coqa_by_hand(golds: list[str], guess: str, f1: float, em: float) -> None:
    found = coqa_score.score([{"golds": golds, "guess": guess}])
    assert found == {"f1": pytest.approx(f1), "em": pytest.approx(em)}


ACTS = {"yes_no": "y", "gold_yes_no": "y", "followup": "m", "gold_followup": "n"}


@pytest.mark.parametrize(
    ("golds", "guess", "f1", "heq"),
    [
        (["cat"], "the cat", 100, 100),
        ([NONE], NONE, 100, 100),
        ([NONE], "cat", 0, 0),
        ([NONE, "cat"], NONE, 100, 100),  # half of them: there is no answer
        ([NONE, "cat", "cat"], NONE, 0, 0),
        ([NONE, "cat", "cat"], "cat", 100, 100),
        (["x y", "x y"], "x", 200 / 3, 0),
        (["x y", "x z"], "x y", 75, 100),  # people agree by 1/2
        (["x y", "x z"], "w", 0, 0),
        (["the", "the"], "the", 0, 0),  # people agree by 0: it does not count
    ],
)
def test_quac_by_hand(golds: list[str], guess: str, f1: float, heq: float) -> None:
    found = quac_score.score([{"golds": golds, "guess": guess, "dialogue": "d", **ACTS}])
    assert (found["f1"], found["heq_q"]) == (pytest.approx(f1), heq)
    assert found["heq_d"] == (100 if golds == ["the", "the"] else heq)
    if golds == ["the", "the"]:
        assert found["yes_no"] == 0
    else:
        assert (found["yes_no"], found["followup"]) == (100, 0)


def test_domains_are_scored_apart() -> None:
    """CoQA's script: the mean over the questions of each source, beside that of all."""
    rows = [
        {"golds": ["cat"], "guess": guess, "slices": [source]}
        for guess, source in (("cat", "cnn"), ("dog", "cnn"), ("cat", "race"))
    ]
    assert coqa_score.score_domains(rows, "f1") == {"f1/cnn": 50, "f1/race": 100}
    assert coqa_score.score_domains(rows[:2], "em") == {}


def test_a_dialogue_is_as_good_as_its_worst_question() -> None:
    right, wrong = ({"golds": ["cat"], "guess": guess, **ACTS} for guess in ("cat", "dog"))
    rows = [{**right, "dialogue": "1"}, {**wrong, "dialogue": "1"}, {**right, "dialogue": "2"}]
    found = quac_score.score(rows)
    assert found["heq_d"] == 50
    assert found["heq_q"] == pytest.approx(200 / 3)
    assert coqa_score.score([]) == {"f1": 0, "em": 0}
    assert set(quac_score.score([]).values()) == {0.0}
