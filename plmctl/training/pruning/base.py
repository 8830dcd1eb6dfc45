"""The base of prunings: masks of weights, blocked gradients, and a schedule of the share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from plmctl.core.errors import ConfigError, nearest
from plmctl.core.parts import base_of
from plmctl.models.base import Model
from plmctl.models.units import list_cells
from plmctl.training.stabilisers.base import KeptTensors, SavedNumber, Stabiliser

Scope = Literal["matrix", "model"]


@base_of("pruning")
class Pruning(Stabiliser):
    """Sets more and more weights to 0 while a model is trained.

    `s(x) = sparsity (1 - (1 - (x - begin_at) / (end_at - begin_at))^3)` is the pruned share after
    the share x of the run: 0 before `begin_at`, `sparsity` from `end_at` on (Zhu and Gupta, 2017,
    arXiv:1710.01878, eq. 1). With `begin_at = end_at` all is pruned at once.

    Args:
        sparsity: The share of the weights that are 0 in the end.
        begin_at: The share of the run before which nothing is pruned.
        end_at: The share of the run after which nothing more is pruned.
        every: Updates from one choice to the next.
    """

    def __init__(self, *, sparsity: float, begin_at: float, end_at: float, every: int) -> None:
        super().__init__()
        if begin_at > end_at:
            allowed = f"at most end_at={end_at:g}, where pruning ends"
            raise ConfigError("begin_at", begin_at, allowed, fix=f"begin_at={end_at:g}")
        self.sparsity, self.begin_at, self.end_at, self.every = sparsity, begin_at, end_at, every
        self.masks = KeptTensors({})
        self.names: list[str] = []
        self.share = SavedNumber()  # the part of the run that is done
        self.final = SavedNumber()  # 1 when the last choice is made

    @property
    def unfinished(self) -> bool:
        return not self.final.value

    def figures(self) -> dict[str, float]:
        """The share of the covered weights that are 0."""
        masks = self.list_masks().values()
        every = sum(mask.numel() for mask in masks)
        zeros = sum(int((mask == 0).sum()) for mask in masks)
        return {"sparsity": zeros / every} if every else {}

    def list_masks(self) -> dict[str, Tensor]:
        """{name: the mask of a weight}."""
        return {name: self.masks.of(name) for name in self.names}

    def cover(self, weights: Mapping[str, Tensor], masks: Mapping[str, Tensor]) -> None:
        """Keep a mask of each weight, of a shape that fits it; gradients of masked weights are 0.

        Args:
            weights: {name: weight}.
            masks: {name: its first mask, True where a weight stays}.
        """
        self.names, self.masks = list(weights), KeptTensors(masks)
        for name, weight in weights.items():
            trained = weight.requires_grad
            weight.requires_grad_(True)  # a stage may train it later
            weight.register_hook(lambda g, name=name: self.pass_back(name, g))
            weight.requires_grad_(trained)

    def pass_back(self, name: str, gradient: Tensor) -> Tensor:
        """The gradient of a weight from the gradient of the weight that the model has read."""
        return gradient * self.masks.of(name)

    def before_step(self, model: Model, optimizer: Optimizer, share: float) -> None:
        self.share.set(share)

    @torch.no_grad()
    def after_step(self, model: Model, step: int) -> None:
        weights = dict(model.named_parameters())
        last = self.share.value >= self.end_at
        if self.unfinished and (last or (step % self.every == 0 and self.begun)):
            self.choose({name: weights[name] for name in self.names}, self.rise())
            self.final.set(last)
        self.mask(weights)

    @property
    def begun(self) -> bool:
        """Whether the schedule has begun."""
        return self.share.value > self.begin_at

    def mask(self, weights: Mapping[str, Tensor]) -> None:
        """Mask the weights of the model, after each update."""
        for name in self.names:
            weights[name].mul_(self.masks.of(name))

    def choose(self, weights: Mapping[str, Tensor], pruned: float) -> None:
        """Set the masks so that the share `pruned` of the units is 0."""
        raise NotImplementedError(type(self).__name__)

    def rise(self) -> float:
        """s(x) after the last update."""
        if self.share.value >= self.end_at:
            return self.sparsity
        left = 1 - max(0.0, self.share.value - self.begin_at) / (self.end_at - self.begin_at)
        return self.sparsity * (1 - left**3)


def find_weights(model: Model, only: Sequence[str] = ()) -> dict[str, nn.Parameter]:
    """{name: matrix} of the trained linear maps in the layers of a model: no embeddings, biases,
    norms or heads.

    Args:
        only: Globs over these names; none: all.

    Raises:
        ConfigError: The model has no such matrix, or a glob matches none.
    """
    inside = {
        id(part.weight)
        for _, cell in list_cells(model.backbone)
        for part in cell.modules()
        if isinstance(part, nn.Linear)
    }
    named = {n: w for n, w in model.named_parameters() if id(w) in inside and w.requires_grad}
    if not named:
        raise refuse_model("trained linear maps in its layers")
    for pattern in only:
        if not any(fnmatchcase(name, pattern) for name in named):
            near = nearest(pattern, [*named, *{name.rpartition(".")[0] for name in named}])
            example = next(iter(named))
            allowed = f"matches no matrix of a layer, such as {example}{near}"
            raise ConfigError("only", pattern, allowed, fix="only=['*']")
    chosen = [name for name in named if not only or any(fnmatchcase(name, own) for own in only)]
    return {name: named[name] for name in chosen}


def refuse_model(allowed: str) -> ConfigError:
    """The error of a model that has nothing to prune."""
    return ConfigError("pruning", ..., f"needs a model with {allowed}", fix="pruning=[]")


def keep_largest(values: Mapping[str, Tensor], pruned: float, scope: Scope) -> dict[str, Tensor]:
    """{name: a mask of its shape}, 0 at the `round(pruned n)` smallest of n values, exactly.

    Args:
        values: {name: values, the larger the more important}.
        pruned: The share that is masked.
        scope: n counts the values of one matrix, or of all together.
    """
    if scope == "matrix":
        return {name: _keep(value, pruned) for name, value in values.items()}
    whole = _keep(torch.cat([value.flatten() for value in values.values()]), pruned)
    parts = whole.split([value.numel() for value in values.values()])
    return {
        name: part.view_as(value) for (name, value), part in zip(values.items(), parts, strict=True)
    }


def _keep(values: Tensor, pruned: float) -> Tensor:
    """A mask of the shape of `values`; the first of equal values are masked."""
    flat, masked = values.flatten(), round(pruned * values.numel())
    if not masked:
        return torch.ones_like(values, dtype=torch.bool)
    largest = flat.kthvalue(masked).values  # the largest of the masked values
    mask, equal = flat > largest, (flat == largest).nonzero().flatten()
    mask[equal[masked - int((flat < largest).sum()) :]] = True
    return mask.view_as(values)
