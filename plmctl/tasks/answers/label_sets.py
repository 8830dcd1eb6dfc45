"""Any number of labels for a text, a pair or an entity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.errors import ConfigError, DataError, nearest
from plmctl.core.fields import Field
from plmctl.core.named_values import name_rows
from plmctl.core.parts import part_of
from plmctl.core.tables import count_at_once, make_table, release
from plmctl.objectives.base import Output, Term
from plmctl.storage.arrays import walk
from plmctl.tasks.answers.base import HALF, Answer, Threshold
from plmctl.tasks.answers.label_loss import EachLabelLoss
from plmctl.tasks.facts import TaskFacts
from plmctl.tasks.layouts import encode
from plmctl.tasks.readers.label_lists import name_places
from plmctl.tasks.record import Example, Examples
from plmctl.tasks.scores.labels import name_sets
from plmctl.tasks.splits import Splits

Rule = Literal["above", "top"]


@part_of("answer")
class SetAnswer(Answer):
    """All labels of an example, each decided by itself ("binary relevance": Tsoumakas et al., 2010,
    "Mining Multi-label Data", sec. 34.3).

    `loss = - mean over labels k of [y_k log s(z_k) + (1 - y_k) log s(-z_k)]`, z the logits, s the
    sigmoid; `EachLabelLoss` weighs and smooths it. Labels with s(z_k) above their threshold are
    guessed.

    Args:
        threshold: The probability threshold of a label: one for all, or {label: its own}; other
            labels have `HALF`.
        decide: "above": all labels above the threshold are guessed; "top": these, and always the
            likeliest one.
        class_weights: {label: weight in the loss where it is there}, or "balanced"; None: 1 each.
        focal_gamma: The gamma of the focal loss; 0: none.
        label_smoothing: The share of a decision that both of its sides have in equal parts.
    """

    fields: Mapping[str, Field] = {
        "labels.types": Field("[N, K]", "int", "1 for each label of the example, 0 for the others")
    }
    facts = TaskFacts(
        needs=frozenset({"text", "labels.types"}), head="types", answer="types", chooses=False
    )

    def __init__(
        self,
        *,
        threshold: Threshold = HALF,
        decide: Rule = "above",
        class_weights: Mapping[str, float] | str | None = None,
        focal_gamma: float = 0.0,
        label_smoothing: float = 0.0,
    ) -> None:
        each = threshold if isinstance(threshold, Mapping) else {"": threshold}
        for name, value in each.items():
            if not 0 < value < 1:
                path = f"task.threshold{'.' if name else ''}{name}"
                allowed = "above 0 and below 1, a probability"
                raise ConfigError(path, value, allowed, fix=f"{path}=0.5")
        self.threshold, self.rule = threshold, decide
        self.label_loss = EachLabelLoss(class_weights, focal_gamma, label_smoothing)
        self.unseen: set[str] = set()  # labels that training lacks

    @property
    def remarks(self) -> list[str]:
        if not self.unseen:
            return []
        known = f"{len(self.unseen)} labels do not occur in training, such as {min(self.unseen)}"
        return [f"{known}: they are never guessed, and count as missed"]

    @property
    def decided(self) -> dict[str, Any]:
        return self.label_loss.decided

    def settle(
        self, examples: list[Example], names: list[str] | None, files: Splits
    ) -> tuple[list[Example], list[str] | None]:
        """Labels that are positions in lists of 0 and 1, by the names that the config states, or by
        all positions.
        """
        columns = files.columns.get("labels")
        if names is None and isinstance(columns, list | tuple):
            names = [str(name) for name in columns]
        sizes = {*getattr(files.reader, "places", {}).values()}
        if not sizes:
            return examples, names
        size = max(sizes)
        names = [str(place) for place in range(size)] if names is None else names
        if len(names) != size or len(sizes) > 1:
            allowed = f"{size} names, one for each position of the lists of 0 and 1"
            raise ConfigError("task.label_names", names, allowed)
        return [
            e if e.label is None else replace(e, label=name_places(e.label, names))
            for e in examples
        ], names

    def seen(self, example: Example) -> Sequence[str]:
        return list(example.label)

    def fit(self, examples: Examples, names: list[str] | None, *, stated: bool) -> list[str]:
        """`names`, or the names of the training split; DataError without any."""
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

    def number(self, examples: Examples, names: list[str] | None) -> dict[str, np.ndarray]:
        assert names is not None
        place = {name: index for index, name in enumerate(names)}
        labels = make_table((len(examples), len(names)), np.int64)
        for number, example in enumerate(examples):
            labels[number, [place[name] for name in example.label if name in place]] = 1
        release(labels)
        return {"types": labels}

    def loss(self, logits: Tensor, batch: Batch, names: list[str] | None) -> Output:
        """The summed loss, with how many examples have exactly their labels."""
        gold = batch.require("labels.types")
        known = (gold != IGNORE).all(-1)  # the first of several rows of an example
        right = ((logits > 0) == (gold == 1)).all(-1) & known
        total = self.label_loss.add_up(logits, gold, names)
        return Output({"types": Term(total)}, {"acc/types": (right.sum(), batch.counts["types"])})

    def predict(
        self, logits: np.ndarray, rows: Rows, examples: Examples, names: list[str] | None
    ) -> list[dict[str, Any]]:
        assert names is not None
        scores = encode.take_firsts(rows, logits)
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

    def decide(
        self, probabilities: Mapping[str, float], threshold: Threshold | None = None
    ) -> list[str]:
        """The labels above their threshold, and the likeliest one where the rule needs it."""
        least = self.threshold if threshold is None else threshold
        own = least if isinstance(least, Mapping) else dict.fromkeys(probabilities, least)
        top = {super().decide(probabilities)} if self.rule == "top" else set()
        return [n for n, p in probabilities.items() if p > own.get(n, HALF) or n in top]
