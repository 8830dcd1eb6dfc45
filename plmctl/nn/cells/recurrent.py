"""Recurrent cells that replace attention: LSTM (Hochreiter and Schmidhuber, 1997) and GRU (Cho et
al., 2014).
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from plmctl.core.errors import UsageError
from plmctl.core.parts import part_of
from plmctl.nn.cells.base import Cell, CellFacts
from plmctl.nn.env import Env, Streams
from plmctl.nn.recurrence import Recurrence


class RecurrentCell(Cell):
    """`out([h_1 .. h_T])`, h_t = step(x_t, h_t-1) from the first token of a document on; not
    `causal`: and from its last.

    [B, T, W] -> [B, T, W] through `hidden_width` units in each direction, torch's own; the state
    starts again with every document of a packed row and skips padding. One cell is one layer; the
    layout repeats it.
    """

    projected_by = "out"
    facts = CellFacts(computes="recurrence")
    kind: type[nn.LSTM | nn.GRU]

    def __init__(self, *, width: int, hidden_width: int, causal: bool) -> None:
        super().__init__()
        self.facts = replace(self.facts, ahead=not causal)
        self.read = Recurrence(
            net=self.kind(width, hidden_width, batch_first=True, bidirectional=not causal)
        )
        self.out = nn.Linear((1 if causal else 2) * hidden_width, width)

    def forward(self, streams: Streams, env: Env) -> Tensor:
        slot = env.slot
        if slot is not None and self.facts.ahead:
            raise UsageError(f"{type(self).__name__} in both directions cannot read token by token")
        states, kept = self.read(
            streams["text"], env.documents, None if slot is None else slot.kept
        )
        if slot is not None:
            slot.kept = kept
        return self.out(states)


@part_of("cells")
class LSTM(RecurrentCell):
    """The long short-term memory with forget gates (Gers et al., 2000); GPT's ablation has one of
    2048 units.

    (Radford et al., 2018, sec. 5, table 5.)
    """

    kind = nn.LSTM


@part_of("cells")
class GRU(RecurrentCell):
    """The gated recurrent unit (Cho et al., 2014, arXiv:1406.1078), in torch's form, whose reset
    gate acts on U h + b.
    """

    kind = nn.GRU
