"""A task in float64 whose rows have padding, and its loss as a function of the vectors of words,
written without the trainer: what the tests of regularisers compare with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import Batch, Seq
from plmctl.distill.base import Logits
from plmctl.models.base import Model
from plmctl.objectives.base import Objective, Output, Term
from plmctl.training.regularisers.around import Around
from plmctl.training.regularisers.base import Regulariser
from plmctl.training.trainer import Trainer
from tests.training.toy import T, V, make_trainer

PAD = 0


class Rows(Objective):
    """The class of a row, from the mean of its real states."""

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"row": len(batch.key)}

    def forward(self, model: Model, batch: Batch, state: Any = None) -> Output:
        logits = Asked().logits(model, batch)["row"].features
        loss = F.cross_entropy(logits, batch.labels["class"], reduction="sum")
        return Output({"row": Term(loss)})


class Asked:
    """The logits of that class, or of two numbers."""

    heads = frozenset({"row"})

    def __init__(self, *, chooses: bool = True) -> None:
        self.chooses = chooses

    def counts(self, batch: Batch) -> dict[str, int]:
        """The rows."""
        return {"row": len(batch.key)}

    def logits(self, model: Model, batch: Batch) -> dict[str, Logits]:
        """[B, 2]."""
        states, real = model(batch).last, batch.text.real
        logits = model.heads["row"](average(states, real))
        return {"row": Logits(logits, torch.ones(len(real), dtype=torch.bool))}


def average(states: Tensor, real: Tensor) -> Tensor:
    """[B, T, W] -> [B, W] the mean of real states."""
    return (states * real[..., None]).sum(1) / real.sum(1)[:, None]


def make_micro_batches() -> list[Batch]:
    """Two micro-batches, of three rows and of two."""
    draws = torch.Generator().manual_seed(5)
    made = []
    for keys in ([0, 1, 2], [3, 4]):
        length = torch.tensor([T - key for key in keys])
        ids = torch.randint(1, V, (len(keys), T), generator=draws)
        ids[torch.arange(T) >= length[:, None]] = PAD
        seq, key = Seq(ids, length), torch.tensor(keys)
        counts = {"rows": len(keys), "tokens": int(length.sum())}
        made.append(Batch(key, {"text": seq}, labels={"class": key % 2}, counts=counts))
    return made


def make(folder: Path, regulariser: Regulariser | None, *, dropout: float = 0.0) -> Trainer:
    """A trainer in float64."""
    objective = Rows()
    trainer = make_trainer(folder, dropout=dropout, objective=objective, regulariser=regulariser)
    trainer.model.double()
    return trainer


def learn(
    trainer: Trainer, monkeypatch: Any = None
) -> tuple[dict[str, Tensor], list[list[Tensor]], list[tuple[str, float, float]]]:
    """The gradient of one update; what each pass added to the vectors; what is logged."""
    shifts: list[list[Tensor]] = []
    read = Around.read

    def spy(around: Around, *args: Any, **more: Any) -> Any:
        reading = read(around, *args, **more)
        shifts.append([shift.detach().clone() for shift in reading.shift])
        return reading

    if monkeypatch is not None:
        monkeypatch.setattr(Around, "read", spy)
    micro_batches = make_micro_batches()
    counts = trainer.update.count(micro_batches, {})
    _, entries = trainer.update.gradient(micro_batches, counts)
    gradients = {name: p.grad.clone() for name, p in trainer.parameters if p.grad is not None}
    return gradients, shifts, [(name, float(total), float(count)) for name, total, count in entries]


def predict(model: Any, vectors: Tensor, real: Tensor) -> Tensor:
    """[B, K] the logits of rows whose words have these vectors [B, T, W]."""
    states = vectors + model.backbone.block(vectors.cumsum(1) / T)
    logits: Tensor = model.heads["row"](average(states, real))
    return logits


def find_gradient(model: Any, of_batch: Callable[[Tensor, Batch], Tensor]) -> dict[str, Tensor]:
    """The gradient of the sum of `of_batch(vectors, batch)` over all micro-batches."""
    table = model.backbone.token_embedding.weight
    loss = torch.stack(
        [of_batch(table[batch.text.ids], batch) for batch in make_micro_batches()]
    ).sum()
    named = {name: p for name, p in model.named_parameters() if "mlm" not in name}
    found = torch.autograd.grad(loss, list(named.values()))
    return dict(zip(named, found, strict=True))


def lose(model: Any, vectors: Tensor, batch: Batch) -> Tensor:
    """The share of a micro-batch in the mean loss of all five rows."""
    logits = predict(model, vectors, batch.text.real)
    return F.cross_entropy(logits, batch.labels["class"], reduction="sum") / 5


def shorten(shift: Tensor, radius: float) -> Tensor:
    """One row, at most so long."""
    length = float(shift.square().sum().sqrt())
    return shift * min(1.0, radius / length)


def compare(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Fail where a gradient differs; a parameter without one has none."""
    assert found.keys() <= expected.keys()
    for name, gradient in expected.items():
        own = found.get(name, torch.zeros_like(gradient))
        torch.testing.assert_close(own, gradient, rtol=1e-9, atol=1e-12)
