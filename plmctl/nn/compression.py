"""Functions that make few states of many, for memory of a second age (Rae et al., 2019,
arXiv:1911.05507, sec. 3.2).
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from plmctl.core.parts import base_of, part_of
from plmctl.core.values import Count
from plmctl.nn.starting import Starting


@base_of("compression")
class Compression(Starting):
    """[B, T, W] -> [B, T / rate, W], T a multiple of `rate`; no weights but those of subclasses."""

    def __init__(self, *, width: int, rate: Count) -> None:
        super().__init__()
        self.width, self.rate = width, rate

    def start(self, generator: Generator) -> None:
        for part in self.modules():
            if isinstance(part, nn.Conv1d):
                bound = (part.in_channels * part.kernel_size[0]) ** -0.5
                for parameter in part.parameters():
                    nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def forward(self, old: Tensor, usage: Tensor) -> Tensor:
        """The compressed states.

        Args:
            old: [B, T, W]
            usage: [B, T] the attention that they get.
        """
        raise NotImplementedError(type(self).__name__)


@part_of("compression")
class MeanPooling(Compression):
    """The mean of `rate` neighbours."""

    def forward(self, old: Tensor, usage: Tensor) -> Tensor:
        return old.unflatten(1, (-1, self.rate)).mean(2)


@part_of("compression")
class MaxPooling(Compression):
    """The largest number of `rate` neighbours in each column."""

    def forward(self, old: Tensor, usage: Tensor) -> Tensor:
        return old.unflatten(1, (-1, self.rate)).amax(2)


@part_of("compression")
class ConvolvedMemory(Compression):
    """A linear map of `rate` neighbours: a convolution whose kernel is as wide as its stride."""

    def __init__(self, *, width: int, rate: Count) -> None:
        super().__init__(width=width, rate=rate)
        self.conv = nn.Conv1d(width, width, rate, stride=rate)

    def forward(self, old: Tensor, usage: Tensor) -> Tensor:
        made: Tensor = self.conv(old.transpose(1, 2)).transpose(1, 2)
        return made


@part_of("compression")
class DilatedMemory(Compression):
    """A convolution over `kernel` states that stand `dilation` apart, with stride `rate`; each ends
    at the last of its `rate` neighbours, and there are zeros before the first state.
    """

    def __init__(self, *, width: int, rate: Count, kernel: Count = 3, dilation: Count = 2) -> None:
        super().__init__(width=width, rate=rate)
        self.conv = nn.Conv1d(width, width, kernel, stride=rate, dilation=dilation)
        self.reach = (kernel - 1) * dilation

    def forward(self, old: Tensor, usage: Tensor) -> Tensor:
        # output j reads rate j - reach + rate - 1, ..., rate j + rate - 1
        x = F.pad(old.transpose(1, 2), (max(0, self.reach - self.rate + 1), 0))
        made: Tensor = self.conv(x[..., max(0, self.rate - 1 - self.reach) :]).transpose(1, 2)
        return made


@part_of("compression")
class MostUsed(Compression):
    """Those states that got most attention, in their order.

    Differs: of the present row alone, by content.
    """

    def forward(self, old: Tensor, usage: Tensor) -> Tensor:
        kept = usage.topk(old.shape[1] // self.rate, 1).indices.sort(1).values
        return old.gather(1, kept[..., None].expand(-1, -1, old.shape[2]))


class Expansion(Compression):
    """The reverse, for the auto-encoding loss: each state becomes `rate` states by a linear map."""

    def __init__(self, *, width: int, rate: Count) -> None:
        super().__init__(width=width, rate=rate)
        self.conv = nn.Conv1d(width, rate * width, 1)

    def forward(self, old: Tensor, usage: Tensor) -> Tensor:
        made: Tensor = self.conv(old.transpose(1, 2)).transpose(1, 2)
        return made.unflatten(2, (self.rate, -1)).flatten(1, 2)


def attend_to(q: Tensor, k: Tensor, v: Tensor, filled: Tensor) -> tuple[Tensor, Tensor]:
    """(what queries [B, H, T, D] see of the last `filled` [B] keys, the attention [B, K] of each
    key, the mean over heads and queries); a row without keys gives 0.
    """
    number = torch.arange(k.shape[2], device=k.device)
    hidden = (number < k.shape[2] - filled[:, None])[:, None, None]
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    p = scores.masked_fill(hidden, torch.finfo(scores.dtype).min / 2).softmax(-1)
    p = p.masked_fill(hidden, 0)
    return p @ v, p.mean((1, 2))
