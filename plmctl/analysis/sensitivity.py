"""The change of loss and score when one matrix of a fine-tuned model has few bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from plmctl.analysis.stacks import list_cells
from plmctl.artifacts.loading import Loaded
from plmctl.models.base import Model
from plmctl.nn.residual import Block
from plmctl.nn.stack import Stack
from plmctl.tasks import inference
from plmctl.tasks.task import Task
from plmctl.training.stabilisers.rounded import find_scale, to_steps

ROWS, BATCH = 256, 32  # examples that are scored, and rows of a batch


@dataclass(frozen=True)
class RoundedMatrix:
    """The loss and the score of a model in which one matrix is rounded.

    Args:
        name: The name of the weight.
        layer: The first layer that computes with it, from 1; 0: it is of no layer.
        kind: The letter of its cell in the layout and its name in the cell, or its whole name.
        losses: The loss for each number of bits.
        scores: The first metric for each number of bits.
    """

    name: str
    layer: int
    kind: str
    weights: int
    losses: list[float]
    scores: list[float]


@dataclass(frozen=True)
class BitSensitivity:
    """The loss and the score of a model, whole and with each of its matrices rounded alone: `W' = s
    round(W / s)`, `s = max|W_i| / (2^(bits - 1) - 1)` for each row i (each output of a linear map,
    each token of a table). Everything else stays in fp32.

    Args:
        metric: The first metric of the task.
        examples: The number of examples that were scored.
    """

    bits: list[int]
    metric: str
    loss: float
    score: float
    matrices: list[RoundedMatrix]
    examples: int
    split: str

    @classmethod
    @torch.no_grad()
    def of(cls, opened: Loaded, task: Task, bits: Sequence[int], split: str = "dev") -> Self:
        """Measure a model on at most 256 examples of a split, drawn with a fixed seed.

        Raises:
            DataError: The split cannot be read.
        """
        examples = task.read(split)
        some = inference.take_some(examples, ROWS)
        rows = inference.encode_split(task, split, some, opened.tokenizer)
        model, metric = opened.model, task.metrics[0]
        device = next(model.parameters()).device

        def measure() -> tuple[float, float]:
            answers, loss = inference.predict_split(
                model, task, rows, batch_size=BATCH, device=device
            )
            return float("nan") if loss is None else loss, task.score(answers)[metric]

        whole, found = measure(), []
        for name, layer, kind, weight in find_matrices(model):
            kept, pairs = weight.clone(), []
            try:
                for each in bits:
                    weight.copy_(round_rows(kept, each))
                    pairs.append(measure())
            finally:
                weight.copy_(kept)
            losses, scores = ([pair[n] for pair in pairs] for n in (0, 1))
            found.append(RoundedMatrix(name, layer, kind, weight.numel(), losses, scores))
        return cls(list(bits), metric, *whole, found, len(some), split)


def round_rows(weight: Tensor, bits: int) -> Tensor:
    """A matrix with a scale for each row, rounded to whole steps of it."""
    scale = find_scale(weight.abs().amax(1, keepdim=True), bits)
    return to_steps(weight, scale, bits) * scale


def find_matrices(model: Model) -> Iterator[tuple[str, int, str, Tensor]]:
    """(name, layer, kind, weight) of each linear map and each table; a shared one comes once."""
    layers: dict[int, tuple[int, str]] = {}
    stacks = {name: part for name, part in model.named_modules() if isinstance(part, Stack)}
    for name, stack in stacks.items():
        letters = {
            id(block.cell): f"{place.partition('.')[0]}."
            for place, block in stack.blocks.named_modules()
            if isinstance(block, Block)
        }
        above = f"{name.split('.')[-2]}." if len(stacks) > 1 else ""
        for layer, cell in list_cells(stack):
            for inner, part in cell.named_modules():
                layers.setdefault(id(part), (layer, f"{above}{letters[id(cell)]}{inner}"))
    known = {name for name, _ in model.named_parameters()}
    for name, part in model.named_modules():
        if isinstance(part, nn.Linear | nn.Embedding) and f"{name}.weight" in known:
            layer, kind = layers.get(id(part), (0, name))
            yield f"{name}.weight", layer, kind, part.weight
