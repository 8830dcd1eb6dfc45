"""Some of the weights that a model has are trained, and nothing is added (BitFit, and the like)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.nn.peft.base import Method, check_kinds, find_cells


@part_of("peft")
class Subset(Method):
    """The biases alone (BitFit: Ben Zaken et al., 2022, arXiv:2106.10199, sec. 3.1), or the cells
    that compute one thing (attention alone: Touvron et al., 2022, arXiv:2203.09795, sec. 4).

    Args:
        biases: every bias of the network is trained, those of norms, too.
        cells: the cells of this kind are trained whole: attention, feed-forward.
    """

    def __init__(self, *, biases: bool = False, cells: Sequence[str] = ()) -> None:
        self.biases, self.cells = biases, tuple(cells)

    def add_to(self, model: nn.Module) -> None:
        if self.cells:
            check_kinds(self.cells, find_cells(model))
        if not self.trains(model):
            allowed = "something to train: this model has no biases"
            raise ConfigError("biases", self.biases, allowed, fix="peft=[lora]")

    def trains(self, model: nn.Module) -> list[str]:
        chosen = {
            id(parameter)
            for cell in find_cells(model)
            if cell.facts.computes in self.cells
            for parameter in cell.parameters()
        }
        return [
            name
            for name, parameter in model.named_parameters()
            if id(parameter) in chosen or (self.biases and name.endswith(".bias"))
        ]
