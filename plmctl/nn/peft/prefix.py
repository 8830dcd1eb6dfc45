"""Prefixes: keys and values that every token sees are learned in each layer (Li and Liang,
2021).
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Amount, Count
from plmctl.nn.cells.attention import Attention
from plmctl.nn.init import Starting
from plmctl.nn.peft.base import Method, find_cells


class LearnedPrefix(Starting):
    """Keys and values, [H, P, D] each: learned, or what a network makes of learned vectors,
    `W2 tanh(W1 e + b1) + b2` with e [P, W].
    """

    def __init__(
        self, *, num_heads: int, head_width: int, length: int, inner: int | None, std: float
    ) -> None:
        super().__init__()
        self.sizes, self.std, both = (num_heads, head_width), std, 2 * num_heads * head_width
        self.vectors = nn.Parameter(torch.empty(length, both if inner is None else both // 2))
        self.inside = nn.ParameterDict()
        if inner is not None:
            self.inside["first"] = nn.Parameter(torch.empty(inner, both // 2))
            self.inside["first_bias"] = nn.Parameter(torch.empty(inner))
            self.inside["second"] = nn.Parameter(torch.empty(both, inner))
            self.inside["second_bias"] = nn.Parameter(torch.empty(both))

    def start(self, generator: Generator) -> None:
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=self.std, generator=generator)
            else:
                nn.init.zeros_(weight)

    def forward(self) -> tuple[Tensor, Tensor]:
        made: Tensor = self.vectors
        if self.inside:
            inner = torch.tanh(made @ self.inside["first"].T + self.inside["first_bias"])
            made = inner @ self.inside["second"].T + self.inside["second_bias"]
        # [P, 2 H D] -> [2, H, P, D]
        keys, values = made.unflatten(-1, (2, *self.sizes)).permute(1, 2, 0, 3)
        return keys, values


@part_of("peft")
class PrefixTuning(Method):
    """Attention reads [P_k; k] and [P_v; v], with P_k and P_v of its own in each layer (Li and
    Liang, 2021, arXiv:2101.00190, sec. 4.2; P-tuning v2: Liu et al., 2022, arXiv:2110.07602, sec.
    3.2).

    Its keys stand nowhere: positions neither turn them nor change their scores. It makes all scores
    at once, whatever the kernel. Differs: with `inner_width`, each layer has a network of its own
    (published: one for all), which stays in the checkpoint.

    Args:
        length: P, keys and values in each layer.
        inner_width: of the network that makes them in training (published for text that is
            written: 512, 800); None: they are learned themselves.
        std: of the first weights, normal.
    """

    mark = "prefix"

    def __init__(
        self, *, length: Count, inner_width: Count | None = None, std: Amount = 0.02
    ) -> None:
        self.length, self.inner_width, self.std = length, inner_width, std

    def add_to(self, model: nn.Module) -> None:
        found = (cell for cell in find_cells(model) if isinstance(cell, Attention))
        cells = [cell for cell in found if cell.takes_prefix]
        if not cells:
            allowed = "for attention that reads all tokens by one softmax, which no cell here is"
            raise ConfigError("length", self.length, allowed, fix="peft=[lora]")
        for cell in cells:
            cell.prefix = LearnedPrefix(
                num_heads=cell.num_heads,
                head_width=cell.head_width,
                length=self.length,
                inner=self.inner_width,
                std=self.std,
            )

    def check_folding(self) -> None:
        allowed = "not to be put into the weights: keys of no token stand in none"
        raise ConfigError("peft", self.mark, allowed)
