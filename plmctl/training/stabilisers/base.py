"""The base of stabilisers, and the objective of a run that has some."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import base_of
from plmctl.models.base import Model, Once
from plmctl.objectives.base import Objective, Output
from plmctl.objectives.wrapper import Wrapper
from plmctl.runtime.whole_numbers import TrainedRanges
from plmctl.training.optim.shards import share_of

UNFROZEN = "leave peft and train.frozen out"


@dataclass(frozen=True)
class Beginning:
    """The facts that a stabiliser receives before the first update.

    Args:
        model: with its first weights; those of the pretrained model, and new ones of heads.
        task: The trained task, before anything is added to it.
        pretrained: the names of the parameters that a checkpoint brought.
        resumed: the run goes on: weights, and what was saved of the stabiliser, are loaded later.
        passes: one epoch of updates, the micro-batches of each, as often as it is called.
    """

    model: Model
    task: Objective
    pretrained: frozenset[str]
    seed: int
    resumed: bool
    passes: Callable[[], Iterator[Sequence[Batch]]]


@base_of("stabiliser")
class Stabiliser(nn.Module):
    """Changes how a model is fine-tuned, not what it is: without it, the model is the same.

    Its buffers are saved with the run, so that a resumed one goes on bit for bit. `whole_weights`:
    it reads or changes weights, and does not know those of which processes have a share each.
    `averages`: what is evaluated and saved are other weights than the trained ones, which only one
    may choose. `keeps_zeros`: these are 0 where the trained ones are.
    `stays_near`: it needs the weights of a pretrained model. `rewrites`: weights are others while a
    batch is read, so that no pass may run again later, and none is compiled. `of_one_task`: it
    calls the task on each batch, so no other task may be trained with it. `needs_dropout`: it
    compares passes that drop other values. `fixed_at`: the share of the run after which weights are
    0 only where they were 0 then; None: they may become 0 at any time.
    """

    whole_weights: bool = True
    averages: bool = False
    keeps_zeros: bool = False
    stays_near: bool = False
    rewrites: bool = False
    of_one_task: bool = False
    needs_dropout: bool = False
    fixed_at: float | None = None
    terms: frozenset[str] = frozenset()  # its terms of the loss

    @property
    def unfinished(self) -> bool:
        """As of an objective."""
        return False

    def figures(self) -> dict[str, float]:
        """As of an objective; the log puts its name behind each."""
        return {}

    def own_rates(self) -> dict[nn.Parameter, float]:
        """As of an objective."""
        return {}

    def begin(self, given: Beginning) -> None:
        """Take up a model, once, before anything is trained or loaded.

        Raises:
            ConfigError: The model or the task is none that it serves.
        """

    def find_ranges(self, state: Mapping[str, Tensor]) -> TrainedRanges | None:
        """The ranges of the inputs of linear maps in its saved state; None for a stabiliser without
        any.
        """
        return None

    def reading(self, model: Model) -> AbstractContextManager[Any]:
        """The time in which the objective reads a batch in training."""
        return contextlib.nullcontext()

    def counts(self, task: Objective, batch: Batch) -> dict[str, int]:
        """Its terms of the loss, as of an objective."""
        return {}

    def add(self, out: Output, again: Callable[[], Output], batch: Batch) -> Output:
        """`out` with its own terms; `again` reads the batch once more."""
        return out

    def before_step(self, model: Model, optimizer: Optimizer, share: float) -> None:
        """Called when the gradient and the rates of an update are computed.

        Args:
            share: The share of the run that is done with this update.
        """

    def after_step(self, model: Model, step: int) -> None:
        """Called after every update."""

    def exchange(self, model: Model) -> None:
        """Exchange the trained weights with the weights that are evaluated and saved."""


class Stabilised(Wrapper):
    """`objective`, with the stabilisers of a run, in their order."""

    def __init__(self, *, objective: Objective, parts: Mapping[str, Stabiliser]) -> None:
        super().__init__(objective)
        self.parts = nn.ModuleDict(parts)
        terms = objective.facts.terms.union(*(part.terms for part in self.each()))
        self.facts = replace(objective.facts, terms=terms)
        inner = isinstance(objective, Stabilised) and objective.rewrites
        self.rewrites: bool = inner or any(part.rewrites for part in self.each())

    def each(self) -> Iterator[Any]:
        """The stabilisers."""
        yield from self.parts.values()

    @property
    def unfinished(self) -> bool:
        return super().unfinished or any(part.unfinished for part in self.each())

    def figures(self) -> dict[str, float]:
        found = super().figures()
        for name, part in self.parts.items():
            own: Any = part
            found |= {f"{figure}/{name}": n for figure, n in own.figures().items()}
        return found

    def own_rates(self) -> dict[nn.Parameter, float]:
        rates = super().own_rates()
        for part in self.each():
            rates |= part.own_rates()
        return rates

    def counts(self, batch: Batch) -> dict[str, int]:
        counts = super().counts(batch)
        for part in self.each():
            counts = {**counts, **part.counts(self.objective, batch)}
        return counts

    def forward(self, model: Model, batch: Batch, state: Any = None) -> Output:
        def read(model: Model) -> Output:
            out: Output = self.objective(model, batch, state)
            return out

        if not self.training:
            return read(model)
        own = model.model if isinstance(model, Once) else model  # reads again, whatever is known
        with contextlib.ExitStack() as stack:
            for part in self.each():
                stack.enter_context(part.reading(model))
            out = read(model)
            for part in self.each():
                out = part.add(out, partial(read, own), batch)
        return out

    def before_step(self, model: Model, optimizer: Optimizer, share: float) -> None:
        super().before_step(model, optimizer, share)
        for part in self.each():
            part.before_step(model, optimizer, share)

    def after_step(self, model: Model, step: int) -> None:
        super().after_step(model, step)
        for part in self.each():
            part.after_step(model, step)

    def exchange(self, model: Model) -> None:
        super().exchange(model)
        for part in self.each():
            part.exchange(model)


def to_key(name: str) -> str:
    """The name of a tensor as that of a parameter or a buffer, which has no dots."""
    return name.replace(".", "/")


class KeptTensors(nn.Module):
    """Tensors by names with dots, saved as buffers."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            self.register_buffer(to_key(name), tensor.detach().clone())

    def divide(self, weights: Mapping[str, Tensor]) -> None:
        """Keep of each tensor the share that this process has of the weight of that name."""
        for name, weight in weights.items():
            kept = self._buffers.get(to_key(name))
            if kept is not None and kept.shape == weight.shape:
                self._buffers[to_key(name)] = share_of(kept, weight)

    def of(self, name: str) -> Tensor:
        """The tensor of this name."""
        return self.get_buffer(to_key(name))


