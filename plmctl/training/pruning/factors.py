"""Factors of heads and neurons: what a model writes with them, and what each unit costs."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from plmctl.models.base import Model
from plmctl.models.units import CellUnits, count_parameters, find_heads, find_neurons, list_cells
from plmctl.training.pruning.base import refuse_model
from plmctl.training.pruning.dense import DenseWeights


class UnitFactors(DenseWeights):
    """A factor f of the columns that each head and each neuron writes, `W' = W f`, so that `dL/df =
    sum of dL/dW' W` over the columns.

    Args:
        model: The model.

    Raises:
        ConfigError: It trains no head and no neuron.
    """

    def __init__(self, model: Model) -> None:
        names = {id(weight): name for name, weight in model.named_parameters()}
        units: dict[str, CellUnits] = {}  # by the weight that reads them
        costs: dict[str, float] = {}
        for _, cell in list_cells(model.backbone):
            own = find_heads(cell) or find_neurons(cell)
            if own is not None and own.output.weight.requires_grad:
                name = names[id(own.output.weight)]
                units[name], costs[name] = own, count_parameters(cell, own)
        if not units:
            raise refuse_model("trained heads of attention or feed-forward neurons in its layers")
        weights = {name: own.output.weight for name, own in units.items()}
        super().__init__(weights)
        self.units, self.weights = units, weights
        total = sum(costs[name] * own.count for name, own in units.items())
        # the share of the parameters of all units that go with one of them
        self.prices = {name: cost / total for name, cost in costs.items()}

    def draw_ones(self) -> dict[str, Tensor]:
        """{name: a factor of 1 for each column}."""
        return {name: torch.ones_like(own[:1]).detach() for name, own in self.weights.items()}

    def learn(self, name: str, gradient: Tensor) -> Tensor:
        """[count] dL/df of dL/dW'."""
        own = self.units[name]
        return (gradient * self.dense.of(name)).sum(0).view(own.count, own.width).sum(1)

    def spread(self, name: str, factors: Tensor) -> Tensor:
        """[1, columns] of one factor for each unit."""
        return factors.repeat_interleave(self.units[name].width)[None]

    def cut(self, factors: Mapping[str, Tensor], pruned: float) -> dict[str, Tensor]:
        """The factors, 0 for the smallest |f|: as few units as have a share `pruned` of the
        parameters.
        """
        flat = torch.cat([factors[name].abs() for name in self.units])
        costs = torch.cat([torch.full_like(factors[n], self.prices[n]) for n in self.units])
        order = flat.argsort(stable=True)
        before = costs[order].double().cumsum(0) - costs[order]  # the cost of smaller ones
        gone = torch.zeros_like(flat, dtype=torch.bool)
        gone[order] = before < pruned - 1e-9
        parts = gone.split([own.count for own in self.units.values()])
        return {n: factors[n].masked_fill(own, 0) for n, own in zip(self.units, parts, strict=True)}

    def measure_cut(self, masks: Mapping[str, Tensor]) -> float:
        """The share of the parameters of units whose columns are 0 in the masks."""
        gone = {n: int((masks[n] == 0).sum()) // own.width for n, own in self.units.items()}
        return sum(self.prices[name] * count for name, count in gone.items())
