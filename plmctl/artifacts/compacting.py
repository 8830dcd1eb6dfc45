"""A trained model without the heads, neurons and residual columns that pruning has made 0: its
layers have unlike widths, and it computes the same.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from plmctl.artifacts.assemble import build_model, without_weights
from plmctl.artifacts.narrowing import narrow_source
from plmctl.artifacts.shrinking import find_stacks
from plmctl.config.build import parameters_of
from plmctl.core.errors import ConfigError
from plmctl.models.units import HEADS, NEURONS, find_heads, find_neurons, list_cells
from plmctl.nn.cells.base import Cell
from plmctl.nn.cells.feedforward import PositionWise

if TYPE_CHECKING:
    from plmctl.artifacts.loading import Source

LEFT_OUT = "left out, since they add nothing: "


@dataclass
class Cut:
    """The units of a cell that stay.

    Args:
        cell: The cell, without weights.
        place: Its name before its tensors.
        setting: The setting of the cell that counts its units.
        width: Columns of a unit.
        kept: [count] whether each unit stays.
        constant: [columns] what the units that go write in any case.
    """

    cell: Cell
    place: str
    setting: str
    width: int
    kept: Tensor
    constant: Tensor

    @property
    def lost(self) -> int:
        """How many units go."""
        return int((~self.kept).sum())

    def states(self) -> dict[str, int]:
        """The settings of the cell afterwards."""
        own = {self.setting: int(self.kept.sum())}
        return own | ({"head_width": self.width} if self.setting == HEADS else {})

    def apply(self, tensors: dict[str, Tensor]) -> None:
        """Cut the tensors of the cell."""
        columns = self.kept.repeat_interleave(self.width)
        out = name_map(self, self.cell.projection)
        weight = tensors[f"{out}.weight"]
        if bool(self.constant.any()):
            tensors[f"{out}.bias"] = tensors[f"{out}.bias"] + weight @ self.constant.to(weight)
        tensors[f"{out}.weight"] = weight[:, columns].clone()
        for linear in list_inputs(self.cell):
            name = name_map(self, linear)
            shares = linear.out_features // len(columns)
            for kind in ("weight", "bias"):
                if (full := tensors.get(f"{name}.{kind}")) is not None:
                    tensors[f"{name}.{kind}"] = full[columns.repeat(shares)].clone()


def compact_source(source: Source) -> tuple[Source, str]:
    """`source` without units and residual columns that add nothing, and a line with their numbers.

    A unit adds nothing if the next map does not read it, `W_out[:, i] = 0`. A neuron of which all
    weights are 0 is the constant `f(b_i)`, which moves into the bias of the next map. One head and
    one neuron of each cell stay in any case. `model.stack.by_layer` states what each cell has.

    Raises:
        ConfigError: Each unit and column adds something, or a part has numbers for each head.
    """
    source, columns = narrow_source(source)
    with without_weights():
        model = build_model(source.config, vocab_size=source.vocab_size, plugins=source.plugins)
    config, tensors = copy.deepcopy(source.config), dict(source.tensors)
    cuts = [
        cut
        for path, cell in list_cells(model.backbone)
        for cut in find_cuts(cell, f"backbone.{path}", tensors)
    ]
    heads = sum(cut.lost for cut in cuts if cut.setting == HEADS)
    neurons = sum(cut.lost for cut in cuts) - heads
    if not heads + neurons:
        if columns:
            return source, f"{LEFT_OUT}{columns}"
        allowed = "a model with heads, neurons or columns that are 0; here each adds something"
        raise ConfigError("--compact", ..., allowed, fix="pruning=[heads,neurons] in its training")
    if heads:
        _check_parts(source)
    nodes = dict(find_stacks(config["model"]))
    for place, node in nodes.values():
        own = [cut for cut in cuts if cut.place.startswith(f"backbone.{place}.blocks.")]
        _state(node, own, f"backbone.{place}.blocks.")
    for cut in cuts:
        if cut.lost:
            _check_cell(cut)
            cut.apply(tensors)
    every = {
        setting: sum(len(cut.kept) for cut in cuts if cut.setting == setting)
        for setting in (HEADS, NEURONS)
    }
    line = f"{LEFT_OUT}{heads} of {every[HEADS]} heads, "
    line += f"{neurons:,} of {every['inner_width']:,} neurons"
    line += f", {columns}" if columns else ""
    return replace(source, config=config, tensors=tensors), line


def find_cuts(cell: Cell, place: str, tensors: dict[str, Tensor]) -> Iterator[Cut]:
    """The units of a cell, if it has some, each with a mark whether it stays.

    Args:
        cell: The cell, without weights.
        place: Its name before its tensors.
        tensors: The weights of the model.
    """
    for find, setting in ((find_heads, HEADS), (find_neurons, NEURONS)):
        units = find(cell)
        if units is None:
            continue
        cut = Cut(cell, place, setting, units.width, torch.ones(units.count), torch.zeros(0))
        read = (tensors[f"{name_map(cut, units.output)}.weight"] != 0).any(0)
        cut.constant = torch.zeros(len(read))
        if isinstance(cell, PositionWise):
            fixed, values = _find_constants(cut, tensors)
            cut.constant = torch.where(fixed & read, values, 0.0)
            read = read & ~fixed
        cut.kept = read.view(units.count, units.width).any(1)
        if not bool(cut.kept.any()):
            cut.kept[0] = True
            cut.constant[: units.width] = 0
        if setting == HEADS and cut.lost:
            _check_groups(cut)
        yield cut


def list_inputs(cell: Cell) -> list[Any]:
    """The linear maps whose rows belong to the units of a cell."""
    maps = [own.linear for own in cell.projections().maps.values()]
    return list(dict.fromkeys(linear for linear in maps if linear is not cell.projection))


def name_map(cut: Cut, linear: Any) -> str:
    """The name of a linear map of a cell before its tensors."""
    return next(f"{cut.place}.{n}" for n, part in cut.cell.named_modules() if part is linear)


@torch.no_grad()
def _find_constants(cut: Cut, tensors: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """(whether all weights that a neuron reads with are 0, what it then writes)."""
    cell = cut.cell
    assert isinstance(cell, PositionWise)
    names = [name_map(cut, getattr(cell, name)) for name in cell.inputs]
    weights = [tensors[f"{name}.weight"] for name in names]
    fixed = torch.stack([(weight == 0).all(1) for weight in weights]).all(0)
    if not bool(fixed.any()):
        return fixed, torch.zeros(len(fixed))
    _check_cell(cut)  # a norm would join the neurons
    biases = [
        tensors.get(f"{name}.bias", torch.zeros(len(weight))).float()
        for name, weight in zip(names, weights, strict=True)
    ]
    values = cell.eval().combine(*biases)
    if f"{name_map(cut, cell.down)}.bias" not in tensors:  # no bias takes the constants
        fixed = fixed & (values == 0)
    return fixed, values


def _check_cell(cut: Cut) -> None:
    """ConfigError for a cell with other numbers for its units than its linear maps."""
    maps = (*list_inputs(cut.cell), cut.cell.projection)
    known = {id(weight) for part in maps for weight in part.parameters()}
    other = [
        name
        for name, weight in cut.cell.named_parameters()
        if id(weight) not in known and not name.startswith(("q_norm.", "k_norm."))
    ]
    if other:
        kind = type(cut.cell).__name__
        allowed = f"cells whose linear maps alone belong to heads or neurons; {kind} has {other[0]}"
        raise ConfigError("--compact", cut.place.removeprefix("backbone."), allowed)


def _check_groups(cut: Cut) -> None:
    """ConfigError for heads that share keys with others, which would lose theirs."""
    maps = cut.cell.projections().maps
    rows = {name: maps[name].rows for name in ("query", "key") if name in maps}
    if len({own.stop - own.start for own in rows.values()}) > 1:
        allowed = "heads with keys of their own (model.stack.cells.a.kv_heads=null)"
        fix = "pruning=[neurons] in its training"
        raise ConfigError("--compact", cut.place.removeprefix("backbone."), allowed, fix=fix)


def _check_parts(source: Source) -> None:
    """ConfigError for positions or patterns with numbers for each head of all layers."""
    for slot in ("position", "pattern"):
        node = source.config[slot]
        if HEADS in (parameters_of(node, source.plugins) or {}):
            own = node["_target_"].rpartition(".")[2]
            allowed = f"parts that are the same for all heads; {own} has numbers for each"
            raise ConfigError(slot, own, allowed, fix="pruning=[neurons] in its training")


def _state(node: dict[str, Any], cuts: list[Cut], prefix: str) -> None:
    """Write what each cell has into `by_layer` of its stack."""
    by_letter: dict[str, list[Cut]] = {}
    for cut in cuts:
        by_letter.setdefault(cut.place.removeprefix(prefix).partition(".")[0], []).append(cut)
    for letter, own in by_letter.items():
        if any(cut.lost for cut in own):
            columns = {name: [cut.states()[name] for cut in own] for name in own[0].states()}
            by_layer = dict(node.get("by_layer") or {})
            node["by_layer"] = by_layer | {letter: {**(by_layer.get(letter) or {}), **columns}}
