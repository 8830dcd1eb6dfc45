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
from plmctl.objectives.base import Objective, Output, Term
from plmctl.training.pruning.base import Pruning
from plmctl.training.pruning.dense import add_gradient
from plmctl.training.pruning.factors import UnitFactors
from plmctl.training.stabilisers.base import Beginning, merge_terms, to_key

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
    factors: UnitFactors

    def __init__(self, *, sparsity: DropoutRate, weight: Amount, lr: Amount, end_at: Rate) -> None:
        super().__init__(sparsity=sparsity, begin_at=0.0, end_at=end_at, every=1)
        self.weight, self.lr = weight, lr
        self.values = nn.ParameterDict()

    def begin(self, given: Beginning) -> None:
        self.factors = UnitFactors(given.model)
        for name, own in self.factors.units.items():
            ones = self.factors.weights[name].new_ones(own.count).detach()
            self.values[to_key(name)] = nn.Parameter(ones)
        self.cover(self.factors.weights, self.factors.draw_ones())

    def of(self, name: str) -> Tensor:
        """[count] the factors of the units that a weight reads."""
        values: Tensor = self.values[to_key(name)]
        return values

    def own_rates(self) -> dict[nn.Parameter, float]:
        return dict.fromkeys(self.values.parameters(), self.lr)

    def figures(self) -> dict[str, float]:
        """The share of the parameters of heads and neurons that is cut."""
        return {"sparsity": self.factors.measure_cut(self.list_masks())}

    def counts(self, task: Objective, batch: Batch) -> dict[str, int]:
        return {TERM: len(batch.key)}

    def add(self, out: Output, again: Callable[[], Output], batch: Batch) -> Output:
        prices = [b * self.of(name).abs().sum() for name, b in self.factors.prices.items()]
        weight = self.weight if self.unfinished else 0.0
        return merge_terms(out, **{TERM: Term(len(batch.key) * torch.stack(prices).sum(), weight)})

    def pass_back(self, name: str, gradient: Tensor) -> Tensor:
        if self.unfinished:
            add_gradient(self.values[to_key(name)], self.factors.learn(name, gradient))
        return gradient * self.masks.of(name)

    @torch.no_grad()
    def before_step(self, model: Model, optimizer: Optimizer, share: float) -> None:
        super().before_step(model, optimizer, share)
        self.factors.restore(dict(model.named_parameters()))

    def choose(self, weights: Mapping[str, Tensor], pruned: float) -> None:
        values = {name: self.of(name).detach() for name in self.names}
        for name, own in self.factors.cut(values, pruned).items():
            self.masks.of(name).copy_(self.factors.spread(name, own))

    def mask(self, weights: Mapping[str, Tensor]) -> None:
        self.factors.take(weights)
        self.factors.write(weights, self.list_masks())
