"""HotpotQA's scores of answers, of supporting facts and of both together, by the rules that its
evaluation script publishes (Yang et al., 2018, arXiv:1809.09600, sec. 5.2; hotpot_evaluate_v1.py).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from plmctl.tasks.record import Predictions
from plmctl.tasks.scores.squad import normalise_english

# answers that share nothing with any other
WHOLE = frozenset({"yes", "no", "noanswer"})
MEASURES = ("f1", "em", "prec", "recall")
NAMES = tuple(f"{part}{name}" for part in ("", "sp_", "joint_") for name in MEASURES)


@dataclass(frozen=True)
class Agreement:
    """The agreement of a guess with the right answer."""

    em: float
    prec: float
    recall: float

    @property
    def f1(self) -> float:
        """`2 P R / (P + R)`, 0 where both are 0."""
        both = self.prec + self.recall
        return 2 * self.prec * self.recall / both if both else 0.0

    def and_also(self, other: Agreement) -> Agreement:
        """Both together: the products of exact match, of precision and of recall."""
        return Agreement(self.em * other.em, self.prec * other.prec, self.recall * other.recall)


NOTHING = Agreement(0.0, 0.0, 0.0)


def compare_answers(gold: str, guess: str) -> Agreement:
    """Agreement of normalised tokens; yes, no and noanswer agree with themselves alone."""
    right, given = normalise_english(gold), normalise_english(guess)
    exact = float(right == given)
    if not exact and {right, given} & WHOLE:
        return NOTHING
    golds, guesses = right.split(), given.split()
    same = (Counter(golds) & Counter(guesses)).total()
    if not same:  # nor do two empty texts share a token
        return Agreement(exact, 0.0, 0.0)
    return Agreement(exact, same / len(guesses), same / len(golds))


def compare_facts(gold: Iterable[Hashable], guess: Iterable[Hashable]) -> Agreement:
    """Agreement of sets of (title, number of the sentence)."""
    golds, guesses = set(gold), set(guess)
    same = len(golds & guesses)
    return Agreement(
        float(golds == guesses),
        same / len(guesses) if guesses else 0.0,
        same / len(golds) if golds else 0.0,
    )


def score(predictions: Predictions) -> dict[str, float]:
    """The mean scores in percent, by the script's names: `em`, `f1`, `prec`, `recall` of answers,
    with `sp_` of supporting facts and with `joint_` of both.

    Args:
        predictions: {"golds": [answer], "guess": text, "gold_facts" and "facts": [[title, number
            of the sentence], ...]}; those without `golds` are left out, a guess or facts that are
            None count 0.
    """
    totals = dict.fromkeys(NAMES, 0.0)
    known = [each for each in predictions if each["golds"]]
    for each in known:
        answer = facts = NOTHING
        if each["guess"] is not None:
            answer = compare_answers(each["golds"][0], each["guess"])
        if each["facts"] is not None:
            facts = compare_facts(map(tuple, each["gold_facts"]), map(tuple, each["facts"]))
        parts = {"": answer, "sp_": facts, "joint_": answer.and_also(facts)}
        for part, agreement in parts.items():
            for name in MEASURES:
                totals[f"{part}{name}"] += getattr(agreement, name)
    return {name: 100 * total / max(1, len(known)) for name, total in totals.items()}


def write(predictions: Predictions) -> str:
    """The published layout of a file of predictions: {"answer": {id: text}, "sp": {id: [[title,
    number of the sentence], ...]}}.
    """
    content = {
        "answer": {each["id"]: each["guess"] for each in predictions},
        "sp": {each["id"]: each["facts"] for each in predictions},
    }
    return json.dumps(content, ensure_ascii=False) + "\n"
