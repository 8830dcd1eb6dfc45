"""PyTorch, as in training."""

from __future__ import annotations

from plmctl.core.batch import Batch
from plmctl.core.parts import part_of
from plmctl.models.base import Model
from plmctl.runtime.base import Answer, Program, Runtime


@part_of("runtime")
class EagerRuntime(Runtime):
    """PyTorch, as in training: every model, every device."""

    on_gpu = True

    def prepare(self, program: Program, sample: Batch) -> Answer:
        return program

    def let_write(self, model: Model) -> Model:
        return model
