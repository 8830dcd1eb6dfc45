"""One update, exact for any split into micro-batches and processes.

Counts of all terms are summed first; then each micro-batch has a backward pass of `sum_t weight_t
total_t / count_t`, and gradients are summed over ranks. So 1 x 16 rows, 16 x 1 rows, and two
processes of 8 rows are the same update. This also holds for a loss that compares rows with each
other (`together.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.distill.base import LOGITS, Predictions, Question, record_model
from plmctl.models.base import Model, Once
from plmctl.objectives.base import Contrast, Objective, Output
from plmctl.objectives.mix import refuse_uncounted
from plmctl.training import together
from plmctl.training.carried_states import CarriedStates, Slot
from plmctl.training.device.precision import Precision
from plmctl.training.device.stopwatch import Stopwatch
from plmctl.training.meter import Entry
from plmctl.training.progress import READ
from plmctl.training.randomness import random_state, restore_random_state
from plmctl.training.regularisers.around import Around, Passes
from plmctl.training.regularisers.base import Regulariser
from plmctl.training.strategy.base import Run, Strategy
from plmctl.training.together import Name, Pulls


class Update:
    """Computes the gradient of one model for one objective, and makes the step. It knows nothing of
    time, logs or files.

    `losses`: the terms that have a gradient, () for all; the others are only logged. `regulariser`:
    what makes the gradient of a micro-batch from more than one pass. `run`: the objective, as the
    strategy calls it.
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
        run: Run,
        memory: CarriedStates,
        clip: float,
        regulariser: Regulariser | None = None,
    ) -> None:
        self.model = model
        self.objective = objective
        self.optimizer = optimizer
        self.precision = precision
        self.strategy, self.run, self.memory, self.clip = strategy, run, memory, clip
        self.regulariser = regulariser
        # from the first pass until this process waits for the gradients of others
        self.stopwatch = Stopwatch(strategy.world.device)

    def count(self, micro_batches: Sequence[Batch], also: Mapping[str, int]) -> dict[str, int]:
        """Sums over micro-batches and ranks: "tokens", "words", "rows", "term/<name>", and the
        numbers of `also`.
        """
        local = dict.fromkeys(READ, 0)
        for batch in micro_batches:
            there = 0 if batch.spare else 1
            for unit in READ:
                local[unit] += there * batch.counts.get(unit, len(batch.key) * (unit == "rows"))
            own = self.regulariser.counts(batch) if self.regulariser else {}
            for name, count in {**self.objective.counts(batch), **own}.items():
                local[f"term/{name}"] = local.get(f"term/{name}", 0) + there * count
        return self.strategy.sum_counts(local, also)

    def gradient(
        self, micro_batches: Sequence[Batch], counts: Mapping[str, int], step: int = 0
    ) -> tuple[Tensor, list[Entry]]:
        """Compute the gradient, not yet clipped, in the parameters.

        Args:
            step: The updates before this one, for actions that are not in each.

        Returns:
            Its global norm, and the entries for the meter.
        """
        self.stopwatch.begin()
        live = [batch for batch in micro_batches if not batch.spare]
        world, passes = self.strategy.world, self.strategy.passes(len(live))
        regulariser = self.regulariser
        if regulariser and step % regulariser.every:
            regulariser = None
        entries: list[Entry] = [("loss", 0.0, float(world.main))]
        joins = self.objective.facts.contrasts and together.is_cut(live, world)
        live = together.share(self.objective, live, world)
        # passes that only keep up with those of other processes
        idle = [replace((live or micro_batches)[-1], spare=True)] * (passes - len(live))
        micros, seen = list[_Micro](), Counter[str]()
        for number, batch in enumerate([*live, *idle]):
            slot = (batch.source, max(0, seen[batch.source] - batch.spare))
            micros.append(_Micro(self, slot, batch, counts, last=number == passes - 1))
            seen[batch.source] += not batch.spare
        if joins:
            entries += self._learn_together(micros, regulariser)
        else:
            for micro in micros:
                own = micro.learn() if regulariser is None else micro.learn_around(regulariser)
                entries += [] if micro.batch.spare else own
        self.stopwatch.end()
        self.strategy.finish_backward()
        self.precision.unscale(self.optimizer)
        return self.strategy.gradient_norm(), entries

    def _learn_together(
        self, micros: Sequence[_Micro], regulariser: Regulariser | None
    ) -> list[Entry]:
        """The gradient of losses that contrast the rows of all micro-batches and processes."""
        if regulariser is not None:
            allowed = "none: the loss compares rows of several micro-batches or processes"
            kind = type(regulariser).__name__
            raise ConfigError("regulariser", kind, allowed, fix="regulariser=none")
        world, entries = self.strategy.world, list[Entry]()
        found = [micro.look(keep=len(micros) == 1) for micro in micros]
        contrasts = [own for micro, own in zip(micros, found, strict=True) if not micro.batch.spare]
        joined = together.join(contrasts, world, self.precision.autocast)
        pulls: dict[tuple[int, Name], Pulls] = {}
        whole: list[Tensor] = []  # the losses that this process counts
        for name, each in joined.items():
            loss = self._weigh(each.output)
            if loss is not None and loss.requires_grad:
                pulls |= {(slot, name): pull for slot, pull in each.pull(loss).items()}
            if each.first:
                entries += _list_joined(each.output, loss)
                whole += [] if loss is None else [loss]
        for slot, (micro, names) in enumerate(zip(micros, found, strict=True)):
            own = {name: pulls[slot, name] for name in names if (slot, name) in pulls}
            ends = slot == max(0, len(contrasts) - 1)
            learned = micro.learn_pulled(own, whole if ends else [])
            entries += [] if micro.batch.spare else learned
        return entries

    def _weigh(self, output: Output) -> Tensor | None:
        """The loss of terms that know their counts; None where none has a gradient."""
        parts = [
            term.weight / term.count * term.total
            for name, term in output.terms.items()
            if term.count and (not self.losses or name in self.losses)
        ]
        return torch.stack(parts).sum() if parts else None

    def apply(self, multipliers: Sequence[float], norm: float, share: float = 1.0) -> float:
        """Clip a gradient of this norm and make the step, every group at its own rate times its
        multiplier.

        Args:
            multipliers: The factors of the rates, one for each group.
            share: The share of the run that is done with it.

        Returns:
            The largest rate.
        """
        if self.clip > 0:
            self.strategy.clip(norm, largest=self.clip)
        for group, multiplier in zip(self.optimizer.param_groups, multipliers, strict=True):
            group["lr"] = group["initial_lr"] * multiplier
        self.objective.before_step(self.model, self.optimizer, share)
        self.optimizer.step()
        return max(g["lr"] for g in self.optimizer.param_groups if not g.get("apart"))

    def end(self) -> None:
        """Clear the gradient, whether it was used or not."""
        self.precision.update()
        self.optimizer.zero_grad(set_to_none=True)


