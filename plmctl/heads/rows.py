"""The vector that represents a row in a decision about it: one of its tokens, their mean, or its
two texts side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from plmctl.core.batch import Batch


def take_anchors(features: Tensor, batch: Batch) -> Tensor:
    """[N, W] of `features [B, T, W]` the tokens of the anchors."""
    assert batch.anchors is not None
    return features[batch.anchors[:, 0], batch.anchors[:, 1]]


def average_rows(features: Tensor, batch: Batch) -> Tensor:
    """[N, W] of `features [B, T, W]`: for each anchor, the mean over the tokens of its row, of a
    packed row over those of its document.
    """
    rows, counted = _find_tokens(batch)
    return _average(features[rows], counted)


def keep_tokens(features: Tensor, batch: Batch) -> Tensor:
    """[N, T, W + 1] of `features [B, T, W]`: all tokens of each anchor's row. The last column has
    the weight of each token in `average_rows`. A head with `late` reads them, and takes the mean of
    its logits (Boizard et al., 2025, arXiv:2503.05500).
    """
    rows, counted = _find_tokens(batch)
    weights = counted.to(features) / counted.sum(1, keepdim=True)
    return torch.cat([features[rows], weights[..., None]], -1)


def compare_texts(features: Tensor, batch: Batch) -> Tensor:
    """[N, 4 W] of `features [B, T, W]`: `[a; b; |a - b|; a * b]`, a and b the means over the tokens
    of a row's first and second text; b = a where there is no second one.

    A head then sees how far apart two texts are, which a single mean of both does not show
    (Conneau et al., 2017, arXiv:1705.02364, sec. 3.1; Differs: the model has read both texts
    together).
    """
    rows, counted = _find_tokens(batch)
    segment = batch.seqs[batch.input].tracks.get("segment")
    of_second = counted & (segment[rows] > 0) if segment is not None else counted & False
    alone = ~of_second.any(1, keepdim=True)
    states = features[rows]
    a = _average(states, counted & ~of_second)
    b = _average(states, torch.where(alone, counted, of_second))
    return torch.cat([a, b, (a - b).abs(), a * b], -1)


def concatenate_pools(features: Tensor, batch: Batch) -> Tensor:
    """[N, 3 W] of `features [B, T, W]`: `[last; max; mean]` over the tokens of each anchor's text
    (Howard and Ruder, 2018, arXiv:1801.06146, sec. 3.3).
    """
    rows, counted = _find_tokens(batch)
    states = features[rows]
    last = counted.long().cumsum(1).argmax(1)  # the first index of the highest count
    highest = states.masked_fill(~counted[..., None], float("-inf")).amax(1)
    ends = states[torch.arange(rows.shape[0], device=rows.device), last]
    return torch.cat([ends, highest, _average(states, counted)], -1)


@dataclass(frozen=True)
class Pooling:
    """A way to read rows: `read` gives `vectors` W columns for each anchor; `late`: all tokens."""

    read: Callable[[Tensor, Batch], Tensor]
    vectors: int = 1
    late: bool = False


# "first" and "last" name the token that tasks choose as the anchor
POOLINGS = {
    "first": Pooling(take_anchors),
    "last": Pooling(take_anchors),
    "mean": Pooling(average_rows),
    "late": Pooling(keep_tokens, late=True),
    "compare": Pooling(compare_texts, vectors=4),
    "concat": Pooling(concatenate_pools, vectors=3),
}


def _find_tokens(batch: Batch) -> tuple[Tensor, Tensor]:
    """[N] the row of each anchor, and [N, T] bool which of its tokens are in the anchor's text."""
    assert batch.anchors is not None
    rows, places = batch.anchors.T
    text = batch.seqs[batch.input]
    counted = text.real[rows]
    if "document" in text.tracks:
        documents = text.tracks["document"][rows]
        counted = counted & (documents == documents.gather(1, places[:, None]))
    return rows, counted


def _average(states: Tensor, counted: Tensor) -> Tensor:
    """[N, W] the mean of `states [N, T, W]` over the tokens that are `counted [N, T]`."""
    weights = counted.to(states) / counted.sum(1, keepdim=True)
    return torch.einsum("nt,ntw->nw", weights, states)
