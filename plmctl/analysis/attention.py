"""The weights of attention: maps of them, and how many are not 0 (Correia et al., 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from plmctl.analysis.measure import Measure
from plmctl.analysis.sample import batch_sentences, choose_sentences, describe_unread
from plmctl.artifacts.loading import Loaded
from plmctl.core.batch import Batch
from plmctl.core.errors import DataError
from plmctl.nn.entmax import Entmax
from plmctl.nn.stack import Stack
from plmctl.nn.weights import AttentionWeights

TEXTS = 8  # whose weights are read: those of long ones fill memory


@dataclass(frozen=True)
class AttentionMaps(Measure):
    """The probabilities of self-attention on some sentences.

    Args:
        tokens: The tokens of each sentence.
        layers: [H, T, T] query by key, for each sentence and layer.
        unread: Remarks on each sentence: unknown tokens, an end that the model has no room for.
    """

    name: ClassVar[str] = "attention"
    tokens: list[list[str]]
    layers: list[list[Tensor]]
    unread: list[str]

    @classmethod
    @torch.inference_mode()
    def of(cls, opened: Loaded, sentences: Sequence[str] = ()) -> Self:
        """Measure a model on `sentences`, without any on two texts of the run's own data."""
        if "attention" not in opened.model.backbone.records:
            raise DataError("this model has no self-attention that is recorded")
        sentences = sentences or choose_sentences(opened)[0][:2]
        batch, rows = batch_sentences(opened, sentences)
        layers = opened.model(batch, record=frozenset({"attention"})).recorded["attention"]
        return cls(
            [opened.tokenizer.show(row) for row in rows],
            [
                [layer[index, :, : len(row), : len(row)] for layer in layers]
                for index, row in enumerate(rows)
            ],
            [
                describe_unread(opened, row, [text])
                for text, row in zip(sentences, rows, strict=True)
            ],
        )


@dataclass(frozen=True)
class SparseHeads(Measure):
    """The heads of a model whose weights may be 0.

    Args:
        density: The share of the tokens in sight that have a weight, by layer and head; the mean
            over the tokens of a few texts. Empty where the model records no attention.
        about: The source of these texts.
        alphas: The alphas by cell and head, in the order in which the cells run.
    """

    name: ClassVar[str] = "density"
    density: list[list[float]]
    about: str
    alphas: list[list[float]]

    @classmethod
    @torch.inference_mode()
    def of(cls, opened: Loaded) -> Self | None:
        backbone = opened.model.backbone
        if not any(isinstance(part, AttentionWeights) for part in backbone.modules()):
            return None
        stacks = [part for part in backbone.modules() if isinstance(part, Stack)]
        cells = [stack.block(step).cell for stack in stacks for step in stack.steps]
        parts = [part for cell in cells for part in cell.modules() if isinstance(part, Entmax)]
        texts, about = choose_sentences(opened)
        batch, _ = batch_sentences(opened, texts[:TEXTS])
        return cls(
            _measure_density(opened, batch), about, [part.alpha.detach().tolist() for part in parts]
        )


def _measure_density(opened: Loaded, batch: Batch) -> list[list[float]]:
    names = frozenset({"attention", "scores"})
    if not names <= opened.model.backbone.records:
        return []
    recorded = opened.model(batch, record=names).recorded
    layers = []
    for weights, scores in zip(recorded["attention"], recorded["scores"], strict=True):
        seen = scores > torch.finfo(scores.dtype).min
        share = (weights > 0).sum(-1) / seen.sum(-1).clamp(min=1)  # [B, H, T]
        layers.append(share.transpose(1, 2)[batch.text.real].mean(0).tolist())
    return layers
