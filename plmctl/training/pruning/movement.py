"""Movement pruning: weights that training moves towards 0 become 0 (Sanh et al., 2020)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from plmctl.core.batch import Batch
from plmctl.core.parts import part_of
from plmctl.core.values import Amount, DropoutRate, Rate
from plmctl.models.base import Model
from plmctl.objectives.base import Objective, Output, Term
from plmctl.training.pruning.base import Pruning, Scope, find_weights
from plmctl.training.pruning.rules import HardConcrete, Largest, MaskRule, Threshold
from plmctl.training.pruning.scores import Block, WeightScores
from plmctl.training.stabilisers.base import Beginning, KeptTensors, SavedNumber, merge_terms

TERM = "sparsity"


class Scored(Pruning):
    """`W' = W M(S)` with learned scores S, whose gradient is `dL/dS = dL/dW' W dM/dS`, with 1 for
    dM/dS where M is a step (Sanh et al., 2020, arXiv:2005.07683, sec. 4.1).

    A weight that is 0 now may come back until `end_at`; then M stays. The loss has `weight s(x)
    mean(price(S))`, the mean over matrices of their means. Differs: the released code changes M to
    the end.

    Args:
        rule: The way from scores to masks.
        lr: The peak rate of the scores, which have no weight decay.
        block: Rows and columns of weights that share one score (Lagunas et al., 2021,
            arXiv:2109.04838, sec. 3).
        only: Globs over names of matrices; none: all linear maps in layers.
    """

    scores: WeightScores

    def __init__(
        self,
        *,
        rule: MaskRule,
        lr: float,
        begin_at: float,
        end_at: float,
        block: Block,
        only: Sequence[str],
    ) -> None:
        super().__init__(sparsity=1.0, begin_at=begin_at, end_at=end_at, every=1)
        self.rule, self.lr, self.block, self.only = rule, lr, block, only
        self.terms = frozenset({TERM}) if rule.weight else frozenset()
        self.averages = rule.random
        self.slopes = KeptTensors({})  # dM/dS, where it is not 1
        self.seed, self.step = 0, 0
        self.shown = SavedNumber()  # 1 while the model holds the weights of evaluation

    def begin(self, given: Beginning) -> None:
        weights = find_weights(given.model, self.only)
        self.seed, self.scores = given.seed, WeightScores(weights, self.block, self.rule.start)
        kind = torch.float32 if self.rule.random else torch.bool
        scores = self.scores.all()
        self.cover(weights, {n: torch.ones_like(own, dtype=kind) for n, own in scores.items()})
        if self.rule.random:
            self.slopes = KeptTensors({n: torch.zeros_like(own) for n, own in scores.items()})

    def own_rates(self) -> dict[nn.Parameter, float]:
        return dict.fromkeys(self.scores.parameters(), self.lr)

    def counts(self, task: Objective, batch: Batch) -> dict[str, int]:
        return {TERM: len(batch.key)} if self.rule.weight else {}

    def add(self, out: Output, again: Callable[[], Output], batch: Batch) -> Output:
        if not self.rule.weight:
            return out
        prices = [self.rule.price(self.scores.of(name)).mean() for name in self.names]
        total = len(batch.key) * torch.stack(prices).mean()
        weight = self.rule.weight * self.rise() if self.unfinished else 0.0
        return merge_terms(out, **{TERM: Term(total, weight)})

    def pass_back(self, name: str, gradient: Tensor) -> Tensor:
        if self.unfinished:
            slope = self.slopes.of(name) if self.rule.random else None
            self.scores.learn(name, gradient, slope)
        return gradient * self.scores.spread(self.masks.of(name))

    @torch.no_grad()
    def before_step(self, model: Model, optimizer: Optimizer, share: float) -> None:
        super().before_step(model, optimizer, share)
        self.scores.restore(dict(model.named_parameters()))

    def after_step(self, model: Model, step: int) -> None:
        self.step = step
        super().after_step(model, step)

    def choose(self, weights: Mapping[str, Tensor], pruned: float) -> None:
        scores = self.scores.all()
        if not self.rule.random or pruned == 1:
            for name, mask in self.rule.masks(scores, pruned).items():
                self.masks.of(name).copy_(mask)
            return
        self.rule.draw_into(self.masks, self.slopes, scores, [self.seed, self.step])

    def mask(self, weights: Mapping[str, Tensor]) -> None:
        self.scores.take(weights)
        self.scores.write_blocks(weights, self.list_masks())

    @torch.no_grad()
    def exchange(self, model: Model) -> None:
        if not self.rule.random:
            return
        self.shown.set(1 - self.shown.value)
        masks = self.list_masks()
        if self.shown.value and self.unfinished and self.begun:
            masks = self.rule.masks(self.scores.all(), self.rise())
        self.scores.write_blocks(dict(model.named_parameters()), masks)


@part_of("pruning")
def movement(
    *,
    sparsity: DropoutRate,
    lr: Amount,
    begin_at: Rate,
    end_at: Rate,
    scope: Scope,
    block: Block = (1, 1),
    only: Sequence[str] = (),
) -> Pruning:
    """Hard movement pruning: M = 1 for the largest scores."""
    rule = Largest(sparsity=sparsity, scope=scope)
    return Scored(rule=rule, lr=lr, begin_at=begin_at, end_at=end_at, block=block, only=only)


@part_of("pruning")
def soft_movement(
    *,
    threshold: Rate,
    weight: Amount,
    lr: Amount,
    begin_at: Rate,
    end_at: Rate,
    block: Block = (1, 1),
    only: Sequence[str] = (),
) -> Pruning:
    """Soft movement pruning: M = 1 above a threshold, and the loss has the price of the scores."""
    rule = Threshold(threshold=threshold, weight=weight)
    return Scored(rule=rule, lr=lr, begin_at=begin_at, end_at=end_at, block=block, only=only)


@part_of("pruning")
def l0(
    *,
    weight: Amount,
    start: float,
    lr: Amount,
    begin_at: Rate,
    end_at: Rate,
    block: Block = (1, 1),
    only: Sequence[str] = (),
) -> Pruning:
    """L0 pruning: gates at random, and the loss has the probability that they are open."""
    rule = HardConcrete(start=start, weight=weight)
    return Scored(rule=rule, lr=lr, begin_at=begin_at, end_at=end_at, block=block, only=only)
