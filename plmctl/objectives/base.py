"""The base of every objective: totals by name, whose counts are known before the first backward."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.optim import Optimizer

from plmctl.core.batch import Batch, Rows
from plmctl.core.fields import Field
from plmctl.core.parts import base_of
from plmctl.models.base import Model, Once
from plmctl.objectives.gradient_disentangled import Disentanglement
from plmctl.objectives.phases import Phase


@dataclass(frozen=True)
class Term:
    """A summed loss. The trainer divides `total` by the term's count over the whole update, then
    multiplies by `weight`.
    """

    total: Tensor  # [] sum over this micro-batch, fp32
    weight: float = 1.0
    # summands of a contrast, which no micro-batch alone knows
    count: int | Tensor | None = None


@dataclass(frozen=True)
class Output:
    """The terms of one micro-batch.

    Args:
        terms: summed losses by name, those of `Objective.counts`.
        logs: `{name: (total, count)}` to be logged as means, such as "acc/mlm".
        state: the memory that the model carries into the next batch; None without one.
        contrasts: The names of the terms and logs that compare rows with others.
        answers: The right answers [P], or IGNORE, of terms and accuracies with few kinds of them,
            by name. Validation counts the kinds: the most frequent one is the best constant answer.
    """

    terms: Mapping[str, Term]
    # name -> (total, count), e.g. "acc/mlm"
    logs: Mapping[str, tuple[Tensor, int | Tensor]] = field(default_factory=dict)
    state: Any = None
    contrasts: Mapping[str, Contrast] = field(default_factory=dict)
    answers: Mapping[str, Tensor] = field(default_factory=dict)

    def change(self, change: Callable[[Output], Output]) -> Output:
        """`change(self)`; what its contrasts give is changed in the same way."""
        contrasts = {name: contrast.change(change) for name, contrast in self.contrasts.items()}
        return replace(change(self), contrasts=contrasts)


@dataclass(frozen=True)
class Contrast:
    """A loss that compares rows with each other, so that it needs all rows of an update, in
    whatever micro-batches and processes they are.

    Args:
        compare: (vectors, others) of any rows, in their order -> terms, each with its `count`, and
            logs. It draws nothing.
        vectors: The tensors to compare by name, [n, ...] of the rows of a micro-batch, with a
            gradient.
        beside: Other tensors to compare by name, [n', ...], without a gradient; short rows are
            filled with IGNORE.
        numbers: Further tensors by name, [n'], which number parts of the micro-batch from 0; the
            numbers of the next micro-batch continue them.
    """

    compare: Callable[[Mapping[str, Tensor], Mapping[str, Tensor]], Output]
    vectors: Mapping[str, Tensor]
    beside: Mapping[str, Tensor] = field(default_factory=dict)
    numbers: Mapping[str, Tensor] = field(default_factory=dict)

    @cached_property
    def alone(self) -> Output:
        """The output if the micro-batch is all of the update."""
        return self.compare(self.vectors, {**self.beside, **self.numbers})

    def output(self, name: str, state: Any = None) -> Output:
        """`alone`, with the contrast by this name."""
        return replace(self.alone, state=state, contrasts={name: self})

    def change(self, change: Callable[[Output], Output]) -> Contrast:
        """The contrast of which everything that it gives is changed."""

        def compare(vectors: Mapping[str, Tensor], beside: Mapping[str, Tensor]) -> Output:
            return change(self.compare(vectors, beside))

        return replace(self, compare=compare)


@dataclass(frozen=True)
class Verdicts:
    """Rows whose tokens a model takes for replaced ones, or for those of the text.

    Args:
        batch: The rows as the model reads them.
        replaced: [B, T] bool, whether a token differs from the text.
        shares: [B, T] the probability of that by the model; NaN for tokens without a verdict.
        original: [B, T] the tokens of the text; None where the batch does not have them.
    """

    batch: Batch
    replaced: Tensor
    shares: Tensor
    original: Tensor | None = None


@dataclass(frozen=True)
class Facts:
    """The facts about an objective that are known before it reads a batch.

    Args:
        needs: fields of the batch that it cannot do without.
        uses: The fields that it reads if a batch has them.
        heads: names that it looks up in `model.heads`.
        terms: names of its losses, those of `counts`.
        label_heads: {label that the format numbers (`Format.meanings`): the head that has one
            output for each number}.
        at_every_token: heads that are given every position of a row, for the count of FLOPs.
        least_rows: rows of an update that it compares.
        contrasts: its outputs may have `contrasts`.
        shares: it has something to `share` between the rows of an update.
        asks_next: The sequence in which every state predicts the next token, so no state may have
            seen it.
        asks_row: Whether one token predicts a label of its whole row.
        reads_text: `labels` takes labels from the text, which no noise may have changed.
        heads_learn: Whether training changes the predictions of the heads, so that their scores
            show which checkpoint is best.
        helpers: models that read every batch without being trained, each with the heads that are
            used: for the count of FLOPs.
        generator_terms: The terms that train a generator of its own. It is not kept, and these
            losses are none of the model.
        asked_at: {head: the targets at whose positions it predicts}, if not all heads predict at
            all targets in `needs`.
        measures: The names of logged values other than losses and accuracies.
        phases: The phases of a run; empty: it trains everything from the first update to the last.
    """

    needs: frozenset[str] = frozenset()
    uses: frozenset[str] = frozenset()
    heads: frozenset[str] = frozenset()
    terms: frozenset[str] = frozenset()
    label_heads: Mapping[str, str] = field(default_factory=dict)
    at_every_token: frozenset[str] = frozenset()
    least_rows: int = 1
    contrasts: bool = False
    shares: bool = False
    asks_next: str | None = None
    asks_row: bool = False
    reads_text: bool = False
    heads_learn: bool = True
    helpers: tuple[tuple[Model, frozenset[str]], ...] = ()
    generator_terms: frozenset[str] = frozenset()
    asked_at: Mapping[str, frozenset[str]] = field(default_factory=dict)
    measures: frozenset[str] = frozenset()
    phases: tuple[Phase, ...] = ()

    def targets_of(self, head: str) -> frozenset[str]:
        """The names of the targets at whose positions a head predicts; without an entry in
        `asked_at` all targets that the objective needs.
        """
        needed = frozenset(
            name.removeprefix("targets.") for name in self.needs if name.startswith("targets.")
        )
        return self.asked_at.get(head) or needed

    @classmethod
    def of_all(cls, parts: Sequence[Facts]) -> Facts:
        """The facts of an objective that trains all of `parts`; facts that only a single part can
        state (`asks_next`, `asks_row`, `reads_text`) are left to the parts.
        """
        return cls(
            needs=frozenset().union(*(part.needs for part in parts)),
            uses=frozenset().union(*(part.uses for part in parts)),
            heads=frozenset().union(*(part.heads for part in parts)),
            terms=frozenset().union(*(part.terms for part in parts)),
            label_heads={label: head for part in parts for label, head in part.label_heads.items()},
            at_every_token=frozenset().union(*(part.at_every_token for part in parts)),
            least_rows=max((part.least_rows for part in parts), default=1),
            contrasts=any(part.contrasts for part in parts),
            shares=any(part.shares for part in parts),
            heads_learn=all(part.heads_learn for part in parts),
            helpers=tuple(helper for part in parts for helper in part.helpers),
            generator_terms=frozenset().union(*(part.generator_terms for part in parts)),
            asked_at={
                head: frozenset().union(
                    *(part.targets_of(head) for part in parts if head in part.heads)
                )
                for head in sorted(frozenset().union(*(part.heads for part in parts)))
            },
            measures=frozenset().union(*(part.measures for part in parts)),
            phases=next((part.phases for part in parts if part.phases), ()),
        )

    def charged(self, costs: Sequence[ModelCost]) -> Facts:
        """These facts with the terms and the measures of a model's own costs."""
        return replace(
            self,
            terms=self.terms.union(*(cost.terms for cost in costs)),
            measures=self.measures.union(*(cost.measures for cost in costs)),
        )


class ModelCost(ABC):
    """A loss that a model has of its own, whatever it is trained for."""

    @property
    @abstractmethod
    def terms(self) -> frozenset[str]:
        """The names of its terms."""

    @property
    @abstractmethod
    def measures(self) -> frozenset[str]:
        """The names of its further logged values."""

    @abstractmethod
    def counts(self, batch: Batch) -> dict[str, int]:
        """As of an objective."""

    @abstractmethod
    def add(self, out: Output, once: Once, batch: Batch) -> Output:
        """`out`, with its terms and logs.

        Args:
            out: The objective's result for the batch.
            once: the model, and the passes that the objective has run.
            batch: a micro-batch.
        """

    def states(self) -> list[nn.Module]:
        """Modules whose tensors are saved with the run."""
        return []

    def before_step(self, share: float) -> None:  # noqa: B027
        """As of an objective."""

    def after_step(self, step: int) -> None:  # noqa: B027
        """Called after every optimizer step."""


@base_of("objective")
class Objective(nn.Module):
    """One published training objective. It owns what only training needs (a generator, a
    projection); heads belong to the model.

    Tools read only `facts` of an objective. A class states them; a constructor adds facts that
    depend on settings with `self.facts = replace(self.facts, ...)`; a wrapper derives its facts
    from those of the wrapped objective. `fields`: the fields that it introduces.
    """

    facts: Facts = Facts()
    # whether it runs a model more often for some batches than for others, or has gradients of
    # records of cells. Then a process with a share of their weights must have them whole
    holds_cells: bool = False
    # whether it reads or changes weights otherwise, and does not know those of which processes
    # have a share each
    whole_weights: bool = False
    fields: Mapping[str, Field] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """TypeError for a fact outside of `facts`, where nothing would read it."""
        super().__init_subclass__(**kwargs)
        known = {fact.name for fact in dataclasses.fields(cls.facts)}
        if beside := sorted(known & vars(cls).keys()):
            kind = type(cls.facts).__name__
            raise TypeError(f"{cls.__name__}: state {', '.join(beside)} in `facts = {kind}(...)`")

    @property
    def unfinished(self) -> bool:
        """Whether the model is not yet what the run is to make, so that no checkpoint is the best
        one.
        """
        return False

    def figures(self) -> dict[str, float]:
        """Numbers that describe the model now, for each line of the log."""
        return {}

    def own_rates(self) -> dict[nn.Parameter, float]:
        """The peak rates of parameters that do not learn at the rate of the optimizer."""
        return {}

    def labels(self, rows: Rows) -> dict[str, np.ndarray]:
        """Targets `{name: [n, T]}` that follow from the row alone (next tokens, say); runs in
        the loader, numpy only.
        """
        return {}

    def counts(self, batch: Batch) -> dict[str, int]:
        """{term name: how many summands its total has}: a function of the batch alone."""
        raise NotImplementedError(type(self).__name__)

    def share(self, batch: Batch) -> dict[str, Tensor]:
        """{name: [n, ...]} what must be known of these rows before other rows of the update are
        read: there, `Batch.shared` has that of all rows. By default, what parts inside share.
        """
        inside = [part for part in self.modules() if isinstance(part, Objective)]
        parts = [part.share(batch) for part in inside if type(part).share is not Objective.share]
        return {name: shared for part in parts for name, shared in part.items()}

    def forward(self, model: Model, batch: Batch, state: Any = None) -> Output:
        """The summed losses of a micro-batch.

        Args:
            model: backbone and heads.
            batch: a micro-batch, with the fields that `facts.needs` names.
            state: the memory that the previous batch left; None at the start.
        """
        raise NotImplementedError(type(self).__name__)

    def judge_tokens(self, model: Model, batch: Batch) -> Verdicts | None:
        """The verdicts of the model on the tokens of a batch; None where it does not look for
        replaced ones.
        """
        return None

    def before_step(self, model: Model, optimizer: Optimizer, share: float) -> None:
        """Called when the gradient and the rates of an update are computed, before the update is
        made.

        Args:
            share: The share of the run that is done with this update.
        """

    def exchange(self, model: Model) -> None:
        """Exchange the trained weights with the weights that are evaluated and saved, if these
        differ; the second call undoes it. By default, the tables that a generator shares without
        gradients.
        """
        for part in self.modules():
            if isinstance(part, Disentanglement):
                part.exchange()

    def after_step(self, model: Model, step: int) -> None:
        """Called after every optimizer step (clamping of spans, moving averages)."""
