"""One update, exact for any split into micro-batches and processes.

Counts of all terms are summed first; then each micro-batch has a backward pass of `sum_t weight_t
total_t / count_t`, and gradients are summed over ranks. So 1 x 16 rows, 16 x 1 rows, and two
processes of 8 rows are the same update.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.optim import Optimizer

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.models.base import Model
from plmctl.objectives.base import Objective
from plmctl.training.carried_states import CarriedStates
from plmctl.training.device.precision import Precision
from plmctl.training.meter import Entry
from plmctl.training.strategy.base import Strategy


class Update:
    """Computes the gradient of one model for one objective, and makes the step. It knows nothing of
    time, logs or files.

    `losses`: the terms that have a gradient, () for all; the others are only logged.
    """

    losses: Sequence[str] = ()

    def __init__(
        self,
        *,
        model: Model,
        objective: Objective,
        optimizer: Optimizer,
        precision: Precision,
        strategy: Strategy,
        memory: CarriedStates,
        clip: float,
    ) -> None:
        self.model, self.objective, self.optimizer, self.precision = (
            model,
            objective,
            optimizer,
            precision,
        )
        self.strategy, self.memory, self.clip = strategy, memory, clip

    def count(self, micro_batches: Sequence[Batch], also: Mapping[str, int]) -> dict[str, int]:
        """Sums over micro-batches and ranks: "tokens", "rows", "term/<name>", and the numbers of
        `also`.
        """
        local = {"tokens": 0, "rows": 0, **also}
        for batch in micro_batches:
            local["tokens"] += batch.counts.get("tokens", 0)
            local["rows"] += batch.counts.get("rows", len(batch.key))
            for name, count in self.objective.counts(batch).items():
                local[f"term/{name}"] = local.get(f"term/{name}", 0) + count
        return self.strategy.sum_counts(local)

    def gradient(
        self, micro_batches: Sequence[Batch], counts: Mapping[str, int]
    ) -> tuple[Tensor, list[Entry]]:
        """Compute the gradient, not yet clipped, in the parameters.

        Returns:
            Its global norm, and the entries for the meter.
        """
        world, last = self.strategy.world, len(micro_batches) - 1
        entries: list[Entry] = [("loss", 0.0, float(world.main))]
        for slot, batch in enumerate(micro_batches):
            entries += self._backward(slot, batch.to(world.device), counts, last=slot == last)
        self.strategy.finish_backward()
        self.precision.unscale(self.optimizer)
        return self.strategy.gradient_norm(), entries

    def _backward(
        self, slot: int, batch: Batch, counts: Mapping[str, int], *, last: bool
    ) -> list[Entry]:
        own = self.objective.counts(batch)
        with self.precision.autocast():
            output = self.objective(self.model, batch, self.memory.before(slot, len(batch.key)))
        self.memory.keep(slot, output.state)
        entries: list[Entry] = [
            (name, total, count) for name, (total, count) in output.logs.items()
        ]
        live = {name: term for name, term in output.terms.items() if counts[f"term/{name}"]}
        entries += [
            (f"loss/{name}", term.total.detach(), own.get(name, 0)) for name, term in live.items()
        ]
        parts = [
            term.weight / counts[f"term/{name}"] * term.total
            for name, term in live.items()
            if not self.losses or name in self.losses
        ]
        if parts:
            loss = torch.stack(parts).sum()
            if self.losses and not loss.requires_grad:
                allowed = "losses that depend on what the stage trains (trainable, frozen)"
                raise ConfigError("train.stages", f"losses: {', '.join(self.losses)}", allowed)
            self.strategy.backward(self.precision.scale(loss), last=last)
            entries.append(("loss", loss.detach(), 0.0))
        return entries

    def apply(self, multipliers: Sequence[float], norm: float) -> float:
        """Clip a gradient of this norm and make the step, every group at its own rate times its
        multiplier.

        Returns:
            The largest rate.
        """
        if self.clip > 0:
            self.strategy.clip(norm, largest=self.clip)
        for group, multiplier in zip(self.optimizer.param_groups, multipliers, strict=True):
            group["lr"] = group["initial_lr"] * multiplier
        self.optimizer.step()
        return max(group["lr"] for group in self.optimizer.param_groups)

    def end(self) -> None:
        """Clear the gradient, whether it was used or not."""
        self.precision.update()
        self.optimizer.zero_grad(set_to_none=True)
