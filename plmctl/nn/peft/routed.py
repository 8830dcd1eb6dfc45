"""The trained parts of several tasks in one model at once: each row of a batch meets the parts of
its own task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.attention.kernels.dense import Before
from plmctl.core.errors import UsageError
from plmctl.nn.cells.base import Cell, Prefixed
from plmctl.nn.env import Streams
from plmctl.nn.peft.base import Added, attach

MARK = "tasks"


@dataclass
class Routes:
    """The rows of the current batch by task: (number of the task, its rows), neighbours, first rows
    first; None: all rows belong to the task `alone`.
    """

    rows: Sequence[tuple[int, slice]] | None = None
    alone: int = 0

    def split(self, batch: int) -> Sequence[tuple[int, slice]]:
        """The tasks and their rows, of so many rows; UsageError if these are others."""
        if self.rows is None:
            return [(self.alone, slice(0, batch))]
        if batch != self.rows[-1][1].stop:
            what = f"a part of this model reads {batch} rows, and the batch has"
            what = f"{what} {self.rows[-1][1].stop}: several tasks cannot share it"
            raise UsageError(f"{what}\n  fix: ask each task alone: plmctl eval checkpoint=...")
        return self.rows


class Routed(Added):
    """For the rows of each task, what its own parts change, one after the other."""

    def __init__(self, routes: Routes, parts: Mapping[int, Sequence[Added]]) -> None:
        super().__init__()
        self.routes = routes
        self.parts = nn.ModuleDict({str(task): nn.ModuleList(own) for task, own in parts.items()})
        kinds = [type(part) for own in parts.values() for part in own]
        self.changes_input = any(kind.change_input is not Added.change_input for kind in kinds)

    def change_input(self, x: Any) -> Any:
        if not self.changes_input:
            return x
        before = [(task, x[rows]) for task, rows in self.routes.split(len(x))]
        after = []
        for task, part in before:
            for added in self._of(task):
                part = added.change_input(part)
            after.append(part)
        same = all(new is old for new, (_, old) in zip(after, before, strict=True))
        return x if same else torch.cat(after)

    def change(self, x: Any, y: Tensor) -> Tensor:
        parts = []
        for task, rows in self.routes.split(len(y)):
            part, own = y[rows], self._of(task)
            read = _take(x, rows) if own else x
            for added in own:
                part = added.change(read, part)
            parts.append(part)
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _of(self, task: int) -> Sequence[Any]:
        name = str(task)
        return list(self.parts[name].children()) if name in self.parts else []


class OwnModule(Added):
    """The result of a linear map or a norm with the weights of a task instead of those of the
    model. If only the bias is another, the difference is added.
    """

    def __init__(self, own: nn.Module, shared: nn.Module) -> None:
        super().__init__()
        self.own: nn.Module | None = own
        self.register_buffer("shift", None)
        if torch.equal(own.weight, shared.weight):  # type: ignore[arg-type]
            self.own, self.shift = None, own.bias - shared.bias  # type: ignore[operator]

    def change(self, x: Tensor, y: Tensor) -> Tensor:
        if self.own is not None:
            computed: Tensor = self.own.forward(x)  # without what was added to it
            return computed
        return y + self.shift.to(y.dtype)


class FixedPrefix(nn.Module):
    """Keys and values that a task has learned, as they are from now on."""

    def __init__(self, before: Before) -> None:
        super().__init__()
        self.register_buffer("keys", before.keys.detach().clone())
        self.register_buffer("values", before.values.detach().clone())

    def forward(self) -> Before:
        return Before(self.keys, self.values)  # type: ignore[arg-type]


class RoutedPrefix(nn.Module):
    """For each row the keys and values of its task's prefix, [B, H, P, D]; shorter ones are filled
    up, and what fills them is hidden.
    """

    def __init__(self, routes: Routes, parts: Mapping[int, nn.Module]) -> None:
        super().__init__()
        self.routes = routes
        self.parts = nn.ModuleDict({str(task): part for task, part in parts.items()})

    def forward(self) -> Before:
        rows = self.routes.rows or [(self.routes.alone, slice(0, 1))]
        made: list[Before | None] = [
            self.parts[str(task)]() if str(task) in self.parts else None for task, _ in rows
        ]
        none = next((before for before in made if before is not None), None)
        if none is None:
            none = next(iter(self.parts.values()))()
        none = Before(none.keys[:, :0], none.values[:, :0])
        own = [none if before is None else before for before in made]
        most = max(1, *(before.keys.shape[1] for before in own))
        counts = [place.stop - place.start for _, place in rows]
        there = torch.arange(most, device=none.keys.device)
        real = [there < before.keys.shape[1] for before in own]
        return Before(
            _spread([_fill(before.keys, most) for before in own], counts),
            _spread([_fill(before.values, most) for before in own], counts),
            _spread(real, counts),
        )


def _fill(x: Tensor, length: int) -> Tensor:
    """[H, P, D] -> [H, length, D]."""
    return F.pad(x, (0, 0, 0, length - x.shape[1]))


def _spread(parts: Sequence[Tensor], counts: Sequence[int]) -> Tensor:
    """[B, ...] each part for so many rows."""
    return torch.cat(
        [part.expand(count, *part.shape) for part, count in zip(parts, counts, strict=True)]
    )


def graft(shared: nn.Module, tuned: Sequence[nn.Module], routes: Routes) -> None:
    """Let `shared`, the backbone of a model, compute for the rows of task i what `tuned[i]`
    computes. `tuned[i]` is that backbone with methods; its parts and its own weights are taken
    over.

    Raises:
        UsageError: A task has trained weights that rows of a batch cannot have apart.
    """
    for name, owner in list(shared.named_modules()):
        parts: dict[int, list[Added]] = {}
        prefixes: dict[int, nn.Module] = {}
        for task, model in enumerate(tuned):
            own = model.get_submodule(name)
            _refuse_of_rows(own)
            found = [*_find_weights(name, own, owner), *_find_added(own)]
            if found:
                parts[task] = found
            if isinstance(own, Prefixed) and (prefix := own.find_prefix()) is not None:
                prefixes[task] = FixedPrefix(prefix())
        if parts:
            attach(owner, MARK, Routed(routes, parts))
        if prefixes:
            assert isinstance(owner, Prefixed)
            owner.take_prefix(RoutedPrefix(routes, prefixes))


def _refuse_of_rows(own: nn.Module) -> None:
    """UsageError for methods that change the length of rows, or the positions of their tokens: all
    rows of a batch have these in common; and for gates, which read the tokens of whole cells.
    """
    if isinstance(own, Cell) and own.facts.whole:
        what = "gates of methods (peft=[unipelt]) cannot be those of one row of a batch alone"
        raise UsageError(f"{what}\n  fix: ask this task alone: plmctl eval checkpoint=...")
    if getattr(own, "prompt", None) is not None or getattr(own, "offset", False):
        what = "prompts and shifted prefixes cannot be those of one row of a batch alone"
        raise UsageError(f"{what}\n  fix: ask this task alone: plmctl eval checkpoint=...")


def _find_added(own: nn.Module) -> Iterator[Added]:
    for part in own._modules.values():
        if isinstance(part, Added):
            part.settle()
            yield part


def _find_weights(name: str, own: nn.Module, shared: nn.Module) -> Iterator[Added]:
    """The computation of a module whose weights are others than those of the model."""
    before = dict(shared.named_parameters(recurse=False))
    changed = [
        key
        for key, weight in own.named_parameters(recurse=False)
        if key in before and not torch.equal(weight, before[key])
    ]
    if not changed:
        return
    if not isinstance(own, nn.Linear | nn.LayerNorm | nn.RMSNorm):
        what = f"{name}.{changed[0]} was trained, which rows of one batch cannot have apart"
        raise UsageError(f"{what}\n  fix: ask this task alone: plmctl eval checkpoint=...")
    yield OwnModule(own, shared)


def _take(x: Any, rows: slice) -> Any:
    """These rows of a tensor, or of all streams."""
    if isinstance(x, Tensor):
        return x[rows]
    tensors = x.tensors if isinstance(x, Streams) else x
    return Streams({name: tensor[rows] for name, tensor in tensors.items()})
