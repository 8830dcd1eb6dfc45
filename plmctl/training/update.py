"""One update, exact for any split into micro-batches and processes.

Counts of all terms are summed first; then each micro-batch has a backward pass of `sum_t weight_t
total_t / count_t`, and gradients are summed over ranks. So 1 x 16 rows, 16 x 1 rows, and two
processes of 8 rows are the same update.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.distill.base import LOGITS, Predictions, Question, record_model
from plmctl.models.base import Model, Once
from plmctl.objectives.base import Objective, Output
from plmctl.objectives.mix import refuse_uncounted
from plmctl.training.carried_states import CarriedStates
from plmctl.training.device.precision import Precision
from plmctl.training.meter import Entry
from plmctl.training.regularisers.around import Around, Passes
from plmctl.training.regularisers.base import Regulariser
from plmctl.training.strategy.base import Strategy


class Update:
    """Computes the gradient of one model for one objective, and makes the step. It knows nothing of
    time, logs or files.

    `losses`: the terms that have a gradient, () for all; the others are only logged. `regulariser`:
    what makes the gradient of a micro-batch from more than one pass.
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
        regulariser: Regulariser | None = None,
    ) -> None:
        self.model, self.objective, self.optimizer, self.precision = (
            model,
            objective,
            optimizer,
            precision,
        )
        self.strategy, self.memory, self.clip = strategy, memory, clip
        self.regulariser = regulariser

    def count(self, micro_batches: Sequence[Batch], also: Mapping[str, int]) -> dict[str, int]:
        """Sums over micro-batches and ranks: "tokens", "rows", "term/<name>", and the numbers of
        `also`.
        """
        local = {"tokens": 0, "rows": 0, **also}
        for batch in micro_batches:
            local["tokens"] += batch.counts.get("tokens", 0)
            local["rows"] += batch.counts.get("rows", len(batch.key))
            own = self.regulariser.counts(batch) if self.regulariser else {}
            for name, count in {**self.objective.counts(batch), **own}.items():
                local[f"term/{name}"] = local.get(f"term/{name}", 0) + count
        return self.strategy.sum_counts(local)

    def gradient(
        self, micro_batches: Sequence[Batch], counts: Mapping[str, int], step: int = 0
    ) -> tuple[Tensor, list[Entry]]:
        """Compute the gradient, not yet clipped, in the parameters.

        Args:
            step: updates before this one, for what is not done in each.

        Returns:
            Its global norm, and the entries for the meter.
        """
        world, last = self.strategy.world, len(micro_batches) - 1
        regulariser = self.regulariser
        if regulariser and step % regulariser.every:
            regulariser = None
        entries: list[Entry] = [("loss", 0.0, float(world.main))]
        for slot, batch in enumerate(micro_batches):
            own = _Micro(self, slot, batch.to(world.device), counts, last=slot == last)
            entries += own.learn() if regulariser is None else own.learn_around(regulariser)
        self.strategy.finish_backward()
        self.precision.unscale(self.optimizer)
        return self.strategy.gradient_norm(), entries

    def apply(self, multipliers: Sequence[float], norm: float, share: float = 1.0) -> float:
        """Clip a gradient of this norm and make the step, every group at its own rate times its
        multiplier.

        Args:
            multipliers: of the rates, one for each group.
            norm: of the gradient.
            share: of the run that is done with it.

        Returns:
            The largest rate.
        """
        if self.clip > 0:
            self.strategy.clip(norm, largest=self.clip)
        for group, multiplier in zip(self.optimizer.param_groups, multipliers, strict=True):
            group["lr"] = group["initial_lr"] * multiplier
        self.objective.before_step(self.model, self.optimizer, share)
        self.optimizer.step()
        return max(group["lr"] for group in self.optimizer.param_groups)

    def end(self) -> None:
        """Clear the gradient, whether it was used or not."""
        self.precision.update()
        self.optimizer.zero_grad(set_to_none=True)


class _Micro:
    """The backward passes of one micro-batch."""

    def __init__(
        self, update: Update, slot: int, batch: Batch, counts: Mapping[str, int], *, last: bool
    ) -> None:
        self.update, self.slot, self.batch, self.counts = update, slot, batch, counts
        self.last, self.state = last, update.memory.before(slot, len(batch.key))
        self.entries: list[Entry] = []

    def learn(self) -> list[Entry]:
        """One pass, and its gradient."""
        loss = self._forward(self.update.model)
        if loss is not None:
            update = self.update
            update.strategy.backward(update.precision.scale(loss), last=self.last)
        return self.entries

    def learn_around(self, regulariser: Regulariser) -> list[Entry]:
        """The passes and gradients of a regulariser; one pass alone where nothing is counted."""
        update, own = self.update, self.update.objective.counts(self.batch)
        live = {name for name in own if self.counts[f"term/{name}"]}
        if not (live.intersection(update.losses) if update.losses else live):
            return self.learn()
        passes = Passes(
            table=update.model.backbone.token_embedding,
            forward=partial(self._read, regulariser.question),
            backward=lambda value, final: update.strategy.backward(value, last=final and self.last),
            scale=update.precision.scale,
            counts=self.counts,
        )
        around = Around(self.batch, passes)
        regulariser.run(around)
        of_terms = regulariser.counts(self.batch)
        extra: list[Entry] = [
            (f"loss/{name}", total, of_terms[name]) for name, total in around.losses.items()
        ]
        return self.entries + extra

    def _read(self, question: Question | None, predict: bool) -> tuple[Tensor, Predictions | None]:
        """One of several passes; the first is the one that is logged and remembered."""
        once: Any = Once(self.update.model) if predict else self.update.model
        loss, predictions = self._forward(once), None
        if predict and question is not None:
            with self.update.precision.autocast():
                predictions = record_model(once, self.batch, question, frozenset({LOGITS}))
        assert loss is not None
        return loss, predictions

    def _forward(self, model: Any) -> Tensor | None:
        """The loss of one pass, as the update counts it; None where no term has a gradient."""
        update, first = self.update, not self.entries
        with update.precision.autocast():
            output = update.objective(model, self.batch, self.state)
        if uncounted := [name for name in output.terms if f"term/{name}" not in self.counts]:
            raise refuse_uncounted(update.objective, self.batch, uncounted)
        live = {name: term for name, term in output.terms.items() if self.counts[f"term/{name}"]}
        parts = [
            term.weight / self.counts[f"term/{name}"] * term.total
            for name, term in live.items()
            if not update.losses or name in update.losses
        ]
        loss = torch.stack(parts).sum() if parts else None
        if loss is not None and update.losses and not loss.requires_grad:
            allowed = "losses that depend on what the stage trains (trainable, frozen)"
            raise ConfigError("train.stages", f"losses: {', '.join(update.losses)}", allowed)
        if first:
            update.memory.keep(self.slot, output.state)
            self._note(output, loss)
        return loss

    def _note(self, output: Output, loss: Tensor | None) -> None:
        own, counts = self.update.objective.counts(self.batch), self.counts
        self.entries += [(name, total, count) for name, (total, count) in output.logs.items()]
        self.entries += [
            (f"loss/{name}", term.total.detach(), own.get(name, 0))
            for name, term in output.terms.items()
            if counts[f"term/{name}"]
        ]
        if loss is not None:
            self.entries.append(("loss", loss.detach(), 0.0))
