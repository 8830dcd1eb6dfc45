"""Weights that share values: a codebook for each matrix, whose entries are trained (Han et al.,
2016).
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import DropoutRate, Rule
from plmctl.models.base import Model
from plmctl.nn.tables import token_rows
from plmctl.storage.packed import LEAST, find_entries
from plmctl.training.stabilisers.base import (
    UNFROZEN,
    Beginning,
    KeptTensors,
    SavedNumber,
    Stabiliser,
)

Bits = Annotated[int, Rule(lambda n: 2 <= n <= 8, "2 to 8")]


@part_of("stabiliser")
class Codebook(Stabiliser):
    """`W = C[i]`: each weight of a matrix or table is one of 2^bits values. The codes i are those
    of k-means after the share `begin_at` of the run, and do not change after that. The values are
    trained: `dL/dC_k` comes from all W with i = k (Han et al., 2016, arXiv:1510.00149, sec. 3).

    The codes are those of trained weights: new weights, such as those of a head, hardly learn any
    more once they have codes. `begin_at=0` is for a run whose checkpoint has learned the task.

    A value 0, where pruning has made at least 1% of a matrix 0, stays 0. `plmctl convert --bits`
    then stores the run without an error. Matrices of less than 1024 numbers stay as they are.

    Differs: The gradient of a value is the mean of those of its weights, not their sum. Adam makes
    the same steps, and the norm of the gradient does not grow with the sizes of the matrices.

    Args:
        bits: Bits of a code.
        begin_at: The share of the run after which weights have codes.
    """

    def __init__(self, *, bits: Bits, begin_at: DropoutRate) -> None:
        super().__init__()
        self.bits, self.begin_at, self.fixed_at = bits, begin_at, begin_at
        self.codes, self.free = KeptTensors({}), KeptTensors({})
        self.coded = SavedNumber()  # 1 when the codes are found
        self.names: list[str] = []

    @property
    def unfinished(self) -> bool:
        return not self.coded.value

    def begin(self, given: Beginning) -> None:
        kinds = (nn.Linear, nn.Embedding)
        parts = [part for part in given.model.modules() if isinstance(part, kinds)]
        own, rows = {id(part.weight) for part in parts}, token_rows(given.model)
        weights = {
            name: weight
            for name, weight in given.model.named_parameters()
            if id(weight) in own
            and weight.requires_grad
            and weight[: rows.get(name, len(weight))].numel() >= LEAST
        }
        if not weights:
            allowed = f"a model that trains a matrix of {LEAST} numbers or more"
            raise ConfigError("stabiliser", "codebook", allowed, fix=UNFROZEN)
        self.names = list(weights)
        real = {name: weights[name][: rows.get(name, len(weights[name]))] for name in self.names}
        free = torch.zeros(2**self.bits, dtype=torch.bool)
        self.codes = KeptTensors(
            {n: torch.zeros_like(w, dtype=torch.uint8) for n, w in real.items()}
        )
        self.free = KeptTensors({n: free.to(w.device) for n, w in real.items()})
        for name, weight in weights.items():
            weight.register_hook(lambda g, name=name: self._share(name, g))

    @torch.no_grad()
    def _find_codes(self, name: str, weight: Tensor) -> None:
        """Set the codes of a weight, whose values become those of the codebook."""
        codes = self.codes.of(name)
        real = weight[: len(codes)]
        found, table = find_entries(real.float().cpu().numpy(), self.bits)
        codes.copy_(torch.from_numpy(found.astype(np.uint8)))
        entries = torch.zeros(2**self.bits)
        entries[: len(table)] = torch.from_numpy(table)
        self.free.of(name).copy_(entries != 0)
        real.copy_(entries.to(real)[codes.long()])

    def _average(self, name: str, values: Tensor) -> Tensor:
        """The mean over the weights of its entry, for each weight; 0 for the entry 0.

        In fp64, so that the mean of equal numbers is that number.
        """
        codes = self.codes.of(name).long()
        flat, totals = codes.flatten(), values.new_zeros(2**self.bits, dtype=torch.float64)
        totals.index_add_(0, flat, values.flatten().double())
        means = totals / flat.bincount(minlength=2**self.bits).clamp(min=1)
        return (means * self.free.of(name)).to(values)[codes]

    def _share(self, name: str, gradient: Tensor) -> Tensor:
        """The gradient of the entry of each weight; spare rows have none."""
        if not self.coded.value:
            return gradient
        shared, real = gradient.clone(), len(self.codes.of(name))
        shared[:real] = self._average(name, gradient[:real])
        return shared

    def before_step(self, model: Model, optimizer: Optimizer, share: float) -> None:
        if self.coded.value or share <= self.begin_at:
            return
        self.coded.set(1)
        weights = dict(model.named_parameters())
        for name in self.names:
            weight = weights[name]
            self._find_codes(name, weight)
            optimizer.state.pop(weight, None)  # moments of single weights
            if weight.grad is not None:
                weight.grad.copy_(self._share(name, weight.grad))

    @torch.no_grad()
    def after_step(self, model: Model, step: int) -> None:
        """Set the weights of each entry to their mean, whatever the optimizer did."""
        weights = dict(model.named_parameters())
        for name in self.names if self.coded.value else ():
            real = weights[name][: len(self.codes.of(name))]
            real.copy_(self._average(name, real))
