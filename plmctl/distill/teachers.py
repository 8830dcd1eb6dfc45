"""Teachers that are trained models: one, or several whose probabilities are averaged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.distill.base import (
    LOGITS,
    Logits,
    Measures,
    Predictions,
    Question,
    Teacher,
    find_written,
    record_model,
)
from plmctl.distill.inheritance import inherit
from plmctl.models.base import Model, Once
from plmctl.nn.recorder import Record


class Frozen(Teacher):
    """A trained model in evaluation mode, without gradient, and not a submodule, so that it is
    neither trained nor saved.
    """

    def __init__(self, *, model: Model, name: str) -> None:
        super().__init__()
        self._held = (model.eval().requires_grad_(False),)
        self.measures = Measures.of(model, name)

    @property
    def model(self) -> Model:
        """The model."""
        return self._held[0]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Move with the module that holds it to its device and number type."""
        self.model._apply(fn)
        return super()._apply(fn, recurse)

    def models(self) -> list[Model]:
        return [self.model]

    def meet(self, question: Question) -> None:
        if lacks := sorted(question.heads - set(self.model.heads)):
            heads = ", ".join(self.model.heads) or "none"
            allowed = (
                f"a model with the head {', '.join(lacks)}, whose logits are compared;"
                f" {self.measures.name} has {heads}"
            )
            fix = (
                "teacher=<a model trained for that>,"
                " or distill=tinybert, which compares layers only"
            )
            raise ConfigError("teacher", ..., allowed, fix=fix)

    def bequeath(self, model: Model, *, fix: str) -> None:
        inherit(model, self.model, self.measures.name, fix=fix)

    def predict(self, batch: Batch, question: Question, record: Record) -> Predictions:
        with torch.no_grad():
            once: Any = Once(self.model, record - {LOGITS})
            return record_model(once, batch, question, record)


@dataclass(frozen=True)
class Mean(Logits):
    """The mean of several teachers at the same positions; `features` are those of the first."""

    parts: Sequence[Logits] = ()
    weights: Sequence[float] = ()

    def gather(self, positions: slice | Tensor) -> Tensor:
        """[p, K] `sum_i w_i z_i`."""
        return torch.stack(
            [w * part.gather(positions) for w, part in zip(self.weights, self.parts, strict=True)]
        ).sum(0)

    def probabilities(self, positions: slice | Tensor, temperature: float) -> Tensor:
        """[p, K] `sum_i w_i softmax(z_i / temperature)`."""
        by_part = [part.probabilities(positions, temperature) for part in self.parts]
        return torch.stack([w * p for w, p in zip(self.weights, by_part, strict=True)]).sum(0)


class TextVectors(Teacher):
    """The vectors that a model has of one text of each training example, computed before the
    training; so the model may have another tokenizer than the student.

    Args:
        vectors: [examples, W] by `values.example`.
        measures: The sizes of the model.
    """

    def __init__(self, *, vectors: Tensor, measures: Measures) -> None:
        super().__init__()
        self.vectors: Tensor
        self.register_buffer("vectors", vectors, persistent=False)
        self.measures = replace(measures, records=frozenset({LOGITS}))

    def predict(self, batch: Batch, question: Question, record: Record) -> Predictions:
        vectors = self.vectors[batch.require("values.example")]
        real = find_written("text", batch).real
        labelled = torch.ones(len(vectors), dtype=torch.bool, device=vectors.device)
        return Predictions(
            real, {name: Logits(vectors, labelled) for name in question.counts(batch)}
        )


class Several(Teacher):
    """`p = sum_i w_i p_i` of teachers with the same logits, w_i their shares of `weights`
    (Hinton et al., 2015, arXiv:1503.02531, sec. 1: the arithmetic mean). Their layers cannot be
    compared, so it gives only logits.
    """

    def __init__(
        self, *, teachers: Sequence[Teacher], weights: Sequence[float] | None = None
    ) -> None:
        super().__init__()
        weights = [1.0] * len(teachers) if weights is None else list(weights)
        if len(weights) != len(teachers) or min(weights) < 0 or not sum(weights):
            allowed = f"{len(teachers)} numbers, one for each teacher, none below 0 and not all 0"
            raise ConfigError("weights", weights, allowed)
        self.teachers: Sequence[Any] = nn.ModuleList(teachers)  # type: ignore[assignment]
        self.weights = [weight / sum(weights) for weight in weights]
        name = f"the {len(teachers)} teachers"
        self.measures = replace(teachers[0].measures, name=name, records=frozenset({LOGITS}))

    def models(self) -> list[Model]:
        return [model for teacher in self.teachers for model in teacher.models()]

    def meet(self, question: Question) -> None:
        for teacher in self.teachers:
            teacher.meet(question)

    def predict(self, batch: Batch, question: Question, record: Record) -> Predictions:
        predictions = [teacher.predict(batch, question, record) for teacher in self.teachers]
        first = predictions[0]
        logits = {
            name: Mean(
                own.features,
                own.labelled,
                parts=[prediction.logits[name] for prediction in predictions],
                weights=self.weights,
            )
            for name, own in first.logits.items()
        }
        return Predictions(first.real, logits)
