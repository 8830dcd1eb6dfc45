"""Greedy and beam search over all words at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from plmctl.attack.base import (
    Attacked,
    AttackSearch,
    Constraint,
    ProposeWords,
    Steps,
    find_best,
    may_change,
    try_texts,
)
from plmctl.attack.word_text import WordText
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of


@part_of("attack_search")
class AttackBeam(AttackSearch):
    """In each round every word of the `width` best texts is replaced by every candidate; those with
    the least p_y go on, until the guess is another (Ebrahimi et al., 2018, arXiv:1712.06751, sec.
    3). `width` 1: greedy.

    Args:
        width: texts that go on.
        rounds: The most rounds; None: as many as the text has words.
    """

    def __init__(self, *, width: int, rounds: int | None = None) -> None:
        if width < 1:
            allowed = "1 (greedy) or more"
            raise ConfigError("width", width, allowed, fix="attack_search.width=1")
        self.width, self.rounds = width, rounds

    def search(
        self,
        text: WordText,
        gold: int,
        probabilities: np.ndarray,
        constraints: Sequence[Constraint],
    ) -> Steps:
        beam = [text]
        best, least = text, probabilities
        for _ in range(len(text) if self.rounds is None else self.rounds):
            places = [
                (now, n)
                for now in beam
                for n in range(len(now))
                if may_change(constraints, text, now, n)
            ]
            proposed = yield ProposeWords(places)
            changed = list(
                dict.fromkeys(
                    now.replace(n, word)
                    for (now, n), words in zip(places, proposed, strict=True)
                    for word in words
                )
            )
            changed, scores = yield from try_texts(text, changed)
            if not changed:
                break
            first = find_best(scores, gold)
            if int(scores[first].argmax()) != gold:
                return Attacked(changed[first], scores[first], fooled=True)
            if scores[first][gold] < least[gold]:
                best, least = changed[first], scores[first]
            order = sorted(range(len(scores)), key=lambda n: (scores[n][gold], n))
            beam = [changed[n] for n in order[: self.width]]
        return Attacked(best, least, fooled=False)
