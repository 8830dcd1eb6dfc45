"""The common part of objectives that compare the rows of an update: InfoNCE, and the text before
noise.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import Batch


def info_nce(scores: Tensor, excluded: Tensor) -> tuple[Tensor, Tensor]:
    """`- sum_i log exp(s_ii) / sum_j exp(s_ij)`, j over the columns that are not excluded; and how
    often s_ii is the largest.

    scores [N, N], excluded [N, N]; s_ii itself is never excluded. I(a; b) >= log N - the mean of
    it (van den Oord et al., 2018, arXiv:1807.03748, sec. 2.3).
    """
    if not len(scores):
        return scores.sum(), scores.sum().detach()
    own = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    scores = scores.masked_fill(excluded & ~own, -torch.inf)
    labels = torch.arange(len(scores), device=scores.device)
    loss = F.cross_entropy(scores, labels, reduction="sum")
    return loss, (scores.argmax(1) == labels).sum()


def multiply(a: Tensor, b: Tensor) -> Tensor:
    """`a b^T` [N, M] in fp32 or wider, also under autocast. In bf16 a product of 700 may be wrong
    by 2, and so may its logit.
    """
    wide = torch.promote_types(a.dtype, torch.float32)
    with torch.autocast(a.device.type, enabled=False):
        return a.to(wide) @ b.to(wide).T


def find_equal(ids: Tensor) -> Tensor:
    """[N, N] bool: which rows of `ids [N, T]` are the same: no negatives of each other."""
    return (ids[:, None] == ids).all(-1)


def restore_originals(batch: Batch) -> Batch:
    """The batch with the tokens of `targets.mlm` put back: the text before noise masked them."""
    hidden, text = batch.targets.get("mlm"), batch.text
    if hidden is None:
        return batch
    return replace(
        batch,
        seqs={**batch.seqs, "text": replace(text, ids=hidden.write_into(text.ids, hidden.ids))},
    )
