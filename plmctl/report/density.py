"""How many of the tokens that a head may see have a weight, where weights may be 0 (Correia et al.,
2019).
"""

from __future__ import annotations

import torch

from plmctl.artifacts.loading import Loaded
from plmctl.nn.entmax import Entmax
from plmctl.nn.stack import Stack
from plmctl.report.sentences import SENTENCES, batch_sentences


@torch.inference_mode()
def measure_density(loaded: Loaded) -> list[list[float]]:
    """By layer and head: the share of those tokens that a token may see which have a weight, the
    mean over the tokens of some sentences; empty where the model records no attention.
    """
    names = frozenset({"attention", "scores"})
    if not names <= loaded.model.backbone.records:
        return []
    batch, _ = batch_sentences(loaded, SENTENCES)
    recorded = loaded.model(batch, record=names).recorded
    real = batch.text.real
    layers = []
    for weights, scores in zip(recorded["attention"], recorded["scores"], strict=True):
        seen = scores > torch.finfo(scores.dtype).min
        share = (weights > 0).sum(-1) / seen.sum(-1).clamp(min=1)  # [B, H, T]
        layers.append(share.transpose(1, 2)[real].mean(0).tolist())
    return layers


def list_alphas(loaded: Loaded) -> list[list[float]]:
    """The alphas of the heads, by the cells of all stacks in the order in which they run."""
    stacks = [part for part in loaded.model.backbone.modules() if isinstance(part, Stack)]
    cells = [stack.block(step).cell for stack in stacks for step in stack.steps]
    parts = [part for cell in cells for part in cell.modules() if isinstance(part, Entmax)]
    return [part.alpha.detach().tolist() for part in parts]
