"""Gradient-disentangled embedding sharing (He et al., 2023, DeBERTa 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.core.errors import ConfigError

Pair = tuple[nn.Embedding, nn.Embedding]  # the model's table, the generator's


class Disentanglement(nn.Module):
    """`E_D = stopgrad(E_G) + E_delta` for tables of the model and of its generator. E_delta is 0 at
    the start. The generator's loss alone trains E_G, the model's loss alone E_delta.

    In training the parameters of the model's tables are E_delta, and E_G is added to what they look
    up. Models that are evaluated and saved have the sum (`exchange`). The generator begins with the
    model's first tables. (arXiv:2111.09543, sec. 3.3.)

    Args:
        pairs: The tables.
    """

    begun: Tensor

    def __init__(self, pairs: Sequence[Pair]) -> None:
        super().__init__()
        self.pairs = tuple(pairs)  # in a tuple: no submodules, so not stored twice
        for number, (own, other) in enumerate(self.pairs):
            if own.weight.shape != other.weight.shape:
                allowed = "tables of equal sizes, and the generator's are of another"
                raise ConfigError("tied", "gdes", allowed, fix="share=1 together with it")
            self.register_buffer(f"delta_{number}", torch.zeros_like(own.weight))
            own.register_forward_hook(self._add)
        self.register_buffer("begun", torch.zeros((), dtype=torch.int64))
        self.apart = False  # whether the model's parameters are E_delta now

    @torch.no_grad()
    def begin(self) -> None:
        """Divide the model's first tables, once in a run."""
        if self.apart or int(self.begun):
            return
        for own, other in self.pairs:
            other.weight.copy_(own.weight)
            own.weight.zero_()
        self.begun.fill_(1)
        self.apart = True

    @torch.no_grad()
    def exchange(self) -> None:
        """Have the sums in the model instead of E_delta, or E_delta again, bit for bit."""
        if not int(self.begun):
            return
        for number, (own, other) in enumerate(self.pairs):
            kept = self.get_buffer(f"delta_{number}")
            if self.apart:
                kept.copy_(own.weight)
                own.weight.add_(other.weight)
            else:
                own.weight.copy_(kept)
        self.apart = not self.apart

    def _add(self, table: nn.Module, given: tuple[Any, ...], found: Tensor) -> Tensor:
        """The rows of a table of the model, with those of the generator."""
        if not self.apart:
            return found
        other = next(other for own, other in self.pairs if own is table)
        return found + F.embedding(given[0], other.weight.detach())
