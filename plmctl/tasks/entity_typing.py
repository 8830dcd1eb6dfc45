"""The types of a marked entity, of which it may have several: Open Entity, FIGER and files of
their layouts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.heads.base import widen
from plmctl.models.base import Model
from plmctl.objectives.base import Facts, Output, Term
from plmctl.tasks import encode, typing_score
from plmctl.tasks.base import Example, TaskSettings
from plmctl.tasks.marked import MENTIONS, MarkedTask, States, refuse_unread
from plmctl.tasks.markers import Style
from plmctl.tasks.metrics import check_metrics, floor
from plmctl.tasks.tags import read_tags

Rule = Literal["above", "top"]


@dataclass(frozen=True, kw_only=True)
class TypingSettings(TaskSettings):
    """Settings of entity typing.

    Args:
        label_names: in the order of the logits; None: as the training split has them.
        marks: around the mention (tasks/markers.py).
        states: what the types are read from.
        entities: as of relations.
        decide: "above": all types above the threshold; "top": these, and always the first one.
        threshold: of the probability of a type.
    """

    label_names: Sequence[str] | None = None
    marks: Style = "symbols"
    entities: str | None = None
    states: States = "row"
    decide: Rule = "above"
    threshold: float = 0.5
    columns: Mapping[str, Any] | None = None  # type: ignore[assignment]  # its files have none


@part_of("task")
class EntityTyping(MarkedTask):
    """Predicts all types of a marked mention, each by itself (Zhang et al., 2019,
    arXiv:1905.07129, sec. 3.5).

    `loss = - mean over types k of [y_k log s(z_k) + (1 - y_k) log s(-z_k)]`, z the logits, s the
    sigmoid, averaged over mentions. Types with s(z_k) > `threshold` are guessed: with 0.5 those
    with z_k > 0 (Open Entity), with `decide="top"` also the best one (FIGER). Beside the metrics
    stand the threshold that has the best loose micro F1 on these very predictions, and that F1: of
    dev, for `task.threshold` on test.
    """

    head = "types"
    answer = "types"
    fields: Mapping[str, Field] = {
        "labels.types": Field("[N, K]", "int", "1 for each type of the mention, 0 for the others"),
        "values.mentions": MENTIONS,
    }
    facts = Facts(needs=frozenset({"text", "labels.types", "values.mentions"}))
    chooses = False
    count = 1
    typed = "texts that you type, one a line, with <e1>mention</e1>"

    Settings = TypingSettings

    def __init__(self, **settings: Any) -> None:
        own = TypingSettings(**settings)
        if not 0 < own.threshold < 1:
            allowed = "above 0 and below 1, a probability"
            raise ConfigError("task.threshold", own.threshold, allowed, fix="task.threshold=0.5")
        super().__init__(
            own, metrics=check_metrics(own.metrics, typing_score.NAMES), label_names=own.label_names
        )
        refuse_unread(own.states, self.pooling)
        self.marks, self.states, self.entities = own.marks, own.states, own.entities
        self.rule, self.threshold = own.decide, own.threshold
        self.unseen: set[str] = set()  # types that training lacks

    @property
    def remarks(self) -> list[str]:
        if not self.unseen:
            return []
        known = f"{len(self.unseen)} types do not occur in training, such as {min(self.unseen)}"
        return [f"{known}: they are never guessed, and count as missed"]

    def parse(self, line: str, number: int) -> Example:
        text, (start, end) = read_tags(line, 1)
        entity = {"start": start, "end": end, "id": "", "type": ""}
        return Example(
            str(number - 1), {"text": text, "entities": [entity]}, place=f"line {number}"
        )

    def labels_of(self, example: Example) -> Sequence[str]:
        return list(example.label)

    def fit_labels(self, examples: Iterable[Example]) -> None:
        examples = list(examples)
        if self.label_names is None:
            self.label_names = sorted({name for example in examples for name in example.label})
        if not self.label_names:
            raise DataError("no mention has a type", file=examples[0].place)
        self.unseen |= {name for e in examples for name in e.label} - {*self.label_names}

    def encode(self, examples: Sequence[Example], tokenizer: Any) -> Rows:
        rows = self.encode_texts(examples, tokenizer)
        if any(example.label is None for example in examples):
            return rows
        labels = np.zeros((len(examples), len(self.names)), dtype=np.int64)
        for number, example in enumerate(examples):
            own = set(example.label)
            labels[number] = [name in own for name in self.names]
        return encode.add_labels(rows, {"types": labels})

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        return {"types": model.heads["types"](self.read_states(model, batch))}  # [B, K]

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        scores, gold = widen(logits["types"]), batch.require("labels.types")
        wanted = gold.clamp(min=0).to(scores.dtype)  # rows of IGNORE count nothing
        each = F.binary_cross_entropy_with_logits(scores, wanted, reduction="none").mean(-1)
        known = (gold != IGNORE).all(-1)
        right = ((scores > 0) == (gold == 1)).all(-1) & known
        total = torch.where(known, each, 0).sum()
        return Output(
            {"types": Term(total)}, {"acc/types": (right.sum(), self.counts(batch)["types"])}
        )

    def predict(
        self, logits: Mapping[str, np.ndarray], rows: Rows, examples: Sequence[Example]
    ) -> list[dict[str, Any]]:
        probabilities = torch.from_numpy(logits["types"]).double().sigmoid().numpy()
        predictions = []
        for example, own in zip(examples, probabilities, strict=True):
            by_name = dict(zip(self.names, own.tolist(), strict=True))
            predictions.append(
                {
                    "id": example.id,
                    "gold": None if example.label is None else list(example.label),
                    "guess": self.decide(by_name),
                    "probabilities": by_name,
                }
            )
        return predictions

    def decide(self, probabilities: Mapping[str, float]) -> list[str]:
        """The types above the threshold, and the likeliest one where that is asked for."""
        top = {super().decide(probabilities)} if self.rule == "top" else set()
        return [name for name, p in probabilities.items() if p > self.threshold or name in top]

    def score(self, predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        gold, guess = [p["gold"] for p in predictions], [p["guess"] for p in predictions]
        found = typing_score.score_types(gold, guess)
        threshold, best = typing_score.find_threshold(
            gold, [p["probabilities"] for p in predictions]
        )
        constant = [
            typing_score.score_types(gold, [types] * len(gold))
            for types in ([], *([name] for name in sorted({n for own in gold for n in own})))
        ]
        lowest = floor(self.metrics, [], lambda name: max(each[name] for each in constant))
        tuned = {"best_threshold": threshold, "f1_at_best_threshold": best}
        return {name: found[name] for name in self.metrics} | lowest | tuned
