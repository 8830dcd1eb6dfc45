"""Losses by name over held-out batches: what `Trainer(evaluate=...)` is usually given."""

from __future__ import annotations

from collections.abc import Iterable

from plmctl.batch import Batch
from plmctl.models.base import Model
from plmctl.objectives.base import Objective
from plmctl.training.distributed import World
from plmctl.training.meter import Meter, add_up, means


def mean_losses(model: Model, objective: Objective, batches: Iterable[Batch], *, world: World) -> dict[str, float]:
    """{"loss": ..., "loss/mlm": ..., "acc/mlm": ...}: means over all batches of all ranks, each term by its own count.

    `batches` are this rank's share; the result is whole on the main process and empty on the others.
    """
    meter = Meter()
    weights: dict[str, float] = {}
    for batch in batches:
        counts = objective.counts(batch)
        output = objective(model, batch.to(world.device))
        for name, term in output.terms.items():
            meter.extend([(f"loss/{name}", term.total, counts.get(name, 0))])
            weights[f"loss/{name}"] = term.weight
        meter.extend((name, total, count) for name, (total, count) in output.logs.items())
    parts = world.gather((meter.sums(), weights))
    found = means(add_up(sums for sums, _ in parts))
    for _, others in parts:
        weights |= others
    losses = [weight * found[name] for name, weight in weights.items() if name in found]
    return {"loss": sum(losses), **found} if losses else found
