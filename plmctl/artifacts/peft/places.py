"""Where our linear maps stand in a published model, as the library `peft` names its modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from plmctl.interop import hf
from plmctl.models.base import Model
from plmctl.nn.peft.base import Added


@dataclass(frozen=True)
class Place:
    """Where some rows of one of our linear maps stand in the published model."""

    module: str
    rows: slice  # rows of the outputs of that module
    outputs: int  # number of its outputs
    transposed: bool  # the published weight is [in, out]

    @property
    def whole(self) -> bool:
        """Whether these are all outputs of the module."""
        return self.rows.stop - self.rows.start == self.outputs


def find_changes(model: Model, mark: str) -> Iterator[tuple[str, Any]]:
    """(name of a linear map, what a method added to it)."""
    for name, part in model.named_modules():
        if isinstance(added := part._modules.get(mark), Added) and added.rows:
            yield name, added


def find_places(
    model: Model,
    mark: str,
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    pad: int | None,
) -> dict[tuple[str, str], Place]:
    """{(linear map, the name of its rows): their positions in the published model}; without rows
    that no linear map of it has.

    Every row of the maps is marked by a number of its own, and looked for in what is exported.
    """
    marked, first, total = dict(tensors), dict[str, int](), 1
    for name, _ in find_changes(model, mark):
        weight = tensors[f"{name}.weight"]
        first[name], stop = total, total + len(weight)
        rows = torch.arange(total, stop, dtype=torch.float64)
        marked[f"{name}.weight"], total = rows[:, None].expand(weight.shape).clone(), stop
    known = list(_find_marked(hf.export(config, marked, pad=pad).tensors))
    places = {}
    for name, added in find_changes(model, mark):
        for role, rows in added.rows.items():
            begin, stop = first[name] + rows.start, first[name] + rows.stop
            for place, low in known:
                if low <= begin and stop <= low + place.outputs:
                    own = slice(begin - low, stop - low)
                    places[name, role] = Place(place.module, own, place.outputs, place.transposed)
    return places


def _find_marked(exported: Mapping[str, Tensor]) -> Iterator[tuple[Place, int]]:
    """The published matrices whose rows, or columns, are marked by consecutive numbers; the first
    of these.
    """
    for name, tensor in exported.items():
        if tensor.dtype != torch.float64 or tensor.dim() != 2:
            continue
        for transposed, rows in ((False, tensor[:, 0]), (True, tensor[0])):
            if len(rows) > 1 and bool((rows.diff() == 1).all()):
                module, count = name.removesuffix(".weight"), len(rows)
                yield Place(module, slice(0, count), count, transposed), int(rows[0])