def _list_joined(output: Output, loss: Tensor | None) -> list[Entry]:
    """The entries of the log for a contrast."""
    entries: list[Entry] = [(name, total, count) for name, (total, count) in output.logs.items()]
    for name, term in output.terms.items():
        if term.count:
            entries.append((f"loss/{name}", term.total.detach(), term.count))
    return entries + ([] if loss is None else [("loss", loss.detach(), 0.0)])


class _Micro:
    """The backward passes of one micro-batch."""

    def __init__(
        self, update: Update, slot: Slot, batch: Batch, counts: Mapping[str, int], *, last: bool
    ) -> None:
        self.update, self.slot, self.counts = update, slot, counts
        self.device = update.strategy.world.device
        self.batch = batch.to(self.device)
        self.last, self.state = last, update.memory.before(slot, len(batch.key))
        self.entries: list[Entry] = []
        self.output: Output | None = None  # output of the first pass, if it is stored
        self.random: dict[str, Tensor] = {}  # the states in which it was made

    def learn(self) -> list[Entry]:
        """One pass, and its gradient."""
        loss = self._forward(self.update.model)
        if loss is not None:
            self._backward(self.update.precision.scale(loss), final=True)
        return self.entries

    def _backward(self, loss: Tensor, final: bool) -> None:
        """Add a gradient, 0 for a spare pass; `final`: the last of this micro-batch."""
        scaled = loss * 0 if self.batch.spare else loss
        self.update.strategy.backward(scaled, last=final and self.last)

    def look(self, *, keep: bool) -> dict[Name, Contrast]:
        """The first of two passes: its contrasts; `keep`: the second one is this one."""
        self.random = random_state(self.device)
        output = self._read(self.update.model)
        contrasts = together.find_contrasts(self.batch, output)
        beside = together.drop_contrasts(output)
        self._note(beside, self._weigh(beside))
        self._keep(output)
        self.output = output if keep else None
        return contrasts

    def learn_pulled(self, pulls: Mapping[Name, Pulls], whole: Sequence[Tensor]) -> list[Entry]:
        """The second pass, and its gradient.

        Args:
            pulls: The gradients for the vectors of contrasts, by name.
            whole: losses that are learned as they are.
        """
        if self.output is None:
            restore_random_state(self.random, self.device)
            self.output = self._read(self.update.model)
        own = self._weigh(together.drop_contrasts(self.output))
        parts = [*whole, *([] if own is None else [own])]
        for name, contrast in together.find_contrasts(self.batch, self.output).items():
            for vectors, pull in pulls.get(name, {}).items():
                parts.append((contrast.vectors[vectors] * pull).sum())
        self.output = None
        # other processes may have a gradient here, and wait for this one
        nothing = torch.zeros((), device=self.device, requires_grad=True)
        loss = torch.stack(parts).sum() if parts else nothing
        self._backward(self.update.precision.scale(loss), final=True)
        return self.entries

    def learn_around(self, regulariser: Regulariser) -> list[Entry]:
        """The passes and gradients of a regulariser; one pass alone where nothing is counted."""
        update, own = self.update, self.update.objective.counts(self.batch)
        live = {name for name in own if self.counts[f"term/{name}"]}
        if not (live.intersection(update.losses) if update.losses else live):
            return self.learn()
        passes = Passes(
            table=update.model.backbone.token_embedding,
            forward=partial(self._read_around, regulariser.question),
            backward=self._backward,
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

    def _read_around(
        self, question: Question | None, predict: bool
    ) -> tuple[Tensor, Predictions | None]:
        """One of several passes; the first is logged and remembered."""
        once: Any = Once(self.update.model) if predict else self.update.model
        loss, predictions = self._forward(once), None
        if predict and question is not None:
            with self.update.precision.autocast():
                predictions = record_model(once, self.batch, question, frozenset({LOGITS}))
        assert loss is not None
        return loss, predictions

    def _forward(self, model: Any) -> Tensor | None:
        """The loss of one pass, as the update counts it; None where no term has a gradient."""
        first, output = not self.entries, self._read(model)
        loss = self._weigh(output)
        if first:
            self._keep(output)
            self._note(output, loss)
        return loss

    def _keep(self, output: Output) -> None:
        """Keep the state that the next micro-batch of these rows begins with."""
        if not self.batch.spare:
            self.update.memory.keep(self.slot, output.state)

    def _read(self, model: Any) -> Output:
        """The output of the objective in one pass."""
        update = self.update
        with update.precision.autocast():
            output: Output = update.run(model, self.batch, self.state)
        if uncounted := [name for name in output.terms if f"term/{name}" not in self.counts]:
            raise refuse_uncounted(update.objective, self.batch, uncounted)
        return output

    def _weigh(self, output: Output) -> Tensor | None:
        """The loss of all terms, as the update counts them."""
        update = self.update
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
