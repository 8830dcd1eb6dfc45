"""The positions where the logits of student and teacher are compared: those of the labels of a task
or an objective.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Literal

from torch import Tensor

from plmctl.core.batch import IGNORE, Batch
from plmctl.distill.base import Logits, Question, count_tokens, find_written
from plmctl.heads.base import WORDS, about_of
from plmctl.models.base import Model
from plmctl.objectives.base import Objective
from plmctl.tasks.task import Task

Positions = Literal["predicted", "all"]


class OfTask:
    """The logits of a fine-tuning task, at every example (or word, or end of a span) with a
    label.
    """

    def __init__(self, task: Task) -> None:
        self.task, self.heads, self.chooses = task, frozenset({task.facts.head}), task.facts.chooses

    @property
    def names(self) -> Collection[str]:
        """The names of the task's logits."""
        return self.task.facts.logit_names

    def counts(self, batch: Batch) -> dict[str, int]:
        """The labels of the batch, for each of the task's logits."""
        return dict.fromkeys(self.task.facts.logit_names, batch.counts[self.task.facts.label_name])

    def logits(self, model: Model, batch: Batch) -> dict[str, Logits]:
        """The logits of the task's head, one position for each example, word or end of a span."""
        flat = self.task.flatten_logits(self.task.logits(model, batch), batch)
        return {name: Logits(logits, labelled) for name, (logits, labelled) in flat.items()}


class OfTokens:
    """The logits of language-model heads: at `targets.<head>`, or with `positions="all"` at every
    real token.

    `sizes`: how many tokens count, those of the student; tables of published models have more rows.
    """

    chooses = True

    def __init__(self, sizes: Mapping[str, int], *, writes: str, positions: Positions) -> None:
        self.sizes, self.writes, self.positions = dict(sizes), writes, positions
        self.heads = frozenset(sizes)

    @property
    def names(self) -> Collection[str]:
        """The names of the heads."""
        return self.heads

    def counts(self, batch: Batch) -> dict[str, int]:
        """Targets of each head, or real tokens with `positions="all"`."""
        names = [name for name in self.sizes if name in batch.targets]
        return {
            name: batch.counts[name]
            if self.positions == "predicted"
            else count_tokens(self.writes, batch)
            for name in names
        }

    def logits(self, model: Model, batch: Batch) -> dict[str, Logits]:
        """The logits of each head whose targets are in the batch."""
        hidden, by_name = model(batch), {}
        for name in [name for name in self.sizes if name in batch.targets]:
            head = partial(_first, model.heads[name], self.sizes[name])
            if self.positions == "predicted":
                target = batch.targets[name]
                by_name[name] = Logits(
                    hidden.gather_words(target.index), target.ids != IGNORE, head
                )
            else:
                by_name[name] = Logits(
                    hidden.words.flatten(0, 1),
                    find_written(self.writes, batch).real.flatten(),
                    head,
                )
        return by_name


def _first(head: Callable[[Tensor], Tensor], size: int, features: Tensor) -> Tensor:
    return head(features)[..., :size]


class Nothing:
    """No logits, for an objective without heads for tokens or labels."""

    heads: frozenset[str] = frozenset()
    chooses = False
    names: Collection[str] = ()

    def counts(self, batch: Batch) -> dict[str, int]:
        """Empty."""
        return {}

    def logits(self, model: Model, batch: Batch) -> dict[str, Logits]:
        """Empty."""
        return {}


def make_question(objective: Objective, model: Model, positions: Positions) -> Question:
    """The logits of `objective`, if it has one softmax at known positions."""
    if isinstance(objective, Task) and objective.facts.has_classes:
        return OfTask(objective)
    sizes = {
        name: int(model.heads[name].vocab_size)  # type: ignore[arg-type]
        for name in find_token_heads(objective, model)
    }
    return (
        OfTokens(sizes, writes=model.backbone.writes, positions=positions) if sizes else Nothing()
    )


def find_token_heads(objective: Objective, model: Model) -> list[str]:
    """The language-model heads that `objective` reads at targets of the same name, from the last
    states of the backbone.
    """
    with_targets = [
        name for name in sorted(objective.facts.heads) if f"targets.{name}" in objective.facts.needs
    ]
    return [
        name
        for name in with_targets
        if about_of(model.heads[name]) in WORDS and "query" not in model.backbone.streams
    ]
