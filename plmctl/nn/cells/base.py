"""What every cell is: the computing part of a sublayer, without its norm and residual
connection.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from plmctl.core.errors import ConfigError
from plmctl.core.parts import base_of
from plmctl.nn.env import Env, Streams


@dataclass(frozen=True)
class RowSize:
    """One row, as far as the cost of a cell depends on it."""

    tokens: int  # that run through the cell
    # that a token is compared with, on average: fewer where a kernel leaves some out; None: all
    keys: float | None = None
    source: int = 0  # that cross-attention reads
    memory: int = 0  # states of the segments before, which relative attention reads
    asked: float = 0.0  # rows of a query stream beside each token


@dataclass(frozen=True)
class Work:
    """What a cell does with one row, forward."""

    macs: float  # multiply-adds with its weights
    # multiply-adds of tokens with each other, of which a causal pattern needs only half
    scores: float = 0.0
    kept: float = 0.0  # numbers that the backward pass needs


@base_of("cells")
class Cell(nn.Module):
    """`forward(streams, env) -> [B, T, W]`, what is added to the stream that it `writes`.

    `projection` is the last linear map, the one that writes.
    """

    projection: nn.Linear
    reads: frozenset[str] = frozenset({"text"})  # streams, of those that are there
    writes: str = "text"  # the stream that its result is added to
    # what its multiply-adds are listed as: attention, feed-forward, ...; "": the name of its class
    computes: str = ""
    records: bool = False  # fills `env.recorder`, once each time it runs
    # reads what comes behind a token or only what is before; None: no more than the pattern allows
    ahead: bool | None = None

    def forward(self, streams: Streams, env: Env) -> Tensor:
        raise NotImplementedError(type(self).__name__)

    def work(self, row: RowSize) -> Work:
        """The cost of a row where every matrix meets every token once, and what linear and
        recurrent maps give is kept.
        """
        macs, kept = 0, 0
        for part in self.modules():
            own: list[Tensor] = list(part.parameters(recurse=False))
            # of a copy that is not trained
            if not own and isinstance(part, nn.Linear | nn.RNNBase):
                own = list(part.buffers(recurse=False))
            macs += sum(p.numel() for p in own if p.dim() > 1)
            if isinstance(part, nn.Linear):
                kept += part.out_features
            if isinstance(part, nn.RNNBase):  # the gates, and the states
                kept += sum(p.numel() + part.hidden_size for p in own if p.dim() == 1) // 2
        rows = (1 + row.asked) * row.tokens
        return Work(rows * macs, kept=rows * kept)


def check_heads(num_heads: int, width: int) -> None:
    """ConfigError where the columns of the stream cannot be shared out among the heads."""
    if width % num_heads:
        fits = [number for number in range(1, width + 1) if width % number == 0]
        nearest = min(fits, key=lambda number: (abs(number - num_heads), -number))
        wider = -(-width // num_heads) * num_heads
        shown = ", ".join(map(str, [*fits[:8], *(["..."] if len(fits) > 8 else [])]))
        fix = f"size.num_heads={nearest}, or size.width={wider}"
        raise ConfigError(
            "size.num_heads", num_heads, f"must divide size.width={width}: {shown}", fix=fix
        )
