"""Two-stage ELECTRA (Clark et al., 2020, fig. 3 right): first the generator, then the model that
begins as its copy.
"""

from __future__ import annotations

import torch
from torch import nn

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.models.base import Model
from plmctl.objectives.base import Output
from plmctl.objectives.electra import Electra
from plmctl.objectives.generator import Generator


@part_of("objective")
class TwoStage(Electra):
    """`updates` updates of the generator alone; then the model takes its weights, the generator is
    frozen, the model learns.

    (Clark et al., 2020, arXiv:2003.10555, sec. 3.3: both for n steps, so `updates` is half of the
    run; without the copy the model may never beat the majority class.) It needs a generator of the
    model's size that shares no weights with it. `copied=False` leaves the copy out. Validation
    measures both losses in both stages. Differs: one schedule runs over both stages; the frozen
    generator runs without dropout.
    """

    started: torch.Tensor

    def __init__(
        self,
        *,
        generator: Generator,
        model: Model,
        updates: int,
        rtd_weight: float = 50.0,
        all_tokens: bool = True,
        copied: bool = True,
    ) -> None:
        super().__init__(generator=generator, rtd_weight=rtd_weight, all_tokens=all_tokens)
        if updates < 1:
            raise ConfigError("updates", updates, "1 or more, of the generator alone")
        if {id(p) for p in generator.parameters()} & {id(p) for p in model.parameters()}:
            allowed = "a frozen generator shares no weights with the model"
            raise ConfigError("generator", ..., allowed, fix="its tied=none")
        if copied and _shapes(generator.backbone) != _shapes(model.backbone):
            allowed = "a generator a generator of the model's size, whose weights the model takes"
            raise ConfigError("generator", ..., allowed, fix="its share=1")
        self.updates, self.copied = updates, copied
        # whether the second stage has begun: saved with the run
        self.register_buffer("started", torch.zeros((), dtype=torch.int64))
        self._second: bool | None = None  # the same, read once from the device

    @property
    def second(self) -> bool:
        """Whether the model's stage has begun."""
        if self._second is None:
            self._second = bool(self.started)
        return self._second

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        if self.training and not self.second:
            return self.generate(self.generator(batch))
        if self.second:
            self.generator.eval()
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.second):
            drawn = self.generator(batch)
            generated = self.generate(drawn)
        discriminated = self.discriminate(model, drawn)
        return Output(
            {**generated.terms, **discriminated.terms},
            {**generated.logs, **discriminated.logs},
            answers=discriminated.answers,
        )

    def after_step(self, model: Model, step: int) -> None:
        if step == self.updates:
            if self.copied:
                model.backbone.load_state_dict(self.generator.backbone.state_dict())
            self.started.fill_(1)
            self._second = True


def _shapes(module: nn.Module) -> dict[str, list[int]]:
    return {name: list(parameter.shape) for name, parameter in module.named_parameters()}
