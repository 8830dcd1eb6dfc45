"""Greedy search by the importance of words (Jin et al., 2020)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from plmctl.attack.base import (
    Attacked,
    AttackSearch,
    Constraint,
    ProposeWords,
    ScoreTexts,
    Steps,
    find_best,
    may_change,
    try_texts,
)
from plmctl.attack.word_text import WordText
from plmctl.core.parts import part_of


@part_of("attack_search")
class ByImportance(AttackSearch):
    """Words in the order of `I_w = p_y(x) - p_y(x without w)`, plus `p_y'(x without w) - p_y'(x)`
    where the guess without w is y' instead of y; each replaced by the candidate with the least p_y,
    until the guess is another (Jin et al., 2020, arXiv:1907.11932, algorithm 1, eq. 2).

    Differs: among candidates that change the guess, the one with the least p_y is taken, as in
    TextAttack, not the most similar one.
    """

    def search(
        self,
        text: WordText,
        gold: int,
        probabilities: np.ndarray,
        constraints: Sequence[Constraint],
    ) -> Steps:
        free = [n for n in range(len(text)) if may_change(constraints, text, text, n)]
        without = yield ScoreTexts([text.delete(n) for n in free])
        now, least = text, probabilities
        for number in order_words(free, probabilities, without, gold):
            if not may_change(constraints, text, now, number):
                continue
            (words,) = yield ProposeWords([(now, number)])
            changed = [now.replace(number, word) for word in words]
            changed, scores = yield from try_texts(text, changed)
            if not changed:
                continue
            best = find_best(scores, gold)
            if int(scores[best].argmax()) != gold:
                return Attacked(changed[best], scores[best], fooled=True)
            if scores[best][gold] < least[gold]:
                now, least = changed[best], scores[best]
        return Attacked(now, least, fooled=False)


def order_words(
    words: Sequence[int], whole: np.ndarray, without: Sequence[np.ndarray], gold: int
) -> list[int]:
    """The `words`, the most important first; `without`: [K] for each, of the text without it."""
    if not words:
        return []
    weights = measure_importance(whole, np.stack(without), gold)
    return [words[n] for n in np.argsort(-weights, kind="stable")]


def measure_importance(whole: np.ndarray, without: np.ndarray, gold: int) -> np.ndarray:
    """[n] I_w from the probabilities [K] of the text, and [n, K] of the text without each w."""
    guess = without.argmax(1)
    gained = without[np.arange(len(without)), guess] - whole[guess]
    lost = whole[gold] - without[:, gold]
    return np.where(guess == gold, lost, lost + gained)
