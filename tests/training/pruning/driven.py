"""A small encoder that is trained by hand with a pruning, for its tests."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from plmctl.core.batch import Batch
from plmctl.core.collate import collate
from plmctl.models.base import Model
from plmctl.training.stabilisers.base import Beginning
from tests.objectives.contrastive import cells_of, encoder

BLOCKS = "backbone.stack.blocks"
UP, DOWN, OUT = (f"{BLOCKS}.{c}.weight" for c in ("f.0.cell.up", "f.0.cell.down", "a.0.cell.out"))

SCALE = 300  # so that plain gradient descent stays stable


def take_up(part: Any, layers: int = 1, seed: int = 1) -> Model:
    """A model that `part` has taken up."""
    model = encoder(0.0, layers)
    task: Any = None
    part.begin(Beginning(model, task, frozenset(), seed, False, lambda: iter(())))
    return model


def make_batch(seed: int = 0) -> Batch:
    """Four rows of unlike lengths."""
    return collate(cells_of([10, 7, 9, 4], seed=seed), {})


def loss_of(model: Model, batch: Batch) -> Tensor:
    """The sum over rows of a function of the states of their real tokens."""
    last = model(batch).last
    ramp = torch.linspace(-1, 1, last.shape[-1], dtype=last.dtype)
    real = batch.text.real[..., None]
    return ((last * ramp).sum(-1, keepdim=True).square() * real).sum() / SCALE


def update(part: Any, model: Model, optimizer: Optimizer, *, share: float, step: int) -> None:
    """One update as the trainer makes it."""
    with part.reading(model):
        loss = loss_of(model, make_batch(step))
    loss.backward()
    part.before_step(model, optimizer, share)
    optimizer.step()
    part.after_step(model, step)
    optimizer.zero_grad()
