"""Several tasks of one model at once: whose batch comes next, and the loss of a second one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from plmctl.core.batch import Batch
from plmctl.core.draws import Draws
from plmctl.core.errors import DataError
from plmctl.core.values import Whole, fit
from plmctl.models.base import Hidden, Model
from plmctl.nn.recorder import NONE, Record
from plmctl.objectives.base import Objective, Output
from plmctl.tasks.batches import Batches
from plmctl.tasks.mixing.base import Mixing
from plmctl.tasks.task import Task

MAIN = "text"  # the source of the batches of the run's own task, as of a run without others


def side_name(task: str, name: str) -> str:
    """The name of a head or a loss of a side task in the model and the log."""
    return f"{task}_{name}"


class TaskBatches:
    """Endless updates, each of one task alone, in an order that is drawn anew for every epoch.

    A task with fewer updates in an epoch than batches goes on in the next one, so that it reads all
    of its examples. One with more begins anew.

    Args:
        members: The tasks by the `source` of their batches.
        mixing: The rule for the number of updates of each in an epoch.
        seed: The seed of the order.
    """

    def __init__(self, members: Mapping[str, Batches], mixing: Mixing, *, seed: int) -> None:
        self.members, self.seed = dict(members), seed
        self.shares = mixing.share_out({n: b.updates_per_epoch for n, b in self.members.items()})
        self.waited = 0.0  # nothing is read from a disk here
        self._update = 0
        self._epoch, self._order = -1, list[str]()

    @property
    def updates_per_epoch(self) -> int:
        """The updates of all tasks in an epoch."""
        return sum(self.shares.values())

    def _plan(self, epoch: int) -> list[str]:
        """Whose turn each update of an epoch is."""
        if epoch != self._epoch:
            turns = [name for name, count in self.shares.items() for _ in range(count)]
            words = Draws(self.seed, epoch).words(np.arange(len(turns)), "tasks", 1)
            self._order = [turns[place] for place in np.argsort(words[:, 0], kind="stable")]
            self._epoch = epoch
        return self._order

    def __iter__(self) -> Iterator[list[Batch]]:
        return self

    def __next__(self) -> list[Batch]:
        epoch, number = divmod(self._update, self.updates_per_epoch)
        name = self._plan(epoch)[number]
        self._update += 1
        return [replace(batch, source=name) for batch in next(self.members[name])]

    def state_dict(self) -> dict[str, Any]:
        """The number of updates of all tasks, and the state of each."""
        inner = {name: batches.state_dict() for name, batches in self.members.items()}
        return {"updates": self._update, "tasks": inner, "shares": dict(self.shares)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the state was taken; DataError if the tasks or their rows are others."""
        if state.get("shares") != self.shares:
            raise DataError(
                f"the checkpoint was reading other tasks: {state.get('shares')} updates of each in"
                f" an epoch, now {self.shares}",
                fix="resume with the same task, `beside` and `mixing`, or start a new run",
            )
        for name, batches in self.members.items():
            batches.load_state_dict(state["tasks"][name])
        self._update = fit(state["updates"], Whole)

    def close(self) -> None:
        """Nothing runs in the background."""


@dataclass(frozen=True)
class SideTask:
    """A side task, which is trained with the run's own.

    Args:
        name: The beginning of the names of its heads and losses, and the source of its batches.
        task: The task itself.
        heads: {the name that the task knows a head by: its name in the whole model}.
        weight: The weight of its loss.
    """

    name: str
    task: Task
    heads: Mapping[str, str]
    weight: float = 1.0

    def view(self, model: Model) -> Model:
        """The model as this task sees it: the same backbone, its own heads under their own
        names.
        """
        heads = {own: model.heads[name] for own, name in self.heads.items()}
        seen = Model(backbone=model.backbone, heads=heads)
        seen.methods = model.methods
        return seen


class OwnHeads:
    """The model of an update as a side task sees it. Passes are those of the model itself, heads
    have the names that the task knows.
    """

    def __init__(self, model: Model, heads: Mapping[str, str]) -> None:
        self.model, self.backbone = model, model.backbone
        self.heads = {own: model.heads[name] for own, name in heads.items()}

    def __call__(self, batch: Batch, state: Any = None, record: Record = NONE) -> Hidden:
        return cast(Hidden, self.model(batch, state, record))


class SideLoss(Objective):
    """The loss of a side task, whose terms and logs have its name in front."""

    def __init__(self, side: SideTask) -> None:
        super().__init__()
        self.side, self.task = side, side.task
        facts = side.task.facts
        self.facts = replace(
            facts,
            heads=frozenset(side.heads.get(name, name) for name in facts.heads),
            terms=frozenset(side_name(side.name, term) for term in facts.terms),
        )
        self.fields = side.task.fields

    def counts(self, batch: Batch) -> dict[str, int]:
        counts = self.task.counts(batch)
        return {side_name(self.side.name, term): count for term, count in counts.items()}

    def forward(self, model: Model, batch: Batch, state: Any = None) -> Output:
        seen: Any = OwnHeads(model, self.side.heads)
        out: Output = self.task(seen, batch, state)
        return out.change(self._rename)

    def _rename(self, out: Output) -> Output:
        terms = {side_name(self.side.name, term): value for term, value in out.terms.items()}
        logs = {}
        for name, value in out.logs.items():
            group, slash, last = name.rpartition("/")
            logs[f"{group}{slash}{side_name(self.side.name, last)}"] = value
        return replace(out, terms=terms, logs=logs)
