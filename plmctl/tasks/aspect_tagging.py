"""Aspect terms as tags of words, also scored by their characters as SemEval-2014 does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from plmctl.core.parts import part_of
from plmctl.tasks.answers.tags import TagAnswer
from plmctl.tasks.record import Example, Predictions
from plmctl.tasks.scores.metrics import divide_counts, entities
from plmctl.tasks.scores.tags import TagScores
from plmctl.tasks.tagging import Tagging, choose

OFFICIAL = ("term_f1", "term_precision", "term_recall")
Terms = Iterable[Sequence[int]]  # first character, the one behind the last


@part_of("task")
class AspectTagging(Tagging):
    """Predicts the terms of which a text says something, as tags of its words.

    The metrics also have precision, recall and F1 of terms whose first and last characters are
    right. They count all different terms of the files, also terms that are not words (Pontiki et
    al., 2014, "SemEval-2014 Task 4: Aspect Based Sentiment Analysis", sec. 4.1, subtask 1).
    """

    alone = True

    def answer_by(self, own: Any) -> TermAnswer:
        return TermAnswer(**choose(own))

    def judge(self, own: Any) -> TermScores:
        return TermScores()


class TermAnswer(TagAnswer):
    """Tags of words, with the characters of words and gold terms in predictions."""

    def describe(self, example: Example) -> dict[str, Any]:
        found = super().describe(example)
        if "places" in example.fields:  # typed sentences have none
            found["places"] = [list(place) for place in example.fields["places"]]
            found["gold_terms"] = [list(term) for term in example.fields["terms"]]
        return found


class TermScores(TagScores):
    """The scores of tags, and those of terms by their characters."""

    known = (*OFFICIAL, *TagScores.known)

    def __call__(self, predictions: Predictions, names: Sequence[str]) -> dict[str, float]:
        pairs = [(p["gold_terms"], find_terms(p["guess"], p["places"])) for p in predictions]
        official = score_terms(pairs)
        found = super().__call__(predictions, names)
        return {name: official[name] for name in names if name in official} | found


def find_terms(tags: Sequence[str], places: Sequence[Sequence[int]]) -> list[list[int]]:
    """The characters of the terms in the tags of words at `places`."""
    return [[places[first][0], places[last][1]] for _, first, last in sorted(entities(tags))]


def score_terms(pairs: Iterable[tuple[Terms, Terms]]) -> dict[str, float]:
    """Micro scores over (gold, guessed) terms of all sentences; equal terms of one are one."""
    sets = [({*map(tuple, gold)}, {*map(tuple, guess)}) for gold, guess in pairs]
    right = sum(len(gold & guess) for gold, guess in sets)
    present, guessed = (sum(len(pair[side]) for pair in sets) for side in (0, 1))
    precision, recall, f1 = divide_counts(right, guessed, present)
    return {"term_f1": f1, "term_precision": precision, "term_recall": recall}
