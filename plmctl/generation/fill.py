"""Predictions at the masks of a text (Devlin et al., 2019, arXiv:1810.04805): each mask separately,
in one forward pass.
"""

from __future__ import annotations

import torch

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError, UsageError
from plmctl.heads.base import heads_about
from plmctl.models.base import Model

Candidates = list[tuple[int, float]]  # (id, probability), the likeliest first


@torch.inference_mode()
def fill(
    model: Model, batch: Batch, *, mask: int, top: int, size: int | None = None
) -> list[list[Candidates]]:
    """For each row of `batch`, for each mask in its text from left to right, the `top` likeliest
    tokens.

    `p(v | text)` at each mask, with the other masks still there. `size`: ids from there on are not
    tokens.
    """
    head = next(iter(heads_about(model, "text")), None)
    if head is None:
        has = ", ".join(model.heads) or "none"
        raise UsageError(f"masks are filled by a head that predicts them; this model has {has}")
    seq = batch.text
    positions = ((seq.ids == mask) & seq.real).nonzero()  # [M, 2]
    logits = model.heads[head](model(batch).words[positions[:, 0], positions[:, 1]])[:, :size]
    if top > logits.shape[1]:
        raise ConfigError("top", top, f"at most {logits.shape[1]}, the size of the vocabulary")
    shares, ids = torch.softmax(
        logits, -1, dtype=torch.promote_types(logits.dtype, torch.float32)
    ).topk(top)
    candidates: list[list[Candidates]] = [[] for _ in seq.ids]
    for row, tokens, values in zip(
        positions[:, 0].tolist(), ids.tolist(), shares.tolist(), strict=True
    ):
        candidates[row].append(list(zip(tokens, values, strict=True)))
    return candidates
