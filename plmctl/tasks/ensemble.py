"""Predictions of several models of one task, joined to one: by the mean of their probabilities, or
by their votes (Hansen and Salamon, 1990; Dietterich, 2000).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from plmctl.core.errors import UsageError
from plmctl.tasks.calibration import UNSURE, LabelDecision, choose, mark_unsure
from plmctl.tasks.capabilities import settle
from plmctl.tasks.scores.squad import normalise
from plmctl.tasks.task import Task

Row = Mapping[str, Any]
Choice = TypeVar("Choice", bound=Hashable)
# the key of the probabilities of each word and label, which files do not have
TAGS = "tag_probabilities"


def join(
    task: Task,
    members: Sequence[Sequence[Row]],
    *,
    votes: bool,
    decision: LabelDecision | None = None,
) -> list[dict[str, Any]]:
    """One prediction for each example, from those of every member; they are in the same order.

    Args:
        members: The records by `explain`, one a member.
        votes: Each member has one vote, and equal votes are decided by the mean of probabilities.
        decision: The decision on that mean; None: the task's own.

    Raises:
        UsageError: The answers of this task cannot be joined, or not in this way.
    """
    first = members[0][0]
    joiner = _find(task, first, decision or LabelDecision())
    if joiner is None:
        raise UsageError(
            f"task={task.name} has no probabilities of whole answers: an ensemble is of classes,"
            " choices, numbers, tags, or answers in a passage\n  fix: checkpoint=<one of them>"
        )
    if votes and joiner is _join_numbers:
        raise UsageError(
            f"task={task.name} predicts numbers, which are no votes\n  fix: joined=mean"
        )
    joined = [
        {**_without(rows[0]), **joiner(task, rows, votes=votes)}
        for rows in zip(*members, strict=True)
    ]
    return mark_unsure(joined, decision.sure if decision else 0.0)


def _find(task: Task, row: Row, decision: LabelDecision) -> Callable[..., dict[str, Any]] | None:
    """How answers like `row` are joined; None where they cannot be."""
    if TAGS in row:
        return _join_tags
    if "n_best" in row:
        return partial(_join_answers, version=getattr(task, "version", 1))
    if isinstance(row.get("probabilities"), Mapping | list):
        return partial(_join_labels, decision=decision)
    return _join_numbers if isinstance(row.get("guess"), float) else None


def _without(row: Row) -> dict[str, Any]:
    """Its entries, but those of one member alone."""
    return {name: value for name, value in row.items() if name not in (TAGS, UNSURE)}


def _join_numbers(task: Task, rows: Sequence[Row], *, votes: bool) -> dict[str, Any]:
    return {"guess": math.fsum(row["guess"] for row in rows) / len(rows)}


def _join_labels(
    task: Task, rows: Sequence[Row], *, votes: bool, decision: LabelDecision
) -> dict[str, Any]:
    """`p = mean_i p_i`, of labels by their names or of choices by their numbers."""
    listed = isinstance(rows[0]["probabilities"], list)
    sides = [
        dict(enumerate(row["probabilities"])) if listed else row["probabilities"] for row in rows
    ]
    mean: dict[Any, float] = {
        name: math.fsum(side[name] for side in sides) / len(sides) for name in sides[0]
    }
    known = list(mean.values()) if listed else mean
    guess = choose(task, {"guess": rows[0]["guess"], "probabilities": known}, decision)["guess"]
    if votes and isinstance(guess, list):  # each of several labels has its own vote
        counts = Counter(name for row in rows for name in row["guess"])
        guess = [name for name in mean if (2 * counts[name], name in guess) > (len(rows), False)]
    elif votes:
        weights = {name: (name == guess) + p for name, p in mean.items()}
        guess = elect([row["guess"] for row in rows], weights)
    return {"guess": guess, "probabilities": known}


def _join_tags(task: Task, rows: Sequence[Row], *, votes: bool) -> dict[str, Any]:
    """The same of the tag of every word."""
    mean = np.mean([row[TAGS] for row in rows], axis=0)  # [words, K]
    if not votes:
        return {"guess": [task.names[k] for k in mean.argmax(-1).tolist()]}
    words = zip(*(row["guess"] for row in rows), strict=True)
    return {
        "guess": [
            elect(guesses, dict(zip(task.names, own, strict=True)))
            for guesses, own in zip(words, mean.tolist(), strict=True)
        ]
    }


def elect(guesses: Sequence[Choice], weights: Mapping[Choice, float]) -> Choice:
    """The most frequent guess; of equals the one with the largest weight, then the first."""
    counts = Counter(guesses)
    return max(counts, key=lambda guess: (counts[guess], weights[guess]))


def _join_answers(task: Task, rows: Sequence[Row], *, votes: bool, version: int) -> dict[str, Any]:
    """`p(text) = mean_i softmax(score_i)(text)` over the n best texts of each member and, in
    version 2, no answer; a text that a member does not have counts 0 there. So members need not
    have the same tokens.
    """
    sides = [_divide(row, version) for row in rows]
    mean = {text: 0.0 for side in sides for text in side}
    for side in sides:
        for text, p in side.items():
            mean[text] += p / len(sides)
    threshold = float(getattr(task, "null_threshold", 0.0)) if votes else 0.0
    if votes:
        winner = _elect_answer(rows, mean, threshold if version == 2 else math.inf)
        mean = {text: (p + (text == winner)) / 2 for text, p in mean.items()}
    null = mean.pop("", 0.0)
    best = sorted(mean, key=lambda text: -mean[text])
    top = mean[best[0]] if best else 0.0
    joined = {
        "guess": best[0] if best else "",
        # the empty text is chosen above the threshold
        "null_odds": _log(null) - _log(top) + threshold,
        "n_best": [{"text": text, "score": _log(mean[text])} for text in best],
    }
    return settle(task, joined, rows)


def _divide(row: Row, version: int) -> dict[str, float]:
    """{text: its probability}; "" is no answer."""
    scores = {each["text"]: float(each["score"]) for each in row["n_best"]}
    if version == 2 or not scores:
        scores[""] = row["null_odds"] + max(scores.values(), default=0.0)
    top = max(scores.values())
    weights = {text: math.exp(score - top) for text, score in scores.items()}
    total = math.fsum(weights.values())
    return {text: weight / total for text, weight in weights.items()}


def _elect_answer(rows: Sequence[Row], mean: Mapping[str, float], threshold: float) -> str:
    """The answer with the most votes: those count as one that are the same once normalised."""
    guesses = ["" if row["null_odds"] > threshold else str(row["guess"]) for row in rows]
    weights = defaultdict[str, float](float)
    for guess in dict.fromkeys(guesses):
        weights[normalise(guess)] += mean.get(guess, 0.0)
    winner = elect([normalise(guess) for guess in guesses], weights)
    spelled = [guess for guess in guesses if normalise(guess) == winner]
    return max(spelled, key=lambda guess: mean.get(guess, 0.0))


def _log(p: float) -> float:
    return math.log(max(p, 1e-300))
