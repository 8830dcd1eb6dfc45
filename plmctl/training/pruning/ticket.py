"""Lottery tickets: the weights that survived in another run are trained from the start."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.training.pruning.base import Pruning, find_weights
from plmctl.training.stabilisers.base import Beginning


@part_of("pruning")
class Ticket(Pruning):
    """`W0 <- W0 M`, M = 0 where the weights of another, pruned run are 0; W0 are the first weights
    of this one (Frankle and Carbin, 2019, arXiv:1803.03635, sec. 1; of pretrained models: Chen et
    al., 2020, arXiv:2007.12223).

    With the checkpoint and the seed of the other run, these are its own first weights: it is
    rewound.

    Args:
        weights_from: The pruned run.
        open_weights: Reads the weights of a run.
    """

    def __init__(
        self, *, weights_from: str, open_weights: Callable[[str], Mapping[str, Tensor]]
    ) -> None:
        super().__init__(sparsity=0.0, begin_at=0.0, end_at=0.0, every=1)
        self.weights_from, self.open_weights = weights_from, open_weights

    @torch.no_grad()
    def begin(self, given: Beginning) -> None:
        weights, found = find_weights(given.model), self.open_weights(self.weights_from)
        fits = {
            name: weight
            for name, weight in weights.items()
            if name in found and found[name].shape == weight.shape
        }
        masks = {name: found[name] != 0 for name in fits}
        if all(bool(mask.all()) for mask in masks.values()):
            what = "has no pruned weights" if fits else "has no weights of the shapes of this model"
            allowed = f"a run with pruning, of the same model; this one {what}"
            fix = "weights_from=<a run with pruning=[magnitude]>"
            raise ConfigError("weights_from", self.weights_from, allowed, fix=fix)
        self.cover(fits, masks)
        self.final.set(1)
        for name, weight in fits.items():
            weight.mul_(masks[name].to(weight.device))
