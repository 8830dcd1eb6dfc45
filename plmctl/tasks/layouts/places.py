"""An answer with several positions in a row, any of which is right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import IGNORE
from plmctl.core.fields import Field

SPAN = Field(
    "[N, 2] | [N, M, 2]",
    "int",
    "first and last token of the answer in the row, for each of its M occurrences",
)
Places = Sequence[tuple[int, int]]


def find_tokens(offsets: Places, places: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """First and last token of each occurrence, in order.

    Args:
        offsets: the characters [start, end) of each token, in order.
        places: The characters [start, end) of each occurrence.
    """
    begins, ends = np.array(offsets, dtype=np.int64).reshape(-1, 2).T
    found = set()
    for begin, end in places:
        first = int(np.searchsorted(ends, begin, side="right"))
        last = int(np.searchsorted(begins, end, side="left")) - 1
        found |= {(first, last)} if first <= last else set()
    return sorted(found)


def lay_out(places: Places, most: int) -> np.ndarray:
    """[M, 2] the first `most` positions, spare ones IGNORE."""
    label = np.full((most, 2), IGNORE, dtype=np.int64)
    for number, place in enumerate(places[:most]):
        label[number] = place
    return label


def score(logits: Mapping[str, Tensor], gold: Tensor) -> tuple[Tensor, Tensor]:
    """The summed loss of rows, and how many of them have their best start and end among the gold
    ones.

    `-(log sum_{s in S} p_start(s) + log sum_{e in E} p_end(e)) / 2`, S and E the first and the last
    tokens of all positions (Clark and Gardner, 2018, arXiv:1710.10723, sec. 2.2). A row without the
    answer counts nothing.

    Args:
        logits: "start" and "end" [B, T].
        gold: [B, M, 2] positions, spare ones IGNORE.
    """
    total, right = [], []
    for side, name in enumerate(("start", "end")):
        marked = _mark(gold[..., side], logits[name].shape[1])
        total.append(_any_of(logits[name], marked))
        right.append(marked.gather(1, logits[name].argmax(-1, keepdim=True))[:, 0])
    return (total[0] + total[1]) / 2, (right[0] & right[1]).sum()


def _mark(gold: Tensor, length: int) -> Tensor:
    """[B, M] positions, spare ones IGNORE -> [B, T] bool, True at each of them."""
    marked = torch.zeros(len(gold), length + 1, dtype=torch.bool, device=gold.device)
    return marked.scatter(1, torch.where(gold == IGNORE, length, gold), True)[:, :length]


def _any_of(scores: Tensor, marked: Tensor) -> Tensor:
    """`-log sum_{t marked} softmax(scores)_t`, summed over the rows that have a marked token."""
    low = torch.finfo(scores.dtype).min
    loss = scores.logsumexp(-1) - scores.masked_fill(~marked, low).logsumexp(-1)
    return torch.where(marked.any(1), loss, 0).sum()
