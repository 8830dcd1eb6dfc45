"""Reading rows of several documents and padding with torch's recurrent networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from plmctl.nn.init import Starting

# states [B, layers, H] after the last token of each row, and [B] the number of its document
Kept = tuple[Tensor, ...]


@dataclass(frozen=True)
class Runs:
    """The R documents of a batch as sequences of their own: N real tokens, in the order that torch
    packs them in.

    Longest run first, and of all runs the first tokens, then the second ones, ...
    """

    rows: Tensor  # [N]
    places: Tensor  # [N]
    sizes: Tensor  # how many runs have a first token, a second one, ...; on the CPU
    row: Tensor  # [R] of each run
    document: Tensor  # [R]
    first: Tensor  # [R] whether it is the first of its row
    last: Tensor  # [R] whether it is the last of its row

    @classmethod
    def of(cls, documents: Tensor) -> Runs:
        """Of `documents [B, T]`, -1 at padding, of which there must be at least one token that
        is not.
        """
        rows, places = (documents >= 0).nonzero(as_tuple=True)
        number = documents[rows, places]
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
        first, last = (
            torch.cat([true, change])[longest_first],
            torch.cat([change, true])[longest_first],
        )
        return cls(
            rows[order],
            places[order],
            step.bincount().cpu(),
            row[longest_first],
            number[starts][longest_first],
            first,
            last,
        )


class Recurrence(Starting):
    """`net` over each document by itself, x [B, T, W] -> [B, T, directions H]; padding is not read
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
        """`kept`: what the call before returned, where this one reads on; `documents [B, T]`:
        None if all are one, number 0.
        """
        with torch.autocast(x.device.type, enabled=False):
            x = x.to(next(self.net.parameters()).dtype)
            kept = self._fresh(x) if kept is None else kept
            return self._whole(x, kept) if documents is None else self._apart(x, documents, kept)

    def _whole(self, x: Tensor, kept: Kept) -> tuple[Tensor, Kept]:
        *states, document = kept
        goes_on = (document == 0)[:, None, None]
        y, after = self.net(x, self._given([state * goes_on for state in states]))
        return y, (*self._made(after), torch.zeros_like(document))

    def _apart(self, x: Tensor, documents: Tensor, kept: Kept) -> tuple[Tensor, Kept]:
        *states, document = kept
        y = x.new_zeros(*x.shape[:2], (2 if self.net.bidirectional else 1) * self.net.hidden_size)
        if not (documents >= 0).any():
            return y, kept
        runs = Runs.of(documents)
        goes_on = (runs.first & (document[runs.row] == runs.document))[:, None, None]
        given = self._given([state[runs.row] * goes_on for state in states])
        packed, after = self.net(PackedSequence(x[runs.rows, runs.places], runs.sizes), given)
        y = y.index_put((runs.rows, runs.places), packed.data)
        row = (runs.row[runs.last],)
        states = [
            old.index_put(row, new[runs.last])
            for old, new in zip(states, self._made(after), strict=True)
        ]
        return y, (*states, document.index_put(row, runs.document[runs.last]))

    def _fresh(self, x: Tensor) -> Kept:
        """What is kept before the first token."""
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

    def _given(self, states: Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
        """[B, layers, H] as torch takes them."""
        turned = tuple(state.transpose(0, 1).contiguous() for state in states)
        return turned if len(turned) > 1 else turned[0]

    def _made(self, after: Tensor | tuple[Tensor, ...]) -> list[Tensor]:
        return [
            state.transpose(0, 1) for state in (after if isinstance(after, tuple) else (after,))
        ]
