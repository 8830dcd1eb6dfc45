"""Several objectives as one: their terms side by side, each with its weight, each on its own
data source if it says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.optim import Optimizer

from plmctl.core.batch import Batch, Rows
from plmctl.core.errors import ConfigError
from plmctl.core.fields import glossary
from plmctl.core.unwritten import place_of
from plmctl.models.base import Model, Once
from plmctl.objectives.base import Contrast, Facts, ModelCost, Objective, Output, Term, Verdicts


@dataclass(frozen=True)
class Entry:
    """An objective of a mix.

    Args:
        objective: The objective to train.
        weight: The weight of its terms.
        on: the data source whose batches it reads; None for every batch.
    """

    objective: Objective
    weight: float = 1.0
    on: str | None = None  # the data source it looks at; None = every batch


class Mix(Objective):
    """`sum_i weight_i * mean_i`, the terms of every entry whose source matches the batch.

    All entries that ask for the same batch share one forward pass (`Once`). `costs`: what the model
    costs of its own.
    """

    def __init__(self, entries: Mapping[str, Entry], costs: Sequence[ModelCost] = ()) -> None:
        super().__init__()
        self.entries = dict(entries)
        self.parts = nn.ModuleDict({name: entry.objective for name, entry in entries.items()})
        self.fields = glossary(entry.objective for entry in entries.values())
        self.costs = list(costs) if entries else []
        self.states = nn.ModuleList(state for cost in self.costs for state in cost.states())
        facts = Facts.of_all([entry.objective.facts for entry in entries.values()])
        self.facts = facts.charged(self.costs)

    def _active(self, batch: Batch) -> dict[str, Entry]:
        return {
            name: entry for name, entry in self.entries.items() if entry.on in (None, batch.source)
        }

    def _charged(self, batch: Batch) -> Sequence[ModelCost]:
        """The costs of the model, where an entry reads the batch."""
        return self.costs if self._active(batch) else ()

    def labels(self, rows: Rows) -> dict[str, np.ndarray]:
        labels: dict[str, np.ndarray] = {}
        for entry in self.entries.values():
            if entry.on in (None, rows.source):
                labels |= entry.objective.labels(rows)
        return labels

    def counts(self, batch: Batch) -> dict[str, int]:
        counts: dict[str, int] = {}
        for entry in self._active(batch).values():
            counts |= entry.objective.counts(batch)
        for cost in self._charged(batch):
            counts |= cost.counts(batch)
        return counts

    def forward(self, model: Model, batch: Batch, state: Any = None) -> Output:
        once = Once(model)
        terms: dict[str, Term] = {}
        logs: dict[str, Any] = {}
        contrasts: dict[str, Contrast] = {}
        answers: dict[str, Tensor] = {}
        state_out = None
        for entry in self._active(batch).values():
            out = weigh(entry.objective(once, batch, state), entry.weight)
            terms |= out.terms
            logs |= out.logs
            contrasts |= out.contrasts
            answers |= out.answers
            state_out = out.state if out.state is not None else state_out
        out = Output(terms, logs, state_out, contrasts, answers)
        for cost in self._charged(batch):
            out = cost.add(out, once, batch)
        return out

    def figures(self) -> dict[str, float]:
        own = [entry.objective.figures() for entry in self.entries.values()]
        return {name: value for figures in own for name, value in figures.items()}

    def judge_tokens(self, model: Model, batch: Batch) -> Verdicts | None:
        found = (
            entry.objective.judge_tokens(model, batch) for entry in self._active(batch).values()
        )
        return next((judged for judged in found if judged is not None), None)

    def before_step(self, model: Model, optimizer: Optimizer, share: float) -> None:
        for entry in self.entries.values():
            entry.objective.before_step(model, optimizer, share)
        for cost in self.costs:
            cost.before_step(share)

    def after_step(self, model: Model, step: int) -> None:
        for entry in self.entries.values():
            entry.objective.after_step(model, step)
        for cost in self.costs:
            cost.after_step(step)


def weigh(out: Output, weight: float) -> Output:
    """`out` with the weights of its terms multiplied."""

    def change(out: Output) -> Output:
        terms = {
            name: replace(term, weight=term.weight * weight) for name, term in out.terms.items()
        }
        return replace(out, terms=terms)

    return out.change(change)


def refuse_uncounted(objective: Objective, batch: Batch, terms: Sequence[str]) -> ConfigError:
    """The mistake of an objective, or of one in its mix, whose `forward` gives losses that its
    `counts` does not name.
    """
    mixes = [part for part in objective.modules() if isinstance(part, Mix)]
    named = {name: entry.objective for mix in mixes for name, entry in mix.entries.items()}
    unlike = (
        name for name, part in named.items() if set(part.counts(batch)) != set(part.facts.terms)
    )
    name = next(unlike, next(iter(named), ""))
    part = named.get(name, objective)
    allowed = (
        f"the terms of {place_of(type(part))} differ: `forward` gives {', '.join(terms)},"
        f" `counts` {', '.join(part.counts(batch)) or 'none'},"
        f" `facts.terms` {', '.join(sorted(part.facts.terms)) or 'none'}"
    )
    fix = "the same names in all three"
    return ConfigError(f"objective.{name}" if name else "task", ..., allowed, fix=fix)
