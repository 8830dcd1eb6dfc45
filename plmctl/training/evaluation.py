"""Losses by name over held-out batches, for `Trainer(evaluate=...)`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice

from torch import Tensor

from plmctl.core.batch import IGNORE, Batch
from plmctl.models.base import Model
from plmctl.models.capabilities import start_memory
from plmctl.objectives.base import Contrast, Objective, Output
from plmctl.training.meter import Entry, Meter, compute_means, round_digits, sum_parts
from plmctl.training.processes.world import World
from plmctl.training.randomness import seed_batch
from plmctl.training.together import Name, drop_contrasts, find_contrasts, is_cut, join, share

ANSWERS = "answers/"  # sums of a term with few answers: how often each is right


@dataclass(frozen=True)
class Measured:
    """Sums over some batches: {name: [total, count]}, and the weights of those names that are
    losses.
    """

    sums: Mapping[str, list[float]]
    weights: Mapping[str, float]

    @classmethod
    def together(cls, parts: Iterable[Measured]) -> Measured:
        """Join all parts, each term with its own count."""
        parts = list(parts)
        weights = {name: weight for part in parts for name, weight in part.weights.items()}
        return cls(sum_parts(part.sums for part in parts), weights)

    def means(self) -> dict[str, float]:
        """{"loss": ..., "loss/mlm": ..., "acc/mlm": ...}, and what one constant answer has."""
        values = compute_means(self.sums) | self._score_constants()
        losses = [weight * values[name] for name, weight in self.weights.items() if name in values]
        return {"loss": sum(losses), **values} if losses else values

    def _score_constants(self) -> dict[str, float]:
        """{"constant/nsp", "constant_acc/nsp"}: the loss and the accuracy of a model that knows how
        often each answer is right, and reads nothing: `- sum_k p_k log p_k` and `max_k p_k`.
        """
        counts: dict[str, list[float]] = {}
        for name, (total, _) in self.sums.items():
            if name.startswith(ANSWERS):
                counts.setdefault(name.removeprefix(ANSWERS).rpartition("/")[0], []).append(total)
        scores: dict[str, float] = {}
        for name, own in counts.items():
            shares = [count / sum(own) for count in own]
            loss = sum(-share * math.log(share) for share in shares)
            scores |= {f"constant/{name}": loss, f"constant_acc/{name}": max(shares)}
        return {name: round_digits(value) for name, value in scores.items()}


def measure(
    model: Model,
    objective: Objective,
    batches: Iterable[Batch],
    *,
    world: World,
    seed: int | None = None,
    exact: bool = False,
    beside: int = 1,
) -> Measured:
    """The sums over all batches of all ranks; complete on the main process, empty on others.

    Args:
        batches: this rank's share. A model with memory carries it from batch to batch.
        seed: with the batch, decides what an objective draws, such as the samples of a
            generator; None: torch's generators as they are, whose state a trainer keeps.
        exact: Whether each `acc/...` also has an `exact/...`, the share of batches with no wrong
            answer.
        beside: so many batches of each rank are compared with each other, where rows are compared.
    """
    meter = Meter()
    weights: dict[str, float] = {}
    state = None  # separate from the memory of training
    joins, remaining = objective.facts.contrasts, iter(batches)
    while together := list(islice(remaining, beside)):
        contrasts: list[Mapping[Name, Contrast]] = []
        for batch in share(objective, together, world):
            rows, counts = len(batch.key), objective.counts(batch)
            if state is None:
                state = start_memory(model.backbone, rows, world.device)
            if seed is not None:
                seed_batch(seed, batch)
            output = objective(model, batch.to(world.device), state)
            state = output.state
            if joins and is_cut(together, world):
                contrasts.append(find_contrasts(batch, output))
                output = drop_contrasts(output)
            _note(meter, weights, output, counts, exact=exact)
        if joins and is_cut(together, world):
            for found in join(contrasts, world, nullcontext).values():
                if found.first:
                    _note(meter, weights, found.output, {}, exact=exact)
    return Measured.together(Measured(*part) for part in world.gather((meter.sums(), weights)))


def _note(
    meter: Meter,
    weights: dict[str, float],
    output: Output,
    counts: Mapping[str, int],
    *,
    exact: bool,
) -> None:
    """Add the output to the sums; a term that is not in `counts` knows its own."""
    for name, term in output.terms.items():
        count = counts.get(name, term.count or 0)
        meter.extend([(f"loss/{name}", term.total, count)])
        weights[f"loss/{name}"] = term.weight
    meter.extend((name, total, count) for name, (total, count) in output.logs.items())
    for name, answers in output.answers.items():
        kinds, counted = answers[answers != IGNORE].unique(return_counts=True)
        meter.extend(
            (f"{ANSWERS}{name}/{kind}", count, 0)
            for kind, count in zip(kinds.tolist(), counted, strict=True)
        )
    if exact:
        meter.extend(_find_exact(output.logs))


def _find_exact(logs: Mapping[str, tuple[Tensor | float, Tensor | float]]) -> Iterator[Entry]:
    """`exact/...` of a batch: 1 where all its answers are right, else 0; none without answers."""
    for name, (right, count) in logs.items():
        if name.startswith("acc/") and count:
            yield name.replace("acc/", "exact/", 1), float(right == count), 1
