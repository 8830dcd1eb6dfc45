"""Torch's recurrent networks on rows with several documents and padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from plmctl.nn.starting import Starting

# states [B, layers, H] after the last token of each row, and [B] the number of its document
Kept = tuple[Tensor, ...]


@dataclass(frozen=True)
class Runs:
    """The R documents of a batch as separate sequences: N real tokens, in torch's packed order.

    The longest run is first; the order is the first tokens of all runs, then the second ones, ...
    """

    rows: Tensor  # [N]
    columns: Tensor  # [N]
    sizes: Tensor  # how many runs have a first token, a second one, ...; on the CPU
    row: Tensor  # [R] row of each run
    document: Tensor  # [R] document of each run
    first: Tensor  # [R] whether it is the first of its row
    last: Tensor  # [R] whether it is the last of its row

    @classmethod
    def of(cls, documents: Tensor) -> Runs:
        """The runs of `documents [B, T]`, -1 at padding; at least one token must be real."""
        rows, columns = (documents >= 0).nonzero(as_tuple=True)
        number = documents[rows, columns]
        other_row = rows[1:] != rows[:-1]
        true = torch.ones(1, dtype=torch.bool, device=rows.device)
        begins = torch.cat([true, other_row | (number[1:] != number[:-1])])
        starts, run = begins.nonzero()[:, 0], begins.cumsum(0) - 1
        longest_first = run.bincount().argsort(descending=True, stable=True)
        rank = torch.empty_like(longest_first).scatter_(
            0, longest_first, torch.arange(len(starts), device=rows.device)
        )
        step = torch.arange(len(rows), device=rows.device) - starts[run]
        order = (step * len(starts) + rank[run]).argsort()
        row = rows[starts]
        change = row[1:] != row[:-1]
        first = torch.cat([true, change])[longest_first]
        last = torch.cat([change, true])[longest_first]
        return cls(
            rows[order],
            columns[order],
            step.bincount().cpu(),
            row[longest_first],
            number[starts][longest_first],
            first,
            last,
        )


class Recurrence(Starting):
    """`net` over each document separately, x [B, T, W] -> [B, T, directions H]; padding is not read
    and gets zeros.

    Computed in the type of the weights, without autocast. First weights: U(-k, k), k = H^-1/2,
    torch's own.
    """

    def __init__(self, *, net: nn.LSTM | nn.GRU) -> None:
        super().__init__()
        self.net = net

    def start(self, generator: Generator) -> None:
        bound = self.net.hidden_size**-0.5
        for parameter in self.net.parameters():
            nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def forward(
        self, x: Tensor, documents: Tensor | None, kept: Kept | None
    ) -> tuple[Tensor, Kept]:
        """Read the rows.

        Args:
            documents: [B, T] numbers of documents; None if all are one, number 0.
            kept: The result of the call before, if this one continues it.
        """
        with torch.autocast(x.device.type, enabled=False):
            x = x.to(next(self.net.parameters()).dtype)
            kept = self._fresh(x) if kept is None else kept
            return (
                self._read_rows(x, kept)
                if documents is None
                else self._read_documents(x, documents, kept)
            )

    def _read_rows(self, x: Tensor, kept: Kept) -> tuple[Tensor, Kept]:
        *states, document = kept
        continues = (document == 0)[:, None, None]
        y, after = self.net(x, self._to_torch([state * continues for state in states]))
        return y, (*self._from_torch(after), torch.zeros_like(document))

    def _read_documents(self, x: Tensor, documents: Tensor, kept: Kept) -> tuple[Tensor, Kept]:
        *states, document = kept
        y = x.new_zeros(*x.shape[:2], (2 if self.net.bidirectional else 1) * self.net.hidden_size)
        if not (documents >= 0).any():
            return y, kept
        runs = Runs.of(documents)
        continues = (runs.first & (document[runs.row] == runs.document))[:, None, None]
        start = self._to_torch([state[runs.row] * continues for state in states])
        packed, after = self.net(PackedSequence(x[runs.rows, runs.columns], runs.sizes), start)
        y = y.index_put((runs.rows, runs.columns), packed.data)
        row = (runs.row[runs.last],)
        states = [
            old.index_put(row, new[runs.last])
            for old, new in zip(states, self._from_torch(after), strict=True)
        ]
        return y, (*states, document.index_put(row, runs.document[runs.last]))

    def _fresh(self, x: Tensor) -> Kept:
        """The kept states before the first token."""
        shape = (
            len(x),
            self.net.num_layers * (2 if self.net.bidirectional else 1),
            self.net.hidden_size,
        )
        number = torch.full((len(x),), -1, device=x.device)
        return (
            *(x.new_zeros(shape) for _ in range(2 if isinstance(self.net, nn.LSTM) else 1)),
            number,
        )

    def _to_torch(self, states: Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
        """States [B, layers, H] in torch's order."""
        turned = tuple(state.transpose(0, 1).contiguous() for state in states)
        return turned if len(turned) > 1 else turned[0]

    def _from_torch(self, after: Tensor | tuple[Tensor, ...]) -> list[Tensor]:
        return [
            state.transpose(0, 1) for state in (after if isinstance(after, tuple) else (after,))
        ]
