"""The interface of runtimes."""

from __future__ import annotations

import gc
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from plmctl.core.batch import Batch
from plmctl.core.errors import UsageError
from plmctl.core.parts import base_of
from plmctl.models.base import Model

_collecting: list[bool] = []  # whether garbage was collected, before each fork under way


def _hold_collector() -> None:
    _collecting.append(gc.isenabled())
    gc.disable()


def _release_collector() -> None:
    if _collecting.pop():
        gc.enable()


def _keep_inherited() -> None:
    gc.freeze()
    _release_collector()


# A forked process has none of the threads of libraries. Their models would wait for them for ever
# when garbage is collected there, so it never collects what it has inherited. Its parent collects
# as before, and what is frozen there, the imports, stays so.
os.register_at_fork(
    before=_hold_collector, after_in_parent=_release_collector, after_in_child=_keep_inherited
)

KEPT = 8  # prepared programs: each has the weights of its model
Answer = Callable[[Batch], Mapping[str, Tensor]]  # logits by name, of a batch


@dataclass(frozen=True)
class Program:
    """A trained model with the computation that a task, or another user, asks of it."""

    model: Model
    compute: Callable[[Model, Batch], Mapping[str, Tensor]]

    def __call__(self, batch: Batch) -> Mapping[str, Tensor]:
        """The logits of a batch by name, without gradients."""
        with torch.no_grad():
            return self.compute(self.model, batch)


@base_of("runtime")
class Runtime(ABC):
    """Computes programs on a processor."""

    on_gpu = False  # whether it computes on a GPU, too, and in other precisions than fp32

    def __init__(self) -> None:
        # a few programs, each for batches with the same fields
        self._ready: list[tuple[Program, tuple[str, ...], Answer]] = []

    @abstractmethod
    def prepare(self, program: Program, sample: Batch) -> Answer:
        """A function from batches to logits.

        Args:
            program: The model in evaluation mode, and its computation.
            sample: A usual batch. Later batches have the same fields, and other sizes.

        Raises:
            UsageError: The library is missing, or it cannot run this program.
        """

    def answer(self, program: Program, batch: Batch) -> Mapping[str, Tensor]:
        """The logits of a batch; the first batch of a program with these fields prepares it."""
        fields = _name_fields(batch)
        for known, own, answer in self._ready:
            if own == fields and known == program:
                return answer(batch)
        prepared = self.prepare(program, batch)
        self._ready = [(program, fields, prepared), *self._ready[: KEPT - 1]]
        return prepared(batch)

    def let_write(self, model: Model) -> Model:
        """The model with the library that writes its texts; unchanged where PyTorch writes them.

        Raises:
            UsageError: The library computes one pass alone, or not this model.
        """
        name = self.describe() or type(self).__name__
        what = f"{name} computes one pass, and a text needs one for each token"
        raise UsageError(f"{what}\n  fix: runtime=torch")

    def describe(self) -> str:
        """The library and its version, for people; "" for PyTorch."""
        return ""


def _name_fields(batch: Batch) -> tuple[str, ...]:
    """The fields of a batch that have tensors."""
    seqs = (f"{name}.{track}" for name, seq in batch.seqs.items() for track in ("", *seq.tracks))
    return (*seqs, *batch.spans, *batch.values, *(["anchors"] if batch.anchors is not None else []))
