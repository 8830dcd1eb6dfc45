"""One right choice of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.errors import DataError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.objectives.base import Output, Term
from plmctl.tasks.answers.base import Answer
from plmctl.tasks.facts import TaskFacts
from plmctl.tasks.layouts import encode
from plmctl.tasks.record import Example, Examples
from plmctl.tasks.scores import labels as label_score


@part_of("answer")
class ChoiceAnswer(Answer):
    """`loss = -log softmax_k(head(pool(h_k)))[right]` over the rows k of an example (Radford et
    al., 2018, sec. 3.3; Devlin et al., 2019, sec. 4.4).

    Labels are numbers from `first_label` on, or letters from A on.

    Args:
        first_label: The number of the first choice.
        distinct: Whether the examples of a bundle have different right choices; then each choice is
            predicted once in a bundle.
    """

    fields: Mapping[str, Field] = {
        "labels.choice": Field(
            "[N]",
            "int",
            "number of the right choice, at the first row of an example; IGNORE at its others",
        )
    }
    facts = TaskFacts(
        needs=frozenset({"text", "labels.choice", "values.group"}),
        head="choice",
        answer="choice",
        pipeline="multiple-choice",
        outputs=1,
    )

    together = False

    def __init__(self, *, first_label: int = 0, distinct: bool = False) -> None:
        self.first_label, self.distinct = first_label, distinct
        self.streams = not distinct  # the rows of a bundle may stand anywhere

    def gold(self, example: Example) -> int:
        """The number, from 0, of the right choice."""
        label, count = str(example.label), len(example.fields["choices"])
        letter = len(label) == 1 and label.isalpha() and label.isascii()
        number = (
            ord(label.upper()) - ord("A")
            if letter
            else int(label) - self.first_label
            if label.isdecimal()
            else -1
        )
        if not 0 <= number < count:
            last = (
                f"{self.first_label} to {self.first_label + count - 1}, or A to"
                f" {chr(ord('A') + count - 1)}"
            )
            other = 1 - self.first_label  # counted from 0 or from 1
            fits = label.isdecimal() and other in (0, 1) and 0 <= int(label) - other < count
            fix = (
                f"task.first_label={other}, where choices are counted from {other}, or "
                if fits
                else ""
            )
            problem = f"label '{label}' of {count} choices: {last}"
            raise DataError(problem, file=example.place, fix=f"{fix}correct the label")
        return number

    def number(self, examples: Examples, names: list[str] | None) -> dict[str, np.ndarray]:
        return {"choice": np.array([self.gold(each) for each in examples], dtype=np.int64)}

    def flatten(self, logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """[N, K] logits for N examples; those with fewer than K choices are padded with the
        lowest number.
        """
        scores = logits
        _, group, sizes = batch.require("values.group").unique_consecutive(
            return_inverse=True, return_counts=True
        )
        first = sizes.cumsum(0) - sizes
        padded = scores.new_full((len(sizes), int(sizes.max())), torch.finfo(scores.dtype).min)
        padded = padded.index_put(
            (group, torch.arange(len(group), device=group.device) - first[group]), scores
        )
        return padded, batch.require("labels.choice")[first] != IGNORE

    def loss(self, logits: Tensor, batch: Batch, names: list[str] | None) -> Output:
        scores = logits.float()
        group = batch.require("values.group")
        gold = batch.require("labels.choice")
        # the first row of each example; its rows are neighbours
        first = (gold != IGNORE).nonzero()[:, 0]
        most, norm = find_largest(scores, group), add_exponentials(scores, group)
        own = scores[first + gold[first]]
        total = (norm[group[first]] - own).sum()
        return Output(
            {"choice": Term(total)}, {"acc/choice": ((own == most[group[first]]).sum(), len(first))}
        )

    def predict(
        self, logits: np.ndarray, rows: Rows, examples: Examples, names: list[str] | None
    ) -> list[dict[str, Any]]:
        scores = np.split(logits.astype(np.float64), encode.firsts(rows)[1:])
        guesses = [int(own.argmax()) for own in scores]
        if self.distinct:
            for numbers in _list_bundles(examples):
                found = choose_apart([scores[n] for n in numbers])
                for number, guess in zip(numbers, found, strict=True):
                    guesses[number] = guess
        return [
            {
                "id": e.id,
                "gold": None if e.label is None else self.gold(e),
                "guess": guess,
                "probabilities": torch.from_numpy(own).softmax(0).tolist(),
                **label_score.name_sets(e),
            }
            for e, own, guess in zip(examples, scores, guesses, strict=True)
        ]


def _list_bundles(examples: Examples) -> list[list[int]]:
    """The numbers of the examples of each bundle."""
    found: dict[str, list[int]] = {}
    for number, example in enumerate(examples):
        if example.bundle:
            found.setdefault(example.bundle, []).append(number)
    return list(found.values())


def choose_apart(scores: Sequence[np.ndarray]) -> list[int]:
    """A choice for each example, none of them twice. The pair of an example and a choice with the
    best score is taken first, then the next best of the free ones (the decoding of CLUE's
    baseline for ChID). An example without a free choice has its own best one.

    Args:
        scores: [K] of each example.
    """
    pairs = sorted(
        (-float(score), number, choice)
        for number, own in enumerate(scores)
        for choice, score in enumerate(own)
    )
    taken: dict[int, int] = {}
    for _, number, choice in pairs:
        if number not in taken and choice not in taken.values():
            taken[number] = choice
    return [taken.get(number, int(own.argmax())) for number, own in enumerate(scores)]


def find_largest(scores: Tensor, group: Tensor) -> Tensor:
    """[N] at the number of each group the largest of its scores, without a gradient.

    Args:
        scores: [N] of rows.
        group: [N] the number of the group of each row.
    """
    lowest = scores.new_full(scores.shape, -torch.inf)
    return lowest.scatter_reduce(0, group, scores.detach(), "amax")


def add_exponentials(scores: Tensor, group: Tensor) -> Tensor:
    """[N] at the number of each group `log sum_k exp(scores_k)` over its rows."""
    most = find_largest(scores, group)
    none = scores.new_zeros(scores.shape)
    return none.index_add(0, group, (scores - most[group]).exp()).log() + most
