"""Scores of labels, drawn again and again: from how often each class is right, gold and guessed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress, product
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from plmctl.tasks.record import Predictions
from plmctl.tasks.scores.swaps import SummedScore, Swaps

ROOM = 1 << 21  # numbers of a table of draws that is made at once
PARTS: tuple[Part, ...] = ("f1", "precision", "recall")
Part = Literal["f1", "precision", "recall"]
# the classes over which a mean is: of all rows; of the gold labels; of gold and guessed ones
Among = Literal["all", "gold", "either"]
Triple = tuple[Sequence[str], Sequence[str], Sequence[str]]  # right, gold and guessed labels


def divide(part: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Element by element; 0 where `total` is 0."""
    return np.divide(part, total, out=np.zeros(np.shape(part)), where=total != 0)


class Counts(NamedTuple):
    """[..., K] how often each class is right, gold and guessed."""

    right: np.ndarray
    gold: np.ndarray
    guess: np.ndarray

    def score(self, part: Part) -> np.ndarray:
        """[..., K] `2 right / (gold + guess)`, `right / guess` or `right / gold`; 0 of nothing."""
        below = {"f1": self.gold + self.guess, "precision": self.guess, "recall": self.gold}[part]
        return divide((1 + (part == "f1")) * self.right, below)

    def among(self, among: Among) -> np.ndarray:
        """[..., K] bool: the classes that a mean is over."""
        if among == "all":
            return np.ones(self.gold.shape, dtype=bool)
        return self.gold > 0 if among == "gold" else self.gold + self.guess > 0


