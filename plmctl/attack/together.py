"""The searches of many texts side by side: their questions are answered in common batches, and no
question twice.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from plmctl.attack.base import Attacked, KeepTexts, ProposeWords, ScoreTexts, Steps, Wish

Answer = Callable[[list[Any]], Sequence[Any]]


class AskedOnce:
    """A function of many items that is called once for each different item.

    `asked`: the number of items in all calls; `answered`: the number of different items.
    """

    def __init__(self, function: Answer) -> None:
        self.function = function
        self.known: dict[Hashable, Any] = {}
        self.asked = 0

    @property
    def answered(self) -> int:
        return len(self.known)

    def __call__(self, items: Sequence[Hashable]) -> list[Any]:
        """The answer of each item, in order."""
        self.asked += len(items)
        new = [item for item in dict.fromkeys(items) if item not in self.known]
        if new:
            self.known.update(zip(new, self.function(new), strict=True))
        return [self.known[item] for item in items]


@dataclass
class _Run:
    number: int
    steps: Steps
    wish: Wish | None = None
    end: Attacked | None = None
    texts: set[str] = field(default_factory=set)  # texts that were sent to the model

    @property
    def items(self) -> list[Any]:
        """The items that it needs to know; for texts to score with the number of the search."""
        wish = self.wish
        if isinstance(wish, ScoreTexts):
            return [(self.number, text) for text in wish.items]
        return [] if wish is None else list(wish.items)

    def go_on(self, answer: list[Any] | None) -> None:
        try:
            self.wish = next(self.steps) if answer is None else self.steps.send(answer)
        except StopIteration as stop:
            self.wish, self.end = None, stop.value
        if isinstance(self.wish, ScoreTexts):
            self.texts.update(self.wish.items)


def attack_together(
    searches: Sequence[Steps], *, score: Answer, propose: Answer, keep: Answer, window: int = 64
) -> list[tuple[Attacked, int]]:
    """The end of each search, and the number of different texts that it sent to the model.

    Args:
        score: answers all wishes of its kind at once; its items are (number of the search, text).
        propose, keep: likewise, as they were wished.
        window: searches that go on side by side; the next one begins when one ends.
    """
    answers: dict[type, Answer] = {ScoreTexts: score, ProposeWords: propose, KeepTexts: keep}
    runs = [_Run(number, steps) for number, steps in enumerate(searches)]
    waiting = list(reversed(runs))
    active: list[_Run] = []
    while waiting or active:
        while waiting and len(active) < window:
            run = waiting.pop()
            run.go_on(None)
            active.append(run)
        for kind, answer in answers.items():
            some = [(run, run.items) for run in active if isinstance(run.wish, kind)]
            items = [item for _, own in some for item in own]
            found = iter(answer(items)) if items else iter(())
            for run, own in some:
                run.go_on(list(islice(found, len(own))))
        active = [run for run in active if run.end is None]
    return [(run.end, len(run.texts)) for run in runs if run.end is not None]
