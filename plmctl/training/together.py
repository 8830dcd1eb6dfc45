"""Rows of an update across micro-batches and processes: facts that they share before they are read,
and the vectors that their losses contrast.

A loss that contrasts vectors gets the gradient of one pass over all rows from two passes over each
micro-batch (Gao et al., 2021, arXiv:2101.06983: GradCache). The first gives all vectors, the loss
of all of them, and its gradient `g` for each vector `v`; the second, under the same random states,
has the gradient of `sum v g` with `g` fixed. A process with one micro-batch keeps its first pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import IGNORE, Batch
from plmctl.objectives.base import Contrast, Objective, Output
from plmctl.training.processes.world import World

Name = tuple[str, str]  # name of a contrast: the source of its batches, and its own name
Pulls = Mapping[str, Tensor]  # the gradient of a loss, by name of vectors


def is_cut(batches: Sequence[Batch], world: World) -> bool:
    """Whether rows of one source are in several micro-batches or processes."""
    if not world.alone:
        return True
    return max(Counter(batch.source for batch in batches).values(), default=0) > 1


def share(objective: Objective, batches: Sequence[Batch], world: World) -> list[Batch]:
    """The batches of all processes, each with the values that all rows of its source share."""
    if not (objective.facts.shares and is_cut(batches, world)):
        return list(batches)
    own = [(batch.source, objective.share(batch)) for batch in batches]
    every = [part for parts in world.exchange(own) for part in parts]

    def join_of(source: str, names: Mapping[str, Tensor]) -> dict[str, Tensor]:
        alike = [part for other, part in every if other == source]
        return {name: torch.cat([part[name] for part in alike]) for name in names}

    return [
        replace(batch, shared=join_of(batch.source, names))
        for batch, (_, names) in zip(batches, own, strict=True)
    ]


@dataclass(frozen=True)
class Joined:
    """A contrast of all rows of an update.

    Args:
        vectors: The vectors of each micro-batch of this process that has some, by name; they can
            have a gradient of their own.
        first: no process before this one has a part of it, so that this one counts it.
    """

    vectors: Mapping[int, Mapping[str, Tensor]]
    output: Output
    first: bool

    def pull(self, loss: Tensor) -> Mapping[int, Pulls]:
        """{micro-batch: the gradient of `loss` for its vectors}."""
        free = {
            (slot, name): x
            for slot, own in self.vectors.items()
            for name, x in own.items()
            if x.requires_grad
        }
        pulls: dict[int, dict[str, Tensor]] = {slot: {} for slot in self.vectors}
        if not free:
            return pulls
        found = torch.autograd.grad(loss, list(free.values()), retain_graph=True, allow_unused=True)
        for (slot, name), gradient in zip(free, found, strict=True):
            if gradient is not None:
                pulls[slot][name] = gradient
        return pulls


def join(
    parts: Sequence[Mapping[Name, Contrast]], world: World, autocast: Callable[[], Any]
) -> dict[Name, Joined]:
    """The contrasts of which this process has a part; every process has to call it.

    Args:
        parts: The vectors of each micro-batch of this process.
        world: The processes, whose vectors differ.
        autocast: the precision in which vectors are compared.
    """
    every = world.exchange(
        []
        if world.alone
        else [{name: _Piece.of(own, "cpu") for name, own in part.items()} for part in parts]
    )
    joined: dict[Name, Joined] = {}
    for name in sorted({name for part in parts for name in part}):
        own = {
            slot: _Piece.of(part[name], world.device, free=True)
            for slot, part in enumerate(parts)
            if name in part
        }
        before, after = (
            [part[name].to(world.device) for theirs in ranks for part in theirs if name in part]
            for ranks in (every[: world.rank], every[world.rank + 1 :])
        )
        compare = next(part[name].compare for part in parts if name in part)
        with autocast():
            output = compare(*_stack([*before, *own.values(), *after]))
        vectors = {slot: piece.vectors for slot, piece in own.items()}
        joined[name] = Joined(vectors, output, first=not before)
    return joined


def find_contrasts(batch: Batch, output: Output) -> dict[Name, Contrast]:
    """The contrasts of the output of a micro-batch."""
    return {(batch.source, name): contrast for name, contrast in output.contrasts.items()}


def drop_contrasts(output: Output) -> Output:
    """The terms and logs of an output without its contrasts."""
    inside = [contrast.alone for contrast in output.contrasts.values()]
    terms, logs = ({n for each in inside for n in vars(each)[kind]} for kind in ("terms", "logs"))
    return replace(
        output,
        terms={name: term for name, term in output.terms.items() if name not in terms},
        logs={name: log for name, log in output.logs.items() if name not in logs},
        contrasts={},
    )


@dataclass(frozen=True)
class _Piece:
    """The tensors of a contrast, cut from the graph that made them."""

    vectors: Mapping[str, Tensor]
    beside: Mapping[str, Tensor]
    numbers: Mapping[str, Tensor]

    @classmethod
    def of(cls, contrast: Contrast, device: torch.device | str, *, free: bool = False) -> _Piece:
        """Those of a contrast; `free`: its vectors can have a gradient of their own."""
        # cloned, because a view would be sent with all that it is a view of
        alone = [
            {name: x.detach().to(device, copy=True) for name, x in tensors.items()}
            for tensors in (contrast.vectors, contrast.beside, contrast.numbers)
        ]
        for name, x in contrast.vectors.items():
            alone[0][name].requires_grad_(free and x.requires_grad)
        return cls(*alone)

    def to(self, device: torch.device) -> _Piece:
        """The same on a device."""
        parts = (self.vectors, self.beside, self.numbers)
        return _Piece(*({name: x.to(device) for name, x in part.items()} for part in parts))


def _stack(pieces: Sequence[_Piece]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """(vectors, others) of all pieces one after the other."""
    first = pieces[0]
    vectors = {name: torch.cat([piece.vectors[name] for piece in pieces]) for name in first.vectors}
    beside = {name: _pad([piece.beside[name] for piece in pieces]) for name in first.beside}
    numbers = {name: _go_on([piece.numbers[name] for piece in pieces]) for name in first.numbers}
    return vectors, {**beside, **numbers}


def _pad(parts: Sequence[Tensor]) -> Tensor:
    """[n, T, ...] of all parts, where shorter rows are filled with IGNORE."""
    if parts[0].dim() < 2:
        return torch.cat(list(parts))
    longest = max(part.shape[1] for part in parts)
    behind = (0, 0) * (parts[0].dim() - 2)
    return torch.cat(
        [F.pad(part, (*behind, 0, longest - part.shape[1]), value=IGNORE) for part in parts]
    )


def _go_on(parts: Sequence[Tensor]) -> Tensor:
    """[n] the numbers of all parts, where each goes on behind those before it."""
    moved, start = [], 0
    for part in parts:
        moved.append(part + start)
        start += int(part.max()) + 1 if len(part) else 0
    return torch.cat(moved)
