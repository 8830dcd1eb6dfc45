"""Labels of which an example has any number: their prediction, their loss and their remarks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.errors import ConfigError, DataError, nearest
from plmctl.core.fields import Field
from plmctl.core.named_values import name_rows
from plmctl.core.tables import count_at_once, make_table, release
from plmctl.objectives.base import Output, Term
from plmctl.storage.arrays import walk
from plmctl.tasks.answers.label_loss import EachLabelLoss
from plmctl.tasks.layouts import encode
from plmctl.tasks.record import Example
from plmctl.tasks.scores.labels import name_sets

HEAD = "types"  # the head, and the name of its labels
FIELD = Field("[N, K]", "int", "1 for each label of the example, 0 for the others")
HALF = 0.5  # the threshold of a label that has none of its own
Rule = Literal["above", "top"]
Threshold = float | Mapping[str, float]


class LabelSets:
    """The common part of tasks whose labels are decided each by itself.

    Args:
        threshold: The probability threshold of a label: one for all, or {label: its own}; other
            labels have `HALF`.
        rule: "above": all labels above the threshold are guessed; "top": these, and always the
            likeliest one.
        loss: The loss that is minimised.
    """

    def __init__(
        self, threshold: Threshold, rule: Rule = "above", loss: EachLabelLoss | None = None
    ) -> None:
        each = threshold if isinstance(threshold, Mapping) else {"": threshold}
        for name, value in each.items():
            if not 0 < value < 1:
                path = f"task.threshold{'.' if name else ''}{name}"
                allowed = "above 0 and below 1, a probability"
                raise ConfigError(path, value, allowed, fix=f"{path}=0.5")
        self.threshold, self.rule = threshold, rule
        self.label_loss = loss or EachLabelLoss(None, 0.0, 0.0)
        self.unseen: set[str] = set()  # labels that training lacks

    @property
    def remarks(self) -> list[str]:
        """Remarks for a reader of the score."""
        if not self.unseen:
            return []
        known = f"{len(self.unseen)} labels do not occur in training, such as {min(self.unseen)}"
        return [f"{known}: they are never guessed, and count as missed"]

    def fit(self, examples: Iterable[Example], names: Sequence[str] | None) -> list[str]:
        """`names`, or the names of the training split; DataError without any."""
        examples = list(examples)
        found = list(names or sorted({name for each in examples for name in each.label}))
        if not found:
            raise DataError("no example has a label", file=examples[0].place)
        for name in self.threshold if isinstance(self.threshold, Mapping) else ():
            if name not in found:
                known = f"labels of training: {', '.join(found)}{nearest(name, found)}"
                raise ConfigError("task.threshold", name, known, fix="correct the label")
        self.label_loss.fit_sets([each.label for each in examples], found)
        self.unseen |= {name for each in examples for name in each.label} - {*found}
        return found

    def add_labels(self, rows: Rows, examples: Sequence[Example], names: Sequence[str]) -> Rows:
        """`rows` with a 1 for each label of their examples, where all of these have labels."""
        if any(example.label is None for example in examples):
            return rows
        place = {name: index for index, name in enumerate(names)}
        labels = make_table((len(examples), len(names)), np.int64)
        for number, example in enumerate(examples):
            labels[number, [place[name] for name in example.label if name in place]] = 1
        release(labels)
        return encode.add_labels(rows, {HEAD: labels})

    def loss(self, scores: Tensor, batch: Batch, names: Sequence[str] | None) -> Output:
        """The summed loss of `scores [N, K]`, with how many examples have exactly their labels."""
        gold = batch.require(f"labels.{HEAD}")
        known = (gold != IGNORE).all(-1)  # the first of several rows of an example
        right = ((scores > 0) == (gold == 1)).all(-1) & known
        total = self.label_loss.add_up(scores, gold, names)
        return Output({HEAD: Term(total)}, {f"acc/{HEAD}": (right.sum(), batch.counts[HEAD])})

    def predict(
        self, scores: np.ndarray, examples: Sequence[Example], names: Sequence[str]
    ) -> list[dict[str, Any]]:
        """The prediction of each example, of `scores [N, K]`."""
        table = make_table(scores.shape, np.float64)
        size = count_at_once(table)
        for own, out in zip(walk(scores, size), walk(table, size), strict=True):
            out[:] = torch.from_numpy(own).double().sigmoid().numpy()
        found = name_rows(names, table)
        return [
            {
                "id": example.id,
                "gold": None if example.label is None else list(example.label),
                "guess": self.decide(by_name),
                "probabilities": by_name,
                **name_sets(example),
            }
            for example, by_name in zip(examples, found, strict=True)
        ]

    def decide(self, probabilities: Mapping[str, float]) -> list[str]:
        """The labels that are guessed."""
        return choose_labels(probabilities, self.threshold, self.rule)


def choose_labels(
    probabilities: Mapping[str, float], threshold: Threshold, rule: Rule
) -> list[str]:
    """The labels above their threshold, and the likeliest one where the rule needs it."""
    own = threshold if isinstance(threshold, Mapping) else dict.fromkeys(probabilities, threshold)
    top = {max(probabilities, key=probabilities.__getitem__)} if rule == "top" else set()
    return [n for n, p in probabilities.items() if p > own.get(n, HALF) or n in top]
