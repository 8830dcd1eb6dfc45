"""Weights that share values: a codebook for each matrix, whose entries are trained (Han et al.,
2016).
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from torch import Tensor, nn

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Rule
from plmctl.models.base import Model
from plmctl.nn.tables import token_rows
from plmctl.storage.packed import LEAST, find_entries
from plmctl.training.stabilisers.base import UNFROZEN, Beginning, KeptTensors, Stabiliser

Bits = Annotated[int, Rule(lambda n: 2 <= n <= 8, "2 to 8")]


@part_of("stabiliser")
class Codebook(Stabiliser):
    """`W = C[i]`: each weight of a matrix or table is one of 2^bits values. The codes i are those
    of k-means before the first update, and `dL/dC_k = sum of dL/dW where i = k` (Han et al., 2016,
    arXiv:1510.00149, sec. 3).

    A value 0, where pruning has made at least 1% of a matrix 0, stays 0. `plmctl convert --bits`
    then stores the run without an error. Matrices of less than 1024 numbers stay as they are.

    Args:
        bits: Bits of a code.
    """

    def __init__(self, *, bits: Bits) -> None:
        super().__init__()
        self.bits = bits
        self.codes, self.free = KeptTensors({}), KeptTensors({})
        self.names: list[str] = []

    @torch.no_grad()
    def begin(self, given: Beginning) -> None:
        kinds = (nn.Linear, nn.Embedding)
        parts = [part for part in given.model.modules() if isinstance(part, kinds)]
        own, rows = {id(part.weight) for part in parts}, token_rows(given.model)
        weights = {
            name: weight[: rows.get(name, len(weight))]
            for name, weight in given.model.named_parameters()
            if id(weight) in own and weight.requires_grad
        }
        weights = {name: real for name, real in weights.items() if real.numel() >= LEAST}
        if not weights:
            allowed = f"a model that trains a matrix of {LEAST} numbers or more"
            raise ConfigError("stabiliser", "codebook", allowed, fix=UNFROZEN)
        self.names = list(weights)
        codes, free = {}, {}
        for name, weight in weights.items():
            values = weight.new_zeros(weight.shape, device="cpu") if weight.is_meta else weight
            found, table = find_entries(values.float().cpu().numpy(), self.bits)
            codes[name] = torch.from_numpy(found.astype(np.uint8)).to(weight.device)
            entries = torch.zeros(2**self.bits, device=weight.device)
            entries[: len(table)] = torch.from_numpy(table).to(entries)
            free[name] = entries != 0
            if not given.resumed:
                weight.copy_(entries[codes[name].long()])
        self.codes, self.free = KeptTensors(codes), KeptTensors(free)
        named = dict(given.model.named_parameters())
        for name in self.names:
            named[name].register_hook(lambda g, name=name: self._share(name, g))

    def _share(self, name: str, gradient: Tensor) -> Tensor:
        """The gradient of the entry of each weight; spare rows have none."""
        codes = self.codes.of(name).long()
        total = gradient.new_zeros(2**self.bits)
        total.index_add_(0, codes.flatten(), gradient[: len(codes)].flatten())
        shared = gradient.clone()
        shared[: len(codes)] = (total * self.free.of(name))[codes]
        return shared

    @torch.no_grad()
    def after_step(self, model: Model, step: int) -> None:
        """Set the weights of each entry to their mean, whatever the optimizer did."""
        weights = dict(model.named_parameters())
        for name in self.names:
            codes = self.codes.of(name).long()
            own = weights[name][: len(codes)]
            entries = own.new_zeros(2**self.bits)
            entries.index_reduce_(0, codes.flatten(), own.flatten(), "mean", include_self=False)
            own.copy_((entries * self.free.of(name))[codes])
