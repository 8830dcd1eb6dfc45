"""QuAC's scores, by its evaluation script: F1 compared with the F1 of people, of questions and
dialogues (Choi et al., 2018, arXiv:1808.07036, sec. 5.1).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from plmctl.tasks.record import Predictions
from plmctl.tasks.scores import squad as squad_score

NONE = "CANNOTANSWER"
LEAST = 0.4  # F1 of people among each other, below which a question counts only in unfiltered_f1
MEANINGS = {
    "f1": "shared words in questions on which people agree",
    "unfiltered_f1": "shared words in all questions",
    "heq_q": "share of questions answered as well as by people",
    "heq_d": "share of dialogues answered as well as by people",
    "unanswerable": "shared words in questions without an answer for most people",
}
NAMES = ("f1", "heq_q", "heq_d", "unfiltered_f1", "unanswerable", "yes_no", "followup")


def score(predictions: Predictions) -> dict[str, float]:
    """All scores in percent.

    `heq_q`: questions whose F1 is that of people or better; `heq_d`: dialogues of which all are;
    `unanswerable`: F1 of questions that most people could not answer; `yes_no` and `followup`:
    accuracies.

    Args:
        predictions: {"dialogue", "golds", "guess", "yes_no", "gold_yes_no", "followup",
            "gold_followup"}.
    """
    found = defaultdict[str, list[float]](list)
    good: dict[str, bool] = {}
    for row in predictions:
        golds = choose_golds(row["golds"])
        own, people = leave_one_out(row["guess"], golds), agree(golds)
        found["unfiltered_f1"].append(own)
        good.setdefault(row["dialogue"], True)
        if people < LEAST:
            continue
        found["f1"].append(own)
        found["heq_q"].append(own >= people)
        good[row["dialogue"]] &= own >= people
        if golds == [NONE]:
            found["unanswerable"].append(own)
        for name in ("yes_no", "followup"):
            found[name].append(row[name] == row[f"gold_{name}"])
    found["heq_d"] = list(map(float, good.values()))
    return {
        name: 100 * sum(found[name]) / len(found[name]) if found[name] else 0.0 for name in NAMES
    }


def choose_golds(golds: Sequence[str]) -> list[str]:
    """Only "no answer" where at least half of the golds are that, else the golds that are spans."""
    spans = [gold for gold in golds if gold != NONE]
    return spans if len(spans) > len(golds) - len(spans) else [NONE]


def f1(gold: str, guess: str) -> float:
    """F1 of words; of "no answer" 1 if both are it."""
    return float(guess == NONE) if gold == NONE else squad_score.f1(gold, guess, version=1)


def leave_one_out(guess: str, golds: Sequence[str]) -> float:
    """The best F1, as mean over all golds but one, as people's are measured."""
    if len(golds) == 1:
        return f1(golds[0], guess)
    own = [f1(gold, guess) for gold in golds]
    best = [max(own[:n] + own[n + 1 :]) for n in range(len(own))]
    return sum(best) / len(best)


def agree(golds: Sequence[str]) -> float:
    """The F1 of people: the mean over golds of the best with another one; of one gold 1."""
    if len(golds) == 1:
        return 1.0
    total = 0.0
    for n, gold in enumerate(golds):
        others = [*golds[:n], *golds[n + 1 :]]
        total += max(squad_score.f1(other, gold, version=1) for other in others)
    return total / len(golds)
