"""The norms of a sublayer: three slots, filled by one of `PostNorm`, `PreNorm`, `SandwichNorm`.

y = norm_sum(x + dropout(norm_out(cell(norm_in(x)))))

`NoResidual` has neither sum nor norms.

Cells in parallel read one norm_in(x), and their outputs are added before one norm_sum; both norms
are those of the first cell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import DropoutRate
from plmctl.nn.cells.base import NAMES, Cell
from plmctl.nn.dropout import Dropout
from plmctl.nn.env import Env, Streams
from plmctl.nn.norm import norm_tokens

Norm = Callable[..., nn.Module]  # a factory such as partial(layer_norm, width=..., eps=...)


class Block(nn.Module):
    """A cell, its norms and its residual connection; an empty slot is an Identity."""

    sums = True  # whether the input is a part of the output

    def __init__(
        self,
        *,
        cell: Cell,
        norm_in: nn.Module | None = None,
        norm_out: nn.Module | None = None,
        norm_sum: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if beside := sorted(NAMES & vars(cell).keys()):
            fix = f"self.facts = replace(self.facts, {beside[0]}=...)"
            raise TypeError(
                f"{type(cell).__name__} states {', '.join(beside)} besides facts: {fix}"
            )
        self.cell = cell
        self.norm_in, self.norm_out, self.norm_sum = (
            n or nn.Identity() for n in (norm_in, norm_out, norm_sum)
        )
        self.dropout = Dropout(rate=dropout if cell.facts.dropped else 0.0)
        # the columns of the stream, if the cell reads and writes no others
        self.columns: slice | None = None

    def forward(self, streams: Streams, env: Env) -> Streams:
        """The streams after the cell has changed its own stream."""
        name, read = self.cell.facts.writes, self.normalize(streams, self.cell.facts.reads, env)
        read = self.cell.prepare(read, env)
        for other in self.cell.facts.also_writes:
            streams = streams.replace(other, read[other])
        return streams.replace(name, self.end(self.add(streams[name], read, env), env))

    def end(self, x: Tensor, env: Env) -> Tensor:
        """The sum `x` after `norm_sum`."""
        return norm_tokens(self.norm_sum, x, env.real)

    def normalize(self, streams: Streams, reads: frozenset[str], env: Env) -> Streams:
        """The input of cells that read `reads`: the stream that they write after `norm_in`, and
        memory or content, which was that stream, too.
        """
        if isinstance(self.norm_in, nn.Identity):
            return streams
        normed = streams
        others = {"memory", "content"} & reads & streams.tensors.keys()
        for name in (self.cell.facts.writes, *sorted(others)):
            real = None if name == "memory" else env.real
            normed = normed.replace(name, norm_tokens(self.norm_in, streams[name], real))
        return normed

    def add(self, x: Tensor, read: Streams, env: Env) -> Tensor:
        """[B, T, W] `x` plus the cell's output for normed streams, with dropout."""
        if self.columns is None:
            return self.dropout.add(x, norm_tokens(self.norm_out, self.cell(read, env), env.real))
        before, own, behind = x.tensor_split((self.columns.start, self.columns.stop), -1)
        return torch.cat(
            [before, self.dropout.add(own, self.cell(self._own(read), env)), behind], -1
        )

    def change(self, read: Streams, env: Env) -> Tensor:
        """[B, T, W] the cell's output with dropout, which `add` adds."""
        if self.columns is None:
            return self.dropout(norm_tokens(self.norm_out, self.cell(read, env), env.real))
        behind = read[self.cell.facts.writes].shape[-1] - self.columns.stop
        own = self.dropout(self.cell(self._own(read), env))
        return F.pad(own, (self.columns.start, behind))

    def narrow(self, columns: slice) -> None:
        """Read and write only these columns of the stream."""
        if not isinstance(self.norm_out, nn.Identity):
            allowed = "{}: a norm of each cell's output needs all columns of the stream"
            raise ConfigError("model.stack.columns", "...", allowed)
        self.columns = columns

    def _own(self, read: Streams) -> Streams:
        """The streams, reduced to the block's own columns of the stream that it writes, and of the
        content, which was that stream, too.
        """
        for name in {self.cell.facts.writes, "content"} & read.tensors.keys():
            read = read.replace(name, read[name][..., self.columns])
        return read

    def join(self) -> None:
        """Become a block that runs in parallel with another, whose `norm_in` and `norm_sum` serve
        both.
        """
        self.norm_in, self.norm_sum = nn.Identity(), nn.Identity()


