"""What stands for a row before the heads about rows: one token of it, or the mean of all."""

from __future__ import annotations

import torch
from torch import Tensor

from plmctl.core.batch import Batch


def read_rows(features: Tensor, batch: Batch, *, averaged: bool) -> Tensor:
    """[N, W] of `features [B, T, W]` what stands for each anchor of a batch: its token, or, if
    `averaged`, the mean over all tokens.
    """
    assert batch.anchors is not None
    if averaged:
        return average_rows(features, batch)
    return features[batch.anchors[:, 0], batch.anchors[:, 1]]


def average_rows(features: Tensor, batch: Batch) -> Tensor:
    """[N, W] of `features [B, T, W]`: for each anchor, the mean over the tokens of its row, of a
    packed row over those of its document.
    """
    assert batch.anchors is not None
    rows, places = batch.anchors.T
    text = batch.seqs[batch.input]
    counted = text.real[rows]  # [N, T]
    if "document" in text.tracks:
        documents = text.tracks["document"][rows]
        counted = counted & (documents == documents.gather(1, places[:, None]))
    weights = counted.to(features) / counted.sum(1, keepdim=True)
    return torch.einsum("nt,ntw->nw", weights, features[rows])
