"""Tokens with their neighbours as the input of a model: narrow vectors, three of them for each
token.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.core.parts import part_of
from plmctl.core.values import Count
from plmctl.nn.tables import Lookup, TokenTable


@part_of("table")
class TrigramTable(TokenTable, Lookup):
    """`x_t = P [e_(t+1); e_t; e_(t-1)] + b`, ids [..., T] -> [..., T, W]: a convolution over three
    narrow vectors e of `table_width` columns, zeros beyond the row (MobileBERT: Sun et al., 2020,
    arXiv:2004.02984, sec. 3.1, and released code).

    Padding and other documents count as neighbours, as in the released code. Tied heads read e.
    """

    def __init__(self, *, vocab_size: int, width: int, table_width: Count) -> None:
        super().__init__(vocab_size=vocab_size, width=table_width)
        self.project = nn.Linear(3 * table_width, width)

    def forward(self, ids: Tensor) -> Tensor:
        x = super().forward(ids)
        after, before = F.pad(x[..., 1:, :], (0, 0, 0, 1)), F.pad(x[..., :-1, :], (0, 0, 1, 0))
        near: Tensor = self.project(torch.cat([after, x, before], -1))
        return near
