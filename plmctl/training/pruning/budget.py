"""Pruning to a budget: a scalar at each head and neuron, whose price shrinks it until the model has
as many parameters as wanted (Khetan and Karnin, 2020).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from plmctl.core.batch import Batch
from plmctl.core.parts import part_of
from plmctl.core.values import Amount, DropoutRate, Rate
from plmctl.models.base import Model
from plmctl.models.units import CellUnits, count_parameters, find_heads, find_neurons, list_cells
from plmctl.objectives.base import Objective, Output, Term
from plmctl.training.pruning.base import Pruning, refuse_model
from plmctl.training.stabilisers.base import Beginning, KeptTensors, merge_terms

TERM = "budget"


@part_of("pruning")
class Budgeted(Pruning):
    """A factor a of the columns that each head and each neuron writes; the smallest |a| are cut
    until the share `1 - sparsity` of the parameters of heads and neurons is left (schuBERT: Khetan
    and Karnin, 2020, arXiv:2005.06628, sec. 3).

    The loss has `weight sum_i b_i |a_i|`, where b_i is the share of the parameters that go with
    unit i, so that `sum b_i = 1`. A unit of which a is cut may come back until `end_at`. Then all a
    stay, as factors of the weights. Differs: no scalars inside heads and on hidden columns; the cut
    follows a schedule, and the weights are trained on instead of anew.

    Args:
        weight: The weight of the price in the loss.
        lr: The peak rate of the factors, which have no weight decay.
    """

    terms = frozenset({TERM})

    def __init__(self, *, sparsity: DropoutRate, weight: Amount, lr: Amount, end_at: Rate) -> None:
        super().__init__(sparsity=sparsity, begin_at=0.0, end_at=end_at, every=1)
        self.weight, self.lr = weight, lr
        self.units: dict[str, CellUnits] = {}
        self.prices: dict[str, float] = {}  # b of one unit, by the weight that reads it
        self.dense = KeptTensors({})
        self.factors = nn.ParameterDict()

    def begin(self, given: Beginning) -> None:
        names = {id(weight): name for name, weight in given.model.named_parameters()}
        costs: dict[str, float] = {}
        for _, cell in list_cells(given.model.backbone):
            own = find_heads(cell) or find_neurons(cell)
            if own is not None and own.output.weight.requires_grad:
                name = names[id(own.output.weight)]
                self.units[name], costs[name] = own, count_parameters(cell, own)
        if not self.units:
            raise refuse_model("trained heads of attention or feed-forward neurons in its layers")
        total = sum(costs[name] * own.count for name, own in self.units.items())
        self.prices = {name: cost / total for name, cost in costs.items()}
        weights = {name: own.output.weight for name, own in self.units.items()}
        self.dense = KeptTensors(weights)
        for name, own in self.units.items():
            self.factors[_spell(name)] = nn.Parameter(weights[name].new_ones(own.count).detach())
        self.cover(weights, {n: torch.ones_like(w[:1]).detach() for n, w in weights.items()})

    def of(self, name: str) -> Tensor:
        """[count] the factors of the units that a weight reads."""
        factors: Tensor = self.factors[_spell(name)]
        return factors

    def own_rates(self) -> dict[nn.Parameter, float]:
        return dict.fromkeys(self.factors.parameters(), self.lr)

    def figures(self) -> dict[str, float]:
        """The share of the parameters of heads and neurons that is cut."""
        gone = {n: int((self.masks.of(n) == 0).sum()) // u.width for n, u in self.units.items()}
        return {"sparsity": sum(self.prices[name] * count for name, count in gone.items())}

    def counts(self, task: Objective, batch: Batch) -> dict[str, int]:
        return {TERM: len(batch.key)}

    def add(self, out: Output, again: Callable[[], Output], batch: Batch) -> Output:
        price = torch.stack([b * self.of(n).abs().sum() for n, b in self.prices.items()]).sum()
        weight = self.weight if self.unfinished else 0.0
        return merge_terms(out, **{TERM: Term(len(batch.key) * price, weight)})

    def pass_back(self, name: str, gradient: Tensor) -> Tensor:
        if self.unfinished:
            own, values = self.units[name], self.factors[_spell(name)]
            columns = (gradient * self.dense.of(name)).sum(0)
            change = columns.view(own.count, own.width).sum(1).to(values.dtype)
            values.grad = change if values.grad is None else values.grad + change
        return gradient * self.masks.of(name)

    @torch.no_grad()
    def before_step(self, model: Model, optimizer: Optimizer, share: float) -> None:
        super().before_step(model, optimizer, share)
        weights = dict(model.named_parameters())
        for name in self.names:
            weights[name].copy_(self.dense.of(name))

    def choose(self, weights: Mapping[str, Tensor], pruned: float) -> None:
        flat = torch.cat([self.of(name).detach().abs() for name in self.names])
        costs = torch.cat(
            [flat.new_full((self.units[name].count,), self.prices[name]) for name in self.names]
        )
        order = flat.argsort(stable=True)
        before = costs[order].double().cumsum(0) - costs[order]  # the cost of smaller ones
        cut = torch.zeros_like(flat, dtype=torch.bool)
        cut[order] = before < pruned - 1e-9
        for name, gone in zip(
            self.names, cut.split([self.units[n].count for n in self.names]), strict=True
        ):
            factors = torch.where(gone, 0.0, self.of(name).detach())
            self.masks.of(name).copy_(factors.repeat_interleave(self.units[name].width)[None])

    def mask(self, weights: Mapping[str, Tensor]) -> None:
        for name in self.names:
            self.dense.of(name).copy_(weights[name])
            weights[name].mul_(self.masks.of(name))


def _spell(name: str) -> str:
    return name.replace(".", "/")
