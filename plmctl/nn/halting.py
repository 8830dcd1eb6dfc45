"""Adaptive computation time: every token decides after how many layers its state is final (Graves,
2016, arXiv:1603.08983; for each position: Dehghani et al., 2019, arXiv:1807.03819, sec. 2.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.nn.starting import Starting

Variant = Literal["basic", "accumulated"]


@dataclass(frozen=True, eq=False)
class Pondering:
    """The state of halting of the tokens of one forward pass so far, in fp32 or wider.

    Args:
        halted: [B, T] the probability that a token has halted; 1 if it has.
        remainder: [B, T] the probability that was left when it halted; 0 before.
        steps: [B, T] the layers that it took.
        state: [B, T, W] its result.
    """

    halted: Tensor
    remainder: Tensor
    steps: Tensor
    state: Tensor


@part_of("halting")
class Halting(Starting):
    """After which layer a token's state is final, by `p = sigmoid(w x + b)` of the layer's input x.

        halt    where h + p > 1 - epsilon: R = 1 - h, weight R, h = 1
        go on   elsewhere: weight p, h = h + p
        y       = weight s + (1 - weight) y, s the layer's output; "accumulated": weight s + y

    All tokens go through every layer until the last one has halted or the stack ends, so that the
    others can attend to them; a token that has halted keeps y. Its cost is the number of its layers
    plus R; `weight` times the mean over all tokens is added to the loss.
    (Dehghani et al., 2019, sec. 2.2; tensor2tensor, universal_transformer_util.py,
    universal_transformer_act.)
    Differs: padding counts neither in the mean nor for the end of the loop.

    Args:
        width: W.
        variant: "basic" interpolates, as released; "accumulated" sums, as Graves (2016).
        epsilon: The tolerance: a sum of 1 - epsilon is enough.
        weight: The weight of the cost in the loss.
        bias: b at first.
    """

    def __init__(
        self,
        *,
        width: int,
        variant: Variant = "basic",
        epsilon: float = 0.01,
        weight: float = 0.01,
        bias: float = 1.0,
    ) -> None:
        super().__init__()
        if not 0 < epsilon < 1:
            raise ConfigError("model.stack.halting.epsilon", epsilon, "0 < epsilon < 1")
        if weight < 0:
            raise ConfigError("model.stack.halting.weight", weight, "0 or more")
        self.unit = nn.Linear(width, 1)
        self.threshold, self.weight, self.bias = 1 - epsilon, weight, bias
        self.accumulated = variant == "accumulated"

    def start(self, generator: Generator) -> None:
        nn.init.xavier_uniform_(self.unit.weight, generator=generator)
        self.unit.bias.data.fill_(self.bias)

    def begin(self, x: Tensor) -> Pondering:
        """Before the first layer, whose input is `x [B, T, W]`."""
        zero = x.new_zeros(x.shape[:2], dtype=torch.promote_types(x.dtype, torch.float32))
        return Pondering(zero, zero, zero, torch.zeros_like(x, dtype=zero.dtype))

    def step(self, before: Pondering, x: Tensor, after: Tensor) -> Pondering:
        """After a layer, from its input and its output, [B, T, W] each."""
        wide = before.halted.dtype
        with torch.autocast(x.device.type, enabled=False):
            weight, bias = self.unit.weight.to(wide), self.unit.bias.to(wide)
            p = torch.sigmoid(F.linear(x.to(wide), weight, bias)[..., 0])
            running = before.halted < 1
            halts = running & (before.halted + p > self.threshold)
            goes_on = (running & ~halts).to(wide)
            remainder = halts.to(wide) * (1 - before.halted)
            share = p * goes_on + remainder
            kept = 1 if self.accumulated else 1 - share[..., None]
            return Pondering(
                before.halted + share,
                before.remainder + remainder,
                before.steps + running.to(wide),
                share[..., None] * after.to(wide) + kept * before.state,
            )

    def goes_on(self, pondering: Pondering, real: Tensor | None) -> bool:
        """Whether a token has not halted; only those count that are `real [B, T]`, None: all."""
        running = pondering.halted < self.threshold
        return bool((running if real is None else running & real).any())
