"""The rows of XLNet's query stream: one for each predicted token (Yang et al., 2019)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from plmctl.core.batch import IGNORE, Targets


class QueryRows(NamedTuple):
    """The positions of the query stream: equally many in each row, with spare ones."""

    positions: Tensor  # [B, P'] in the row
    real: Tensor  # [B, P'] bool
    # [P] the index of each target among the flattened (row, P'); any index for spare targets
    slot: Tensor


def make_query_rows(targets: Targets, rows: int, length: int) -> QueryRows:
    """The targets of each row of `length` tokens as a rectangle with spare columns."""
    real, size = targets.ids != IGNORE, rows * length
    marked = targets.index.new_zeros(size + 1)  # one more, for spare slots
    marked[targets.index.masked_fill(~real, size)] = 1
    # [B, T] how many targets of the row are at or before each position
    number = marked[:-1].view(rows, length).cumsum(1)
    count = number[:, -1:]
    if count.device.type == "cpu":
        most = max(1, int(count.max()))
    else:  # as many slots as a row's noise has: reading the count would wait for the device
        most = -(-len(real) // rows)
        torch._assert_async(
            (count <= most).all(), "more predicted tokens in a row than its share of the slots"
        )
    row, column = targets.index // length, targets.index % length
    slot = row * most + number[row, column] - 1
    positions = targets.index.new_zeros(rows * most + 1).scatter(
        0, slot.masked_fill(~real, rows * most), column
    )
    filled = torch.arange(most, device=count.device) < count
    return QueryRows(positions[:-1].view(rows, most), filled, slot.clamp(min=0))
