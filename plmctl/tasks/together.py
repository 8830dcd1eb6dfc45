"""Rows of several tasks in one pass of the backbone that their models have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import Batch, Rows, Seq
from plmctl.models.base import Hidden, Model, Once
from plmctl.nn.peft.routed import Routes
from plmctl.tasks import batches
from plmctl.tasks.inference import store
from plmctl.tasks.task import Task

Member = tuple[Task, Model]  # with heads of its own, and the common backbone
HIDDEN = frozenset({"hidden"})


def ask(
    members: Sequence[Member],
    rows: Mapping[int, Rows],
    routes: Routes,
    *,
    batch_size: int,
    overhead: int | None = None,
) -> dict[int, dict[str, np.ndarray]]:
    """{the number of a task: its logits by name, in the order of its rows}.

    Batches are of rows of similar length, whatever their tasks; the rows of a task are neighbours.
    A task that asks the model for more than the states of its rows gets that in passes of its own.
    `overhead` is that of `batches.cut`.
    """
    units = {task: batches.BatchUnits.of(own) for task, own in rows.items()}
    outputs: dict[int, dict[str, np.ndarray]] = {task: {} for task in rows}
    mixes = any({"features", "output"} & {*model.heads} for _, model in members)
    record = HIDDEN if mixes else frozenset[str]()
    for chosen in _cut(units, batch_size, overhead):
        indices = {task: units[task].rows(own) for task, own in chosen.items()}
        device = next(members[0][1].backbone.parameters()).device
        made = {
            task: batches.collate(rows[task], index).to(device) for task, index in indices.items()
        }
        for alike in _group(made, members[0][1].backbone.needs):
            hidden = _run(members[0][1], alike, routes, record)
            for (task, batch), own in zip(alike.items(), hidden, strict=True):
                kind, model = members[task]
                once = Once(model)
                once.know(batch, record, own)
                routes.rows, routes.alone = None, task
                for name, values in kind.logits(once, batch).items():  # type: ignore[arg-type]
                    numbers = values.float().cpu().numpy()
                    store(outputs[task], name, indices[task], numbers, len(rows[task].key))
    return outputs


def _cut(
    units: Mapping[int, batches.BatchUnits], batch_size: int, overhead: int | None
) -> Iterator[dict[int, np.ndarray]]:
    """{task: its units} of each batch, the longest first."""
    task = np.concatenate([np.full(len(own.first), number) for number, own in units.items()])
    place = np.concatenate([np.arange(len(own.first)) for own in units.values()])
    length = np.concatenate([own.length for own in units.values()])
    order = np.argsort(-length, kind="stable")
    for part in batches.cut(length[order], batch_size, overhead):
        chosen = order[part]
        yield {
            number: place[chosen][task[chosen] == number]
            for number in units
            if (task[chosen] == number).any()
        }


def _group(made: Mapping[int, Batch], needs: frozenset[str]) -> list[dict[int, Batch]]:
    """Batches with the same sequences and tracks, which can be one; each alone if the backbone
    reads more than these.
    """
    groups: dict[object, dict[int, Batch]] = {}
    if any(name.startswith(("spans.", "values.", "labels.")) for name in needs):
        return [{task: batch} for task, batch in made.items()]
    for task, batch in made.items():
        kind = tuple((name, *sorted(seq.tracks)) for name, seq in sorted(batch.seqs.items()))
        groups.setdefault(kind, {})[task] = batch
    return list(groups.values())


def _run(
    model: Model, made: Mapping[int, Batch], routes: Routes, record: frozenset[str]
) -> list[Hidden]:
    """The backbone's states of each batch, in one pass."""
    places, start = [], 0
    for task, batch in made.items():
        places.append((task, slice(start, start + len(batch.key))))
        start += len(batch.key)
    routes.rows = places
    hidden = model(_join(list(made.values())), record=record)
    return [
        _select(hidden, batch, rows) for batch, (_, rows) in zip(made.values(), places, strict=True)
    ]


def _join(parts: Sequence[Batch]) -> Batch:
    """One batch of the sequences of several, padded to the longest."""
    if len(parts) == 1:
        return parts[0]
    seqs = {name: _join_seqs([part.seqs[name] for part in parts]) for name in parts[0].seqs}
    return Batch(torch.cat([part.key for part in parts]), seqs)


def _join_seqs(parts: Sequence[Seq]) -> Seq:
    longest = max(part.ids.shape[1] for part in parts)
    tracks = {
        name: torch.cat([_pad(part.tracks[name], longest) for part in parts])
        for name in parts[0].tracks
    }
    return replace(
        parts[0],
        ids=torch.cat([_pad(part.ids, longest) for part in parts]),
        length=torch.cat([part.length for part in parts]),
        tracks=tracks,
        full=all(part.full and part.ids.shape[1] == longest for part in parts),
    )


def _pad(x: Tensor, length: int) -> Tensor:
    """[n, T, ...] -> [n, length, ...]."""
    missing = length - x.shape[1]
    return x if not missing else F.pad(x, (0, 0) * (x.dim() - 2) + (0, missing))


def _select(hidden: Hidden, batch: Batch, rows: slice) -> Hidden:
    """The backbone's states of these rows, equal to those of a pass of them alone."""
    written = batch.seqs.get("target") or next(iter(batch.seqs.values()))
    length = written.ids.shape[1]
    recorded = {
        name: [state[rows, :length] for state in states] for name, states in hidden.recorded.items()
    }
    return Hidden(hidden.last[rows, :length], recorded=recorded)
