"""Convolutional cells: gated, in place of attention (Gehring et al., 2017, arXiv:1705.03122, sec.
3.1 and 3.2), and depthwise, beside it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.parts import part_of
from plmctl.nn.cache import Slot
from plmctl.nn.cells.base import Cell
from plmctl.nn.env import Env, Streams


class _Window(Cell):
    """What reads a window of `kernel` tokens around each one, and nothing else of the row.

    `causal`: the window ends at the token; otherwise the token stands in its middle. Beyond the
    ends of a document are zeros.
    """

    computes = "convolution"

    def __init__(self, *, kernel: int, causal: bool) -> None:
        super().__init__()
        if kernel < 1 or (not causal and kernel % 2 == 0):
            raise ConfigError(
                "kernel",
                kernel,
                "1 or more; an odd number if the token is in the middle (causal=false)",
            )
        self.kernel, self.ahead = kernel, not causal
        self.reach = kernel - 1 if causal else kernel // 2

    def mix(self, window: list[Tensor]) -> Tensor:
        """[B, T, W] from the `kernel` tokens around each, [B, T, W] each, the earliest first."""
        raise NotImplementedError(type(self).__name__)

    def forward(self, streams: Streams, env: Env) -> Tensor:
        x, documents = streams["text"], env.documents
        if env.slot is not None:
            return self._continue(x, documents, env.slot)
        return self.mix(
            self._window(self._pad(x), None if documents is None else self._pad(documents, -1))
        )

    def _pad(self, x: Tensor, value: int = 0) -> Tensor:
        """[B, T + kernel - 1, ...]"""
        before, behind = (
            x.new_full((len(x), n, *x.shape[2:]), value)
            for n in (self.reach, self.kernel - 1 - self.reach)
        )
        return torch.cat([before, x, behind], 1)

    def _continue(self, x: Tensor, documents: Tensor | None, slot: Slot) -> Tensor:
        """Convolve new tokens together with the last kernel - 1 earlier ones."""
        if self.ahead:
            raise UsageError("a convolution that looks ahead cannot read token by token")
        if documents is None:
            documents = torch.zeros(x.shape[:2], dtype=torch.long, device=x.device)
        if slot.kept is None:
            x, documents = self._pad(x), self._pad(documents, -1)
        else:
            x, documents = (
                torch.cat([old.to(new.dtype), new], 1)
                for old, new in zip(slot.kept, (x, documents), strict=True)
            )
        slot.kept = (x[:, x.shape[1] - self.reach :], documents[:, x.shape[1] - self.reach :])
        return self.mix(self._window(x, documents))

    def _window(self, x: Tensor, documents: Tensor | None) -> list[Tensor]:
        """The tokens around each, [B, T, W] for each tap, zeros for those of another document; both
        inputs are padded.
        """
        length = x.shape[1] - self.kernel + 1
        parts = [x[:, tap : tap + length] for tap in range(self.kernel)]
        if documents is not None:
            own = documents[:, self.reach : self.reach + length]
            parts = [
                part * (documents[:, tap : tap + length] == own)[..., None]
                for tap, part in enumerate(parts)
            ]
        return parts


@part_of("cells")
class Convolution(_Window):
    """`out(a * sigmoid(b))`, [a_t; b_t] = b + sum_j W_j x_(t + j - reach), j = 0 .. kernel - 1: a
    gated window of tokens.

    [B, T, W] -> [B, T, W] through `hidden_width` channels. `causal`: the window ends at t, reach =
    kernel - 1; otherwise t stands in its middle. The columns of `taps.weight [2 hidden_width,
    kernel W]` are those of W_0, then W_1, ...
    Differs: the map `out`, the width of the window's channels, and norms and residual sums of the
    stack for the paper's weight normalisation and its factor sqrt(1/2).
    """

    def __init__(self, *, width: int, hidden_width: int, kernel: int, causal: bool) -> None:
        super().__init__(kernel=kernel, causal=causal)
        self.taps = nn.Linear(kernel * width, 2 * hidden_width)
        self.out = nn.Linear(hidden_width, width)

    @property
    def projection(self) -> nn.Linear:  # type: ignore[override]
        return self.out

    def mix(self, window: list[Tensor]) -> Tensor:
        a, b = self.taps(torch.cat(window, -1)).chunk(2, -1)
        return self.out(a * torch.sigmoid(b))


@part_of("cells")
class DepthwiseConvolution(_Window):
    """`y_t = sum_j (w_j + a_j) * x_(t + j - reach)`, j = 0 .. kernel - 1, each column of the stream
    for itself: tokens see their neighbours before any attention has learned to look there.

    [B, T, W] -> [B, T, W]. `causal`: the window ends at t, reach = kernel - 1; otherwise t stands
    in its middle. `taps.weight [W, kernel]` holds the w_j as columns. a_j is `adjacent` for the
    tokens next to t and 0 for others: with more than 0, neighbours count before anything is
    learned.
    Source: So et al., 2021, arXiv:2109.08668, sec. 4 (there behind the maps of q, k and v);
    Allen-Zhu, 2025, Physics of Language Models 4.1, "Canon-A" (before the cell, as here).
    Differs: the residual sum and the norm are those of the stack.
    """

    def __init__(self, *, width: int, kernel: int, causal: bool, adjacent: float = 0.0) -> None:
        super().__init__(kernel=kernel, causal=causal)
        self.taps = nn.Linear(kernel, width, bias=False)
        self.first = [adjacent if abs(j - self.reach) == 1 else 0.0 for j in range(kernel)]  # a_j

    @property
    def projection(self) -> nn.Linear:  # type: ignore[override]
        return self.taps

    def mix(self, window: list[Tensor]) -> Tensor:
        columns = zip(self.taps.weight.to(window[0].dtype).unbind(1), self.first, strict=True)
        taps = [tap + first if first else tap for tap, first in columns]
        y = window[0] * taps[0]
        for part, tap in zip(window[1:], taps[1:], strict=True):
            y = torch.addcmul(y, part, tap)
        return y
