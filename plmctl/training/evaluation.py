"""Losses by name over held-out batches: what `Trainer(evaluate=...)` is usually given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from plmctl.core.batch import Batch
from plmctl.models.base import Model
from plmctl.objectives.base import Objective
from plmctl.training.meter import Meter, means, sum_parts
from plmctl.training.processes.world import World
from plmctl.training.randomness import seed_batch


@dataclass(frozen=True)
class Measured:
    """What a model does on some batches: {name: [total, count]}, and the weights of those names
    that are losses.
    """

    sums: Mapping[str, list[float]]
    weights: Mapping[str, float]

    @classmethod
    def together(cls, parts: Iterable[Measured]) -> Measured:
        """All parts as one, each term by its own count."""
        parts = list(parts)
        weights = {name: weight for part in parts for name, weight in part.weights.items()}
        return cls(sum_parts(part.sums for part in parts), weights)

    def means(self) -> dict[str, float]:
        """{"loss": ..., "loss/mlm": ..., "acc/mlm": ...}."""
        values = means(self.sums)
        losses = [weight * values[name] for name, weight in self.weights.items() if name in values]
        return {"loss": sum(losses), **values} if losses else values


def measure(
    model: Model,
    objective: Objective,
    batches: Iterable[Batch],
    *,
    world: World,
    seed: int | None = None,
) -> Measured:
    """The sums over all batches of all ranks; `batches` are this rank's share. Whole on the main
    process, empty on others.

    What a model remembers of a batch it reads the next one with. What an objective draws, such as
    the samples of a generator, follows from `seed` and the batch; None: from torch's generators as
    they stand, which is what a trainer wants, who keeps their state.
    """
    meter = Meter()
    weights: dict[str, float] = {}
    state = None  # its own: what training remembers is left alone
    for batch in batches:
        state = model.backbone.fresh_state(len(batch.key), world.device) if state is None else state
        counts = objective.counts(batch)
        if seed is not None:
            seed_batch(seed, batch)
        output = objective(model, batch.to(world.device), state)
        state = output.state
        for name, term in output.terms.items():
            meter.extend([(f"loss/{name}", term.total, counts.get(name, 0))])
            weights[f"loss/{name}"] = term.weight
        meter.extend((name, total, count) for name, (total, count) in output.logs.items())
    return Measured.together(Measured(*part) for part in world.gather((meter.sums(), weights)))


def mean_losses(
    model: Model, objective: Objective, batches: Iterable[Batch], *, world: World
) -> dict[str, float]:
    """{"loss": ..., "loss/mlm": ..., "acc/mlm": ...}: means over all batches of all ranks, each
    term by its own count.
    """
    return measure(model, objective, batches, world=world).means()
