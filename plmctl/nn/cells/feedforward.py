"""The position-wise feed-forward cell (Vaswani et al., 2017, arXiv:1706.03762, sec. 3.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.core.errors import ConfigError, nearest
from plmctl.core.parts import part_of
from plmctl.core.values import Count, DropoutRate
from plmctl.nn.cells.base import Cell, CellFacts, RowSize, Work
from plmctl.nn.divided import CutColumns, CutRows, Plan
from plmctl.nn.dropout import Dropout
from plmctl.nn.env import Env, Streams
from plmctl.nn.slices import run_in_slices

Activation = Callable[[Tensor], Tensor]


def square_relu(x: Tensor) -> Tensor:
    """`max(x, 0)^2` (So et al., 2021, arXiv:2109.08668, sec. 4)."""
    return F.relu(x).square()


ACTIVATIONS: dict[str, Activation] = {
    "gelu": F.gelu,  # erf form (Hendrycks and Gimpel, 2016, arXiv:1606.08415)
    "gelu_tanh": partial(F.gelu, approximate="tanh"),  # the form in the released BERT and GPT code
    "relu": F.relu,
    "leaky_relu": F.leaky_relu,  # a slope of 0.01
    "square_relu": square_relu,
    "silu": F.silu,
    "sigmoid": F.sigmoid,
    "tanh": F.tanh,
}


def find_activation(name: str) -> Activation:
    """The torch function called `name`; a ConfigError names the nearest one."""
    if name not in ACTIVATIONS:
        raise ConfigError(
            "activation", name, f"one of {', '.join(ACTIVATIONS)}{nearest(name, ACTIVATIONS)}"
        )
    return ACTIVATIONS[name]


class PositionWise(Cell):
    """A cell that computes each token for itself and ends with the map `down`.

    With `chunk`, it computes so many tokens of each row at a time, and stores nothing between for
    the backward pass (nn/slices.py). The result is the same, but for other draws of dropout.
    """

    projected_by = "down"
    facts = CellFacts(computes="feed-forward")
    inputs: tuple[str, ...] = ("up",)  # the maps whose results `combine` reads
    down: nn.Linear
    dropout: Dropout  # on inner columns

    def __init__(self, *, chunk: int | None) -> None:
        super().__init__()
        self.chunk = chunk
        self.facts = replace(self.facts, recomputes=chunk is not None)

    def work(self, row: RowSize) -> Work:
        own, rows = super().work(row), (1 + row.queries) * row.tokens
        if self.chunk is None or rows <= self.chunk:
            return own
        outputs = rows * self.down.out_features
        return Work(own.macs, kept=outputs + (own.kept - outputs) * self.chunk / rows)

    def plan_division(self) -> Plan:
        """How its maps are divided, by inner columns."""
        column = CutRows(self.down.in_features, "size.inner_width")
        return {**dict.fromkeys(self.inputs, column), "down": CutColumns()}

    def combine(self, *projected: Tensor) -> Tensor:
        """[B, t, inner] from the results of the maps `inputs`, [B, t, inner] each."""
        raise NotImplementedError(type(self).__name__)

    def compute(self, x: Tensor) -> Tensor:
        """[B, t, W] -> [B, t, W] for any t tokens of each row."""
        projected = [getattr(self, name)(x) for name in self.inputs]
        with self.team.draws(self.dropout.rate if self.training else 0.0):
            inner = self.combine(*projected)
        return self.down(inner)

    def forward(self, streams: Streams, env: Env) -> Tensor:
        x = streams["text"]
        return self.compute(x) if self.chunk is None else run_in_slices(self.compute, x, self.chunk)


@part_of("cells")
class FeedForward(PositionWise):
    """`down(activation(up(x)))`, [B, T, W] -> [B, T, W] through `inner_width`; `dropout` acts on
    the activations (BERT: 0). `chunk` as in `PositionWise`. `norm`: a norm of the activations after
    dropout, of `inner_width` columns, which the released decoder of the Evolved Transformer has (So
    et al., 2019, arXiv:1901.11117, tensor2tensor).
    """

    def __init__(
        self,
        *,
        width: int,
        inner_width: int,
        activation: str,
        dropout: DropoutRate = 0.0,
        bias: bool = True,
        chunk: Count | None = None,
        norm: Callable[..., nn.Module] | None = None,
    ) -> None:
        super().__init__(chunk=chunk)
        self.activation = find_activation(activation)
        self.up = nn.Linear(width, inner_width, bias=bias)
        self.norm = norm(width=inner_width) if norm else nn.Identity()
        self.down = nn.Linear(inner_width, width, bias=bias)
        self.dropout = Dropout(rate=dropout)

    def plan_division(self) -> Plan:
        # a norm needs all inner columns
        return super().plan_division() if isinstance(self.norm, nn.Identity) else {}

    def combine(self, *projected: Tensor) -> Tensor:
        return self.norm(self.dropout(self.activation(projected[0])))
