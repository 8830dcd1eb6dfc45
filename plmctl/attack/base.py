"""The interfaces of attacks: what proposes words, what forbids texts, what searches, and wishes.

A search is a generator. It yields wishes and is sent their answers, so that the wishes of many
texts are answered in one batch (`together.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plmctl.attack.word_text import WordText
from plmctl.core.parts import base_of

Place = tuple[WordText, int]  # a text and the number of one of its words
Pair = tuple[WordText, WordText]  # a text as it was, and as it is now


@dataclass(frozen=True)
class ScoreTexts:
    """The probability of each label of these texts -> [K] each."""

    items: list[str]


@dataclass(frozen=True)
class ProposeWords:
    """Words that may replace the words at these positions -> a list of words each."""

    items: list[Place]


@dataclass(frozen=True)
class KeepTexts:
    """Do these texts still say the same? -> bool each."""

    items: list[Pair]


Wish = ScoreTexts | ProposeWords | KeepTexts


@dataclass(frozen=True)
class Attacked:
    """The end of a search.

    Args:
        text: The last text that was tried, or the first one that changes the guess.
        probabilities: [K] of its labels.
        fooled: the guess is another label than `gold`.
    """

    text: WordText
    probabilities: np.ndarray
    fooled: bool


Steps = Generator[Wish, list[Any], Attacked]


@base_of("attack_candidates")
class WordCandidates(ABC):
    """Words that may replace a word."""

    @abstractmethod
    def propose(self, places: Sequence[Place]) -> list[list[str]]:
        """Other words for each position, the best first; [] if there are no candidates."""


@base_of("constraint")
class Constraint:
    """A rule that a changed text must obey."""

    def allows(self, first: WordText, now: WordText, number: int) -> bool:
        """Whether the word of this number may be changed, before candidates are computed."""
        return True

    def keep(self, pairs: Sequence[Pair]) -> list[bool]:
        """Whether each changed text may be."""
        return [True] * len(pairs)


@base_of("attack_search")
class AttackSearch(ABC):
    """The choice and the order of the words to replace."""

    @abstractmethod
    def search(
        self,
        text: WordText,
        gold: int,
        probabilities: np.ndarray,
        constraints: Sequence[Constraint],
    ) -> Steps:
        """Look for a text of which `gold` is not the guess.

        Args:
            text: The text to attack.
            gold: number of its label, which is the guess.
            probabilities: [K] of its labels.
            constraints: say which words may be changed; `KeepTexts` asks them what may be.
        """


def try_texts(
    text: WordText, changed: Sequence[WordText]
) -> Generator[Wish, list[Any], tuple[list[WordText], list[np.ndarray]]]:
    """Those of the `changed` texts that still say what `text` says, and [K] of each; a part of a
    search, which takes it with `yield from`.
    """
    fits = yield KeepTexts([(text, each) for each in changed])
    kept = [each for each, fit in zip(changed, fits, strict=True) if fit]
    scores = (yield ScoreTexts([each.text for each in kept])) if kept else []
    return kept, scores


def find_best(scores: Sequence[np.ndarray], gold: int) -> int:
    """The first text that fools the model with the least probability of `gold`, else the first
    with the least.
    """
    whole = np.stack(scores)  # [n, K]
    return int(np.lexsort((whole[:, gold], whole.argmax(1) == gold))[0])


def may_change(
    constraints: Sequence[Constraint], first: WordText, now: WordText, number: int
) -> bool:
    """Whether all constraints allow it."""
    return all(each.allows(first, now, number) for each in constraints)
