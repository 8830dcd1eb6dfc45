"""Joint masks of whole cells and of their heads and neurons, which close at random until a share of
the parameters is gone (Xia et al., 2022).
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
from plmctl.training.pruning.rules import HardConcrete
from plmctl.training.stabilisers.base import (
    Beginning,
    KeptTensors,
    SavedNumber,
    merge_terms,
    to_key,
)

TERM = "sparsity"


@part_of("pruning")
class Joint(Pruning):
    """`f = z_cell z_unit`: a gate of each cell, and one of each of its heads or neurons (CoFi: Xia
    et al., 2022, arXiv:2204.00408, sec. 3.1). Gates are hard-concrete numbers (`HardConcrete`).

    The loss has `l1 (s - t) + l2 (s - t)^2`, where `s = 1 - sum b_i P(z_cell > 0) P(z_unit > 0)` is
    the expected share of parameters that goes. The target t rises evenly to `sparsity` at
    `warm_up`. The multipliers l1 and l2 climb the gradient, from 0. At `end_at` the smallest gates
    are cut until the share is reached, and the others become factors of the weights. Differs: no
    gates of hidden columns; with a teacher, any `distill=` instead of layers that are matched anew.

    Args:
        start: The first score of a gate; sigmoid(start) is about its openness.
        lr: The peak rate of scores and multipliers, which have no weight decay.
        warm_up: The share of the run in which the target rises.
    """

    averages = True
    terms = frozenset({TERM})
    factors: UnitFactors

    def __init__(
        self, *, sparsity: DropoutRate, start: float, lr: Amount, warm_up: Rate, end_at: Rate
    ) -> None:
        super().__init__(sparsity=sparsity, begin_at=0.0, end_at=end_at, every=1)
        self.start, self.lr, self.warm_up = start, lr, warm_up
        self.rule = HardConcrete(start=start, weight=0.0)
        self.scores = nn.ParameterDict()
        self.multipliers = nn.ParameterDict(
            {name: nn.Parameter(torch.zeros(())) for name in ("linear", "square")}
        )
        self.gates, self.slopes = KeptTensors({}), KeptTensors({})
        self.seed, self.step = 0, 0
        self.shown = SavedNumber()  # 1 while the model holds the weights of evaluation

    def begin(self, given: Beginning) -> None:
        self.seed, self.factors = given.seed, UnitFactors(given.model)
        for name, own in self.factors.units.items():
            for kind, count in (("unit", own.count), ("cell", 1)):
                first = self.factors.weights[name].new_full((count,), self.start).detach()
                self.scores[_spell(kind, name)] = nn.Parameter(first)
        scores = self._list_scores()
        self.gates = KeptTensors({key: torch.ones_like(own) for key, own in scores.items()})
        self.slopes = KeptTensors({key: torch.zeros_like(own) for key, own in scores.items()})
        for multiplier in self.multipliers.values():
            multiplier.register_hook(torch.neg)  # it climbs
        self.cover(self.factors.weights, self.factors.draw_ones())

    def _list_scores(self) -> dict[str, Tensor]:
        return {key: own.detach() for key, own in self.scores.items()}

    def own_rates(self) -> dict[nn.Parameter, float]:
        own = [*self.scores.parameters(), *self.multipliers.parameters()]
        return dict.fromkeys(own, self.lr)

    def figures(self) -> dict[str, float]:
        """The share of the parameters of heads and neurons whose gates are closed."""
        return {"sparsity": self.factors.measure_cut(self.list_masks())}

    def counts(self, task: Objective, batch: Batch) -> dict[str, int]:
        return {TERM: len(batch.key)}

    def expect(self) -> Tensor:
        """s, the expected share of the parameters that goes."""
        kept = []
        for name, price in self.factors.prices.items():
            cell, unit = (self.rule.price(self.scores[_spell(kind, name)]) for kind in KINDS)
            kept.append(price * (cell * unit).sum())
        return 1 - torch.stack(kept).sum()

    def add(self, out: Output, again: Callable[[], Output], batch: Batch) -> Output:
        target = self.sparsity * min(1.0, self.share.value / max(self.warm_up, 1e-9))
        gap = self.expect() - target
        price = self.multipliers["linear"] * gap + self.multipliers["square"] * gap.square()
        weight = 1.0 if self.unfinished else 0.0
        return merge_terms(out, **{TERM: Term(len(batch.key) * price, weight)})

    def pass_back(self, name: str, gradient: Tensor) -> Tensor:
        if self.unfinished:
            own = self.factors.learn(name, gradient)
            cell, unit = (self.gates.of(_spell(kind, name)) for kind in KINDS)
            self._learn(_spell("unit", name), own * cell)
            self._learn(_spell("cell", name), (own * unit).sum()[None])
        return gradient * self.masks.of(name)

    def _learn(self, key: str, gradient: Tensor) -> None:
        add_gradient(self.scores[key], gradient * self.slopes.of(key))

    @torch.no_grad()
    def before_step(self, model: Model, optimizer: Optimizer, share: float) -> None:
        super().before_step(model, optimizer, share)
        self.factors.restore(dict(model.named_parameters()))

    def after_step(self, model: Model, step: int) -> None:
        self.step = step
        super().after_step(model, step)

    def choose(self, weights: Mapping[str, Tensor], pruned: float) -> None:
        last = self.share.value >= self.end_at
        self.rule.draw_into(self.gates, self.slopes, self._list_scores(), [self.seed, self.step])
        drawn = {key: self.gates.of(key) for key in self.scores}
        for name, own in (self._settle() if last else self._multiply(drawn)).items():
            self.masks.of(name).copy_(self.factors.spread(name, own))

    def _multiply(self, gates: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """{name: the gates of units times that of their cell}."""
        return {n: gates[_spell("cell", n)] * gates[_spell("unit", n)] for n in self.names}

    def _settle(self) -> dict[str, Tensor]:
        """The gates without chance, the smallest of which are cut until the share is reached.

        Gates of 1 or 0 are ranked by their scores.
        """
        scores = self._list_scores()
        settled = self._multiply(self.rule.masks(scores, 1.0))
        ranked = self._multiply({key: torch.sigmoid(own) for key, own in scores.items()})
        kept = self.factors.cut(ranked, self.sparsity)
        least = torch.finfo(torch.float32).eps
        return {
            name: torch.where(kept[name] > 0, settled[name].clamp(min=least), 0.0)
            for name in self.names
        }

    def mask(self, weights: Mapping[str, Tensor]) -> None:
        self.factors.take(weights)
        self.factors.write(weights, self.list_masks())

    @torch.no_grad()
    def exchange(self, model: Model) -> None:
        self.shown.set(1 - self.shown.value)
        masks = self.list_masks()
        if self.shown.value and self.unfinished and self.begun:
            own = self._multiply(self.rule.masks(self._list_scores(), 1.0))
            masks = {name: self.factors.spread(name, each) for name, each in own.items()}
        self.factors.write(dict(model.named_parameters()), masks)


KINDS = ("cell", "unit")


def _spell(kind: str, name: str) -> str:
    return f"{kind}/{to_key(name)}"
