"""The texts that feed-forward units react to: each unit is a key that is compared with the state
of a token (Geva et al., 2021).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor, nn

from plmctl.analysis.sample import batch_text
from plmctl.analysis.stacks import find_readers, list_cells
from plmctl.artifacts.loading import Loaded
from plmctl.core.batch import Batch
from plmctl.core.errors import DataError, UsageError
from plmctl.nn.cells.feedforward import PositionWise

TOP = 5  # texts of a unit
BEFORE, AFTER = 12, 4  # tokens that are shown before a token, and behind it


@dataclass(frozen=True)
class Trigger:
    """A token that a unit reacts to, and those around it."""

    value: float
    before: list[str]
    token: str
    after: list[str]


@dataclass(frozen=True)
class UnitTexts:
    """One feed-forward unit.

    Args:
        layer: Its layer, from 0.
        unit: Its number in the layer, from 0.
        active: The share of tokens with a value above 0.
        triggers: The tokens with the largest values, at most one a row, the largest first.
    """

    layer: int
    unit: int
    active: float
    triggers: list[Trigger]


@dataclass(frozen=True)
class KeyTexts:
    """The texts of the largest values of some units.

    The value of unit i at a token with the state x is `m_i = f(x . k_i)`, the factor of the value
    vector v_i in `FF(x) = sum_i m_i v_i` (Geva et al., 2021, arXiv:2012.14913, sec. 2 and 3).
    Differs: the texts are a few rows, not the whole training data. Tokens behind the trigger are
    shown, too, since an encoder reads them.

    Args:
        units: The units, as they were wanted.
        about: The source of the rows.
    """

    units: list[UnitTexts]
    tokens: int
    about: str

    @classmethod
    def of(
        cls, opened: Loaded, units: Sequence[tuple[int, int]], sentences: Sequence[str] = ()
    ) -> Self:
        """Measure units (layer, number) on sentences, without any on held-out rows of the run.

        Raises:
            UsageError: There is no such unit.
            DataError: The model has no feed-forward layers that read one text.
        """
        batch, about = batch_text(opened, sentences)
        layers = read_units(opened, batch)
        for layer, unit in units:
            if not (layer < len(layers) and unit < layers[layer].shape[-1]):
                shape = f"{len(layers)} layers of {layers[0].shape[-1]} units, counted from 0"
                raise UsageError(
                    f"--keys {layer}.{unit}: there is no such unit; this model has {shape}"
                )
        ordinary = torch.as_tensor(~opened.vocab.special)[batch.text.ids] & batch.text.real
        found = [
            _find_triggers(opened, batch, ordinary, layer, unit, layers[layer][..., unit])
            for layer, unit in units
        ]
        return cls(found, int(ordinary.sum()), about)


@torch.inference_mode()
def read_units(opened: Loaded, batch: Batch) -> list[Tensor]:
    """The values of all units of each layer with a feed-forward cell, [B, T, I] each."""
    readers = list(find_readers(opened.model.backbone).values())
    stack = readers[0].stack if len(readers) == 1 else None
    listed = list_cells(stack) if stack else ()
    cells = [cell for _, cell in listed if isinstance(cell, PositionWise)]
    if not cells:
        raise DataError("this model has no single stack with feed-forward layers")
    steps = [id(cell) for cell in cells]
    parts: dict[int, list[Tensor]] = defaultdict(list)

    def keep(cell: int, _: nn.Module, given: tuple[Any, ...]) -> None:
        parts[cell].append(given[0].detach().float())

    hooks = [
        cell.down.register_forward_pre_hook(partial(keep, id(cell)))
        for cell in dict.fromkeys(cells)
    ]
    try:
        opened.model(batch)
    finally:
        for hook in hooks:
            hook.remove()
    layers = []
    for step in steps:  # a cell of several layers runs once for each, in slices or whole
        slices = len(parts[step]) // steps.count(step)
        layers.append(torch.cat(parts[step][:slices], 1))
        parts[step] = [*parts[step][slices:], *parts[step][:slices]]
    if any(layer.shape[:2] != batch.text.ids.shape for layer in layers):
        raise DataError("the layers of this model do not have a state for each token alone")
    return layers


def _find_triggers(
    opened: Loaded, batch: Batch, ordinary: Tensor, layer: int, unit: int, values: Tensor
) -> UnitTexts:
    best, columns = values.masked_fill(~ordinary, -torch.inf).max(-1)  # a token of each row
    triggers = []
    for row in best.argsort(descending=True, stable=True)[:TOP].tolist():
        if best[row] == -torch.inf:
            continue
        column, length = int(columns[row]), int(batch.text.length[row])
        ids = batch.text.ids[row, :length].tolist()
        first = max(0, column - BEFORE)
        pieces = opened.tokenizer.show(ids[first : column + 1 + AFTER])
        at = column - first
        triggers.append(Trigger(float(best[row]), pieces[:at], pieces[at], pieces[at + 1 :]))
    active = float((values[ordinary] > 0).float().mean())
    return UnitTexts(layer, unit, active, triggers)
