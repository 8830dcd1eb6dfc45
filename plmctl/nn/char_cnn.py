"""Words from their characters: convolutions, highways and a projection (Kim et al., 2016;
Jozefowicz et al., 2016; ELMo).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.nn.starting import Starting


@part_of("words")
class CharCNN(Starting):
    """`y = W highway^n(relu(max_t conv_w(c)_t)) + b`, character ids [N, C] -> [N, width].

    c are the vectors of the characters; the convolutions of all widths w (`filters`: pairs of width
    and number) run over all C positions, padding included, and their maxima are concatenated;
    `highway(x) = g relu(x W_t + b_t) + (1 - g) x`, `g = sigmoid(x W_c + b_c)`. (Peters et al.,
    2018, arXiv:1802.05365, sec. 3.4; allenai/bilm-tf model.py, training.py.)
    First weights as there: characters U(-1, 1), filters U(-0.05, 0.05), matrices N(0, 1 / number of
    filters), b_c = -2.
    """

    def __init__(
        self,
        *,
        width: int,
        filters: Sequence[Sequence[int]],
        char_width: int = 16,
        num_highways: int = 2,
        num_characters: int = 262,
    ) -> None:
        super().__init__()
        if not filters or any(len(pair) != 2 or min(pair) < 1 for pair in filters):
            allowed = "pairs of width and number: [[1,32],[2,32],[3,64]]"
            raise ConfigError("filters", [list(pair) for pair in filters], allowed)
        total = sum(number for _, number in filters)
        self.longest = max(size for size, _ in filters)
        self.characters = nn.Embedding(num_characters, char_width)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(char_width, number, size) for size, number in filters
        )
        self.carry = nn.ModuleList(nn.Linear(total, total) for _ in range(num_highways))
        self.transform = nn.ModuleList(nn.Linear(total, total) for _ in range(num_highways))
        self.projection = nn.Linear(total, width)

    def start(self, generator: Generator) -> None:
        nn.init.uniform_(self.characters.weight, -1, 1, generator=generator)
        for convolution in self.convolutions:
            weight = cast(Tensor, convolution.weight)
            nn.init.uniform_(weight, -0.05, 0.05, generator=generator)
            nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
        for linear in (*self.carry, *self.transform, self.projection):
            nn.init.normal_(
                linear.weight, std=self.projection.in_features**-0.5, generator=generator
            )  # type: ignore[arg-type]
            nn.init.zeros_(linear.bias)  # type: ignore[arg-type]
        for linear in self.carry:
            nn.init.constant_(linear.bias, -2.0)  # type: ignore[arg-type]

    def forward(self, ids: Tensor) -> Tensor:
        characters = self.characters(self._trim(ids).int()).transpose(1, 2)  # [N, E, C]
        x = torch.cat(
            [convolution(characters).amax(-1) for convolution in self.convolutions], -1
        ).relu()
        for carry, transform in zip(self.carry, self.transform, strict=True):
            gate = carry(x).sigmoid()
            x = gate * F.relu(transform(x)) + (1 - gate) * x
        return self.projection(x)

    def _trim(self, ids: Tensor) -> Tensor:
        """Remove columns that change no maximum: after the longest word all windows are equal, and
        one of each width is enough.

        Only on the CPU: on a GPU, reading their number would wait for the device.
        """
        if ids.device.type != "cpu" or torch.compiler.is_compiling():
            return ids
        differs = (ids != ids[:, -1:]).any(0).nonzero()
        return ids[
            :, : min(ids.shape[1], (int(differs[-1]) + 1 if len(differs) else 0) + self.longest)
        ]
