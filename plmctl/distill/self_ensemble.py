"""Self-ensemble and self-distillation (Xu et al., 2020): a student learns from the mean of its own
earlier states.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.shares import whole_of
from plmctl.distill.base import LOGITS, Measures, Predictions, Question, Teacher, record_model
from plmctl.distill.teachers import Mean
from plmctl.models.base import Model, Once
from plmctl.nn.recorder import Record


@part_of("teacher")
class SelfEnsemble(Teacher):
    """The mean of the last `window` students, one after each update, or a moving mean, as a
    teacher.

    `average_t = mean of theta_(t-1) .. theta_(t-K)`, fewer at first, of parameters (SDA, sec. 3.2
    of arXiv:2002.10345) or, with `vote`, of the predictions of these K models (SDV, sec. 3.1).
    `decay` instead of a window: `average <- average - (1 - d) (average - theta)`, `d = min(decay,
    (1 + t) / (10 + t))` (lonePatient/BERT-SDA). The averages are saved with the run as buffers;
    `plmctl average <run> --kept` makes the average a checkpoint.
    """

    def __init__(
        self,
        *,
        model: Model,
        window: int | None = None,
        decay: float | None = None,
        vote: bool = False,
    ) -> None:
        super().__init__()
        if (window is None) == (decay is None):
            allowed = "a window or a decay, one of the two"
            raise ConfigError("window", window, allowed, fix="window=5, or window=null decay=0.999")
        if window is not None and window < 1:
            raise ConfigError("window", window, "1 or more of the last students", fix="window=5")
        if decay is not None and not 0 < decay < 1:
            raise ConfigError("decay", decay, "0 < decay < 1", fix="decay=0.999")
        if vote and window is None:
            raise ConfigError(
                "vote", vote, "goes with a window: which students vote?", fix="window=5 decay=null"
            )
        self.window, self.decay, self.vote = window, decay, vote
        self.average = copy_as_buffers(model)
        several = window is not None and (window > 1 or vote)
        self.past = (
            nn.ModuleList(copy_as_buffers(model) for _ in range(window or 0)) if several else None
        )
        self.students: Tensor
        # the number of students so far, with the first one
        self.register_buffer("students", torch.ones((), dtype=torch.int64))
        self.names = [name for name, _ in model.named_parameters()]
        measures = Measures.of(model, "the average of the student")
        self.measures = replace(measures, records=frozenset({LOGITS})) if vote else measures

    def train(self, mode: bool = True) -> Any:
        """Stay in evaluation mode."""
        return super().train(False)

    def models(self) -> list[Any]:
        return list(self.past or ()) if self.vote else [self.average]

    def predict(self, batch: Batch, question: Question, record: Record) -> Predictions:
        with torch.no_grad():
            if not self.vote:
                return self._record(self.average, batch, question, record)
            assert self.past is not None
            students = list(self.past)[: int(self.students)]
            predictions = [self._record(past, batch, question, record) for past in students]
            equal = [1 / len(predictions)] * len(predictions)
            logits = {
                name: Mean(
                    own.features,
                    own.labelled,
                    parts=[prediction.logits[name] for prediction in predictions],
                    weights=equal,
                )
                for name, own in predictions[0].logits.items()
            }
            return Predictions(predictions[0].real, logits)

    def _record(self, model: Any, batch: Batch, question: Question, record: Record) -> Predictions:
        once: Any = Once(model, record - {LOGITS})
        return record_model(once, batch, question, record)

    @torch.no_grad()
    def after_step(self, model: Model, step: int) -> None:
        """Add the present student to the mean, and remove the one of `window` updates ago."""
        number, own, average = (
            int(self.students),
            {name: whole_of(own) for name, own in find_tensors(model, self.names).items()},
            find_tensors(self.average, self.names),
        )
        self.students += 1
        if self.past is None:
            d = 0.0 if self.decay is None else min(self.decay, (1 + step) / (10 + step))
            for name, mean in average.items():
                mean.lerp_(own[name], 1 - d)
            return
        for name, kept in find_tensors(self.past[number % len(self.past)], self.names).items():
            kept.copy_(own[name])
        students = [find_tensors(past, self.names) for past in list(self.past)[: number + 1]]
        for name, mean in average.items():
            mean.copy_(torch.stack([student[name] for student in students]).mean(0))


def copy_as_buffers(model: Model) -> Model:
    """A copy in evaluation mode whose parameters are buffers, so that it is saved but never
    trained.
    """
    copied = copy.deepcopy(model).eval()
    buffers: dict[int, Tensor] = {}
    for module in copied.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None:
                del module._parameters[name]
                module.register_buffer(
                    name, buffers.setdefault(id(parameter), parameter.detach().clone())
                )
    return copied


def find_tensors(model: nn.Module, names: Sequence[str]) -> dict[str, Tensor]:
    """The parameters or buffers of these names in `model`."""
    tensors: dict[str, Tensor] = dict(model.named_buffers(remove_duplicate=False))
    tensors |= dict(model.named_parameters(remove_duplicate=False))
    return {name: tensors[name] for name in names}