class BareBlock(Block):
    """A cell alone: its output replaces its input."""

    sums = False

    def add(self, x: Tensor, read: Streams, env: Env) -> Tensor:
        return self.change(read, env)

    def narrow(self, columns: slice) -> None:
        allowed = "{}: without residual sums a cell writes all columns of the stream"
        raise ConfigError("model.stack.columns", "...", allowed)

    def join(self) -> None:
        allowed = "one cell after the other: without residual sums there is nothing to add up"
        raise ConfigError("model.stack.layout", "a|b", allowed)


@part_of("residual")
@dataclass(frozen=True, kw_only=True)
class PostNorm:
    """`y = norm(x + dropout(cell(x)))`, no norm after the stack (Vaswani et al., 2017,
    arXiv:1706.03762, sec. 3.1).
    """

    norm: Norm
    dropout: DropoutRate

    def block(self, cell: Cell) -> Block:
        """A block around `cell`."""
        return Block(
            cell=cell, norm_sum=_widen(self.norm, cell.facts.stream_width), dropout=self.dropout
        )

    def final(self, *, width: int | None = None) -> nn.Module:
        """No norm after the stack."""
        return nn.Identity()


@part_of("residual")
@dataclass(frozen=True, kw_only=True)
class PreNorm:
    """`y = x + dropout(cell(norm(x)))` and one norm after the stack (Radford et al., 2019, sec.
    2.3).
    """

    norm: Norm
    dropout: DropoutRate
    final_norm: bool = True  # the released Transformer-XL has none
    # false: the first cell has none, for the embedding has one already (Warner et al., 2024,
    # arXiv:2412.13663, sec. 2.1.1)
    first_norm: bool = True

    def block(self, cell: Cell) -> Block:
        """A block around `cell`."""
        return Block(
            cell=cell, norm_in=_widen(self.norm, cell.facts.stream_width), dropout=self.dropout
        )

    def final(self, *, width: int | None = None) -> nn.Module:
        """The norm after the stack, of `width` columns if they are not those of the stream."""
        return _widen(self.norm, width) if self.final_norm else nn.Identity()


@part_of("residual")
@dataclass(frozen=True, kw_only=True)
class SandwichNorm:
    """`y = x + dropout(norm(cell(norm(x))))` and one norm after the stack (Ding et al., 2021,
    arXiv:2105.13290, sec. 2.4).
    """

    norm: Norm
    dropout: DropoutRate

    def block(self, cell: Cell) -> Block:
        """A block around `cell`."""
        norms = [_widen(self.norm, cell.facts.stream_width) for _ in range(2)]
        return Block(cell=cell, norm_in=norms[0], norm_out=norms[1], dropout=self.dropout)

    def final(self, *, width: int | None = None) -> nn.Module:
        """The norm after the stack, of `width` columns if they are not those of the stream."""
        return _widen(self.norm, width)


@part_of("residual")
@dataclass(frozen=True, kw_only=True)
class NoResidual:
    """`y = dropout(cell(x))`: plain layers on top of each other, as in the recurrent networks
    before the Transformer (Sutskever et al., 2014, arXiv:1409.3215).
    """

    dropout: DropoutRate

    def block(self, cell: Cell) -> Block:
        """A block around `cell`."""
        return BareBlock(cell=cell, dropout=self.dropout)

    def final(self, *, width: int | None = None) -> nn.Module:
        """No norm after the stack."""
        return nn.Identity()


def _widen(norm: Norm, width: int | None) -> nn.Module:
    """A norm of `width` columns; None: of as many as `norm` makes."""
    return norm() if width is None else norm(width=width)
