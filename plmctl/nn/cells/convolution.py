"""A convolutional cell in place of attention (Gehring et al., 2017, arXiv:1705.03122, sec. 3.1
and 3.2).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.parts import part_of
from plmctl.nn.cache import Slot
from plmctl.nn.cells.base import Cell
from plmctl.nn.env import Env, Streams


@part_of("cells")
class Convolution(Cell):
    """`out(a * sigmoid(b))`, [a_t; b_t] = b + sum_j W_j x_(t + j - reach), j = 0 .. kernel - 1: a
    gated window of tokens.

    [B, T, W] -> [B, T, W] through `hidden_width` channels. `causal`: the window ends at t, reach =
    kernel - 1; otherwise t stands in its middle. Beyond the ends of a document are zeros. The
    columns of `taps.weight [2 hidden_width, kernel W]` are those of W_0, then W_1, ...
    Differs: the map `out`, the width of the window's channels, and norms and residual sums of the
    stack for the paper's weight normalisation and its factor sqrt(1/2).
    """

    computes = "convolution"

    def __init__(self, *, width: int, hidden_width: int, kernel: int, causal: bool) -> None:
        super().__init__()
        if kernel < 1 or (not causal and kernel % 2 == 0):
            raise ConfigError(
                "kernel",
                kernel,
                "1 or more; an odd number if the token is in the middle (causal=false)",
            )
        self.kernel, self.ahead = kernel, not causal
        self.reach = kernel - 1 if causal else kernel // 2
        self.taps = nn.Linear(kernel * width, 2 * hidden_width)
        self.out = nn.Linear(hidden_width, width)

    @property
    def projection(self) -> nn.Linear:  # type: ignore[override]
        return self.out

    def forward(self, streams: Streams, env: Env) -> Tensor:
        x, documents = streams["text"], env.documents
        if env.slot is not None:
            return self._continue(x, documents, env.slot)
        return self._gate(
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
        return self._gate(self._window(x, documents))

    def _window(self, x: Tensor, documents: Tensor | None) -> Tensor:
        """[B, T, kernel W] the tokens around each, zeros for those of another document; both inputs
        are padded.
        """
        length = x.shape[1] - self.kernel + 1
        parts = [x[:, tap : tap + length] for tap in range(self.kernel)]
        if documents is not None:
            own = documents[:, self.reach : self.reach + length]
            parts = [
                part * (documents[:, tap : tap + length] == own)[..., None]
                for tap, part in enumerate(parts)
            ]
        return torch.cat(parts, -1)

    def _gate(self, window: Tensor) -> Tensor:
        a, b = self.taps(window).chunk(2, -1)
        return self.out(a * torch.sigmoid(b))
