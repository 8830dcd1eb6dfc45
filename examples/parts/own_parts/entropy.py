"""The entropy of attention, which says how many tokens a head looks at (Clark et al., 2019, sec.
3.3), as a measure of models with its panel in reports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import torch

from plmctl.analysis.attention import AttentionMaps
from plmctl.analysis.measure import Measure
from plmctl.artifacts.loading import Loaded
from plmctl.report.page import Block, Paragraph, TableBlock
from plmctl.report.panel import panel_of


@dataclass(frozen=True)
class AttentionEntropy(Measure):
    """The mean of `-sum_k p_k ln p_k` over the tokens of two sentences, by layer and head."""

    name: ClassVar[str] = "entropy"
    layers: list[list[float]]

    @classmethod
    def of(cls, opened: Loaded) -> Self | None:
        if "attention" not in opened.model.backbone.records:
            return None
        by_layer = zip(*AttentionMaps.of(opened).layers, strict=True)  # for each sentence [H, T, T]
        tokens = [[torch.special.entr(p).sum(-1) for p in maps] for maps in by_layer]
        return cls([torch.cat(each, -1).mean(-1).tolist() for each in tokens])


@panel_of(AttentionEntropy, order=60.5, title="Entropy of attention")
def show_entropy(found: AttentionEntropy) -> list[Block]:
    head = ["layer", *(f"head {head}" for head in range(max(map(len, found.layers))))]
    rows = [
        [f"layer {layer}", *(f"{value:.2f}" for value in values)]
        for layer, values in enumerate(found.layers, 1)
    ]
    about = "In nats: 0 where a head looks at one token, ln n at n evenly."
    return [Paragraph(about), TableBlock(head, rows)]