class ClassCounts:
    """The counts of each class, right, gold and guessed, in draws from examples.

    Examples of the same labels are one cell, and a cell names its labels alone: space and time are
    linear in examples and labels.

    Args:
        examples: the right, gold and guessed labels of each.
        names: Classes in addition to the classes of the examples.
    """

    def __init__(self, examples: Iterable[Triple], names: Iterable[str] = ()) -> None:
        cells: dict[tuple[tuple[str, ...], ...], int] = {}
        keys = (tuple(tuple(sorted(side)) for side in example) for example in examples)
        self.cell = np.array([cells.setdefault(key, len(cells)) for key in keys])  # [m]
        found = sorted({name for key in cells for side in key for name in side}.union(names))
        number = {name: index for index, name in enumerate(found)}
        self.cells, self.classes = len(cells), len(found)
        # for right, gold and guessed labels: the cell and the class of each
        self.sides = [
            np.array(
                [(cell, number[name]) for key, cell in cells.items() for name in key[side]],
                dtype=np.int64,
            ).reshape(-1, 2)
            for side in range(3)
        ]

    def add_up(self, value: Callable[[Counts], np.ndarray]) -> SummedScore:
        """This function of the counts as one of sums."""
        table = np.zeros((self.cells, 3, self.classes))
        for side, pairs in enumerate(self.sides):
            np.add.at(table[:, side], tuple(pairs.T), 1)

        def read(sums: np.ndarray) -> np.ndarray:
            return value(Counts(*sums.reshape(len(sums), 3, -1).transpose(1, 0, 2)))

        return SummedScore(table.reshape(self.cells, -1), self.cell, read)

    def count(self, picks: np.ndarray) -> Iterator[Counts]:
        """The counts of draws, blocks of them.

        Args:
            picks: [R, n] numbers of the examples in each draw.
        """
        size = max(1, ROOM // max(self.cells, 3 * self.classes, 1))
        for start in range(0, len(picks), size):
            drawn = [
                np.bincount(self.cell[row], minlength=self.cells).astype(float)
                for row in picks[start : start + size]
            ]
            yield Counts(
                *(
                    np.stack(
                        [np.bincount(which, own[cell], minlength=self.classes) for own in drawn]
                    )
                    for cell, which in (side.T for side in self.sides)
                )
            )


@dataclass(frozen=True)
class OfCounts:
    """A score that is a function of the counts of classes.

    Args:
        counts: The counts of the examples.
        value: [R, K] counts to [R] scores.
    """

    drifts: ClassVar[bool] = False
    counts: ClassCounts
    value: Callable[[Counts], np.ndarray]

    def __call__(self, picks: np.ndarray) -> np.ndarray:
        """[R] the scores of draws, [R, n] numbers of examples."""
        return np.concatenate([self.value(each) for each in self.counts.count(picks)])

    def add_up(self) -> SummedScore:
        """This score as a function of sums."""
        return self.counts.add_up(self.value)

    def list_swaps(self, n: int) -> Swaps:
        """As that of `SummedScore`."""
        return self.add_up().list_swaps(n)


@dataclass(frozen=True)
class ClassMean:
    """The mean of a score over classes, without one of them or none.

    A draw may miss a class, whose score then leaves the mean: the scores of draws drift from that
    of all examples. An interval moves them back (`move_back`).

    Args:
        without: the number of a class that does not count.
    """

    drifts: ClassVar[bool] = True
    counts: ClassCounts
    part: Part
    among: Among
    without: int | None = None

    def __call__(self, picks: np.ndarray) -> np.ndarray:
        """As that of `OfCounts`."""
        return np.concatenate([self._value(each) for each in self.counts.count(picks)])

    def add_up(self) -> SummedScore:
        """This score as a function of sums."""
        return self.counts.add_up(self._value)

    def list_swaps(self, n: int) -> Swaps:
        """As that of `SummedScore`."""
        return self.add_up().list_swaps(n)

    def _keep(self, counts: Counts) -> np.ndarray:
        kept = counts.among(self.among)
        if self.without is not None:
            kept[..., self.without] = False
        return kept

    def _value(self, counts: Counts) -> np.ndarray:
        kept = self._keep(counts)
        return divide((counts.score(self.part) * kept).sum(-1), kept.sum(-1))


# scores of R draws, [R, C], and what makes the form of column c
Candidate = tuple[np.ndarray, Callable[[int], "OfCounts | ClassMean"]]


def find_candidates(rows: Predictions, picks: np.ndarray) -> Iterator[Candidate]:
    """Scores that labels, lists of tags and sets of labels have, of the draws `picks`, and what
    makes the form of each column.
    """
    for counts, among in _read(rows):
        blocks = list(counts.count(picks))
        drawn = Counts(*(np.concatenate(side) for side in zip(*blocks, strict=True)))
        yield _plain(counts, accuracy, drawn)
        yield _plain(counts, matthews, drawn)
        for part, each in product(PARTS, among):
            yield _mean_all(counts, part, each, drawn)
        for part in PARTS:
            yield _each_class(counts, part, drawn)
        for part, each in product(PARTS, among):
            yield _mean_others(counts, part, each, drawn)


def _plain(counts: ClassCounts, value: Callable[[Counts], np.ndarray], drawn: Counts) -> Candidate:
    return value(drawn)[:, None], lambda _: OfCounts(counts, value)


def _each_class(counts: ClassCounts, part: Part, drawn: Counts) -> Candidate:
    return drawn.score(part), lambda k: OfCounts(counts, partial(_score_class, part, k))


def _mean_all(counts: ClassCounts, part: Part, among: Among, drawn: Counts) -> Candidate:
    kept = drawn.among(among)
    mean = divide((drawn.score(part) * kept).sum(1), kept.sum(1))
    return mean[:, None], lambda _: ClassMean(counts, part, among)


def _mean_others(counts: ClassCounts, part: Part, among: Among, drawn: Counts) -> Candidate:
    """The means over all classes but each one."""
    kept = drawn.among(among)
    scores = drawn.score(part) * kept
    means = divide(
        scores.sum(1, keepdims=True) - scores, (kept.sum(1, keepdims=True) - kept).astype(float)
    )
    return means, lambda k: ClassMean(counts, part, among, without=k)


def _read(rows: Predictions) -> Iterator[tuple[ClassCounts, tuple[Among, ...]]]:
    """The counts of predictions, in each way in which they can be read, with the classes that means
    may be over.
    """
    pairs: list[tuple[Any, Any]] = [(row.get("gold"), row.get("guess")) for row in rows]
    if all(isinstance(side, str | int) for pair in pairs for side in pair):
        labels = [(str(gold), str(guess)) for gold, guess in pairs]
        yield ClassCounts(map(_compare_labels, labels)), ("either", "gold")
        if any("(" in gold for gold, _ in labels):  # relations with a direction, e.g. A(e1,e2)
            yield ClassCounts(map(_compare_kinds, labels)), ("gold", "either")
        return
    if not all(isinstance(side, list) for pair in pairs for side in pair):
        return
    lists = [([*map(str, gold)], [*map(str, guess)]) for gold, guess in pairs]
    if all(len(gold) == len(guess) for gold, guess in lists):
        yield ClassCounts(map(_compare_tags, lists)), ("either", "gold")
        for name in _find_choices(rows, lists):
            chosen = [_choose(pair, row[name]) for row, pair in zip(rows, lists, strict=True)]
            yield ClassCounts(map(_compare_tags, chosen)), ("either", "gold")
    known = {name for row in rows for name in row.get("probabilities") or ()}
    yield ClassCounts(map(_compare_sets, lists), known), ("all", "either")


def _find_choices(rows: Predictions, lists: Sequence[tuple[list[str], list[str]]]) -> list[str]:
    """The names of true or false for each word: some scores are over those words alone."""
    return [
        name
        for name, first in rows[0].items()
        if isinstance(first, list)
        and all(
            isinstance(own := row.get(name), list)
            and len(own) == len(gold)
            and all(isinstance(each, bool) for each in own)
            for row, (gold, _) in zip(rows, lists, strict=True)
        )
    ]


def _choose(pair: tuple[list[str], list[str]], kept: Sequence[bool]) -> tuple[list[str], list[str]]:
    gold, guess = ([*compress(side, kept)] for side in pair)
    return gold, guess


def _compare_labels(pair: tuple[str, str]) -> Triple:
    gold, guess = pair
    return [gold][: gold == guess], [gold], [guess]


def _compare_kinds(pair: tuple[str, str]) -> Triple:
    """As `relation_score.score_semeval` counts them."""
    gold, guess = (label.partition("(")[0] for label in pair)
    return [gold][: pair[0] == pair[1]], [gold], [guess]


def _compare_tags(pair: tuple[list[str], list[str]]) -> Triple:
    return [g for g, p in zip(*pair, strict=True) if g == p], *pair


def _compare_sets(pair: tuple[list[str], list[str]]) -> Triple:
    gold, guess = set(pair[0]), set(pair[1])
    return [*(gold & guess)], [*gold], [*guess]


def accuracy(counts: Counts) -> np.ndarray:
    """[R] the share that is right."""
    return divide(counts.right.sum(1), counts.gold.sum(1))


def matthews(counts: Counts) -> np.ndarray:
    """[R] as `metrics.matthews`."""
    right, gold, guess = counts
    n = gold.sum(1)
    cross = right.sum(1) * n - (gold * guess).sum(1)
    spread = (n * n - (guess * guess).sum(1)) * (n * n - (gold * gold).sum(1))
    # below 0 only of examples with several labels, where it is not defined
    return divide(cross, np.sqrt(np.maximum(spread, 0)))


def _score_class(part: Part, index: int, counts: Counts) -> np.ndarray:
    return counts.score(part)[:, index]
