"""Windows of tokens: the neighbours of each token in its own document, also token by token. Sums
over windows take time linear in the length.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.attention.patterns.offsets import Offsets
from plmctl.core.errors import ConfigError, UsageError
from plmctl.nn.cache import Slot

BLOCK = 32  # tokens of one product with a band matrix


@dataclass(frozen=True)
class TokenWindow:
    """`kernel` tokens around each one. `causal`: the window ends at the token; otherwise the token
    stands in its middle. Beyond the ends of a document are zeros.
    """

    kernel: int
    causal: bool

    def __post_init__(self) -> None:
        if self.kernel < 1 or (not self.causal and self.kernel % 2 == 0):
            allowed = "1 or more; an odd number if the token is in the middle (causal=false)"
            raise ConfigError("kernel", self.kernel, allowed)

    @property
    def reach(self) -> int:
        """The number of tokens in the window before its own."""
        return self.kernel - 1 if self.causal else self.kernel // 2

    def offsets(self) -> Offsets:
        """The offsets, token read - token, of the window."""
        return Offsets.between(-self.reach, 0 if self.causal else self.reach)

    def surround(
        self, x: Tensor, documents: Tensor | None, slot: Slot | None
    ) -> tuple[Tensor, Tensor | None]:
        """`x` and its documents, extended at both ends by the reach of windows. The added vectors
        are zeros of no document, or with a cache the stored earlier tokens.

        Args:
            x: [B, T, ...]
            documents: [B, T], -1 at padding; None: every row is one document.
            slot: The cache, if tokens come one by one.

        Returns:
            [B, T + kernel - 1, ...] and [B, T + kernel - 1] or None.
        """
        if slot is None:
            return self._pad(x), None if documents is None else self._pad(documents, -1)
        if not self.causal:
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
        return x, documents

    def taps(self, x: Tensor, documents: Tensor | None) -> list[Tensor]:
        """The tokens around each, [B, T, W] for each tap, the earliest first, zeros for those of
        another document; both inputs as `surround` gives them.
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

    def sum(self, x: Tensor, documents: Tensor | None, weights: Tensor) -> Tensor:
        """`y[t, h] = sum_j weights[t, h, j] x[t + j - reach, h]` over the tokens of t's document.

        A block of tokens is one product of a band matrix with the tokens that its windows reach.

        Args:
            x: [B, T + kernel - 1, H, D], as `surround` gives it.
            documents: [B, T + kernel - 1] or None.
            weights: [B | 1, T | 1, H, kernel].

        Returns:
            [B, T, H, D]
        """
        rows, length = x.shape[0], x.shape[1] - self.kernel + 1
        weights = weights.expand(rows, length, -1, -1)
        if documents is not None:
            own = documents[:, self.reach : self.reach + length, None]
            weights = weights * (documents.unfold(1, self.kernel, 1) == own)[:, :, None]
        size = min(length, BLOCK)
        blocks, more = -(-length // size), -length % size
        reached = F.pad(x, (0, 0, 0, 0, 0, more)).transpose(1, 2)
        reached = reached.unfold(2, size + self.kernel - 1, size).transpose(3, 4)
        own_weights = F.pad(weights, (0, 0, 0, 0, 0, more)).transpose(1, 2)
        bands = _band(own_weights.unflatten(2, (blocks, size)))
        return (bands @ reached).flatten(2, 3)[:, :, :length].transpose(1, 2)

    def _pad(self, x: Tensor, value: int = 0) -> Tensor:
        """[B, T + kernel - 1, ...]"""
        before, behind = (
            x.new_full((x.shape[0], n, *x.shape[2:]), value)
            for n in (self.reach, self.kernel - 1 - self.reach)
        )
        return torch.cat([before, x, behind], 1)


def _band(weights: Tensor) -> Tensor:
    """[..., S, S + K - 1] with row s of `weights [..., S, K]` in the columns s .. s + K - 1.

    K + S columns, read as rows of one column less, move each row one further than the one before:

        a b . .       a b .
        c d . .   ->  . c d       (S = K = 2)
    """
    size, kernel = weights.shape[-2:]
    columns = size + kernel - 1
    padded = F.pad(weights, (0, size)).flatten(-2)
    return padded[..., : size * columns].unflatten(-1, (size, columns))