class SavedNumber(nn.Module):
    """A number that is saved with the run. The device is read once, after the run is resumed."""

    def __init__(self) -> None:
        super().__init__()
        self.saved: Tensor
        self.register_buffer("saved", torch.zeros((), dtype=torch.float64))
        self._known: float | None = None

    @property
    def value(self) -> float:
        """The number."""
        if self._known is None:
            self._known = float(self.saved)
        return self._known

    def set(self, value: float) -> None:
        """Replace the number."""
        self._known = float(value)
        self.saved.fill_(value)


def check_stabilisers(parts: Mapping[str, Stabiliser], *, pretrained: bool) -> None:
    """Raise ConfigError for two that contradict each other, and for one that has nothing to stay
    near.
    """
    averaging = [name for name, part in parts.items() if part.averages]
    if len(averaging) > 1:
        allowed = f"one of {', '.join(averaging)}: each says which weights are evaluated and saved"
        fix = f"stabiliser=[{','.join(name for name in parts if name not in averaging[1:])}]"
        raise ConfigError("stabiliser", list(parts), allowed, fix=fix)
    for name, part in parts.items():
        if part.stays_near and not pretrained:
            allowed = "needs the weights of a pretrained model, which training stays near"
            raise ConfigError("stabiliser", name, allowed, fix="checkpoint=<a run>")


def merge_terms(out: Output, **terms: Any) -> Output:
    """`out` with further terms."""
    return replace(out, terms={**out.terms, **terms})
