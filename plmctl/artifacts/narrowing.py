"""The residual width of a model: its axes in all tensors, and the model without columns that
pruning has made 0.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from plmctl.artifacts.assemble import build_model, without_weights
from plmctl.config.build import parameters_of, plain
from plmctl.core.errors import ConfigError
from plmctl.heads.features import ScalarMix
from plmctl.models.base import Model
from plmctl.models.encoder import Encoder
from plmctl.models.units import list_cells
from plmctl.nn.cells.branches import ConvolutionBranches
from plmctl.nn.cells.relative_attention import RelativeAttention
from plmctl.nn.positions import Learned, Position, Sinusoidal
from plmctl.nn.residual import Block
from plmctl.nn.tables import Padded

if TYPE_CHECKING:
    from plmctl.artifacts.loading import Source

# {tensor: how often the residual columns stand side by side on each of its axes; 0: another axis}
Axes = Mapping[str, tuple[int, ...]]

COUNTED = ".counted"  # the mark of columns that a norm counts
# modules that treat each residual column of an axis alike
ALIKE = (nn.Linear, nn.Embedding, nn.LayerNorm, nn.RMSNorm, Padded)


def find_axes(config: Any, *, plugins: Sequence[str] = ()) -> Axes:
    """The axes of residual columns in each tensor of the model of `config`. They are twice as long
    where `size.width` is twice as large, while heads and inner widths stay.

    Raises:
        ConfigError: A part ties these columns to something else; it names the part.
    """
    width, models = int(config["size"]["width"]), []
    for wanted in (width, 2 * width):
        own = restate_width(config, wanted, plugins)
        try:
            with without_weights():
                models.append(build_model(own, vocab_size=64, plugins=plugins))
        except ConfigError as error:
            raise _refuse(error.path) from error
    one, two = models
    for what in _list_ties(one, two):
        raise _refuse(what)
    shapes, wide = ({n: t.shape for n, t in m.state_dict().items()} for m in (one, two))
    if shapes.keys() != wide.keys():
        raise _refuse(f"the tensor {min(shapes.keys() ^ wide.keys())}")
    axes = {}
    for name, shape in shapes.items():
        axes[name] = tuple(
            0 if new == old else _count_blocks(name, old, new, width)
            for old, new in zip(shape, wide[name], strict=True)
        )
        owner = one.get_submodule(name.rpartition(".")[0])
        norm = isinstance(owner, nn.LayerNorm | nn.RMSNorm) and axes[name] != (1,)
        if any(axes[name]) and (norm or not isinstance(owner, ALIKE)):
            raise _refuse(f"{type(owner).__name__} with {name}")
    return axes


def restate_width(config: Any, width: int, plugins: Sequence[str] = ()) -> dict[str, Any]:
    """`config` with another `size.width`, while heads are as wide as before."""
    config = copy.deepcopy(dict(plain(config)))
    old = int(config["size"]["width"])
    config["size"] = {**config["size"], "width": width}
    embedding = config["model"].get("embedding") or {}
    if embedding.get("table_width") == old:
        embedding["table_width"] = None
    _fix_heads(config["model"], old, width, plugins)
    return config


def narrow_source(source: Source) -> tuple[Source, str]:
    """`source` without the residual columns that its norms do not count, and a line with their
    number; "" if norms count all.

    Raises:
        ConfigError: Such a column is not 0 in some tensor, or a part ties it to something else.
    """
    marks = [tensor for name, tensor in source.tensors.items() if name.endswith(COUNTED)]
    if not marks:
        return source, ""
    if any(not torch.equal(mark, marks[0]) for mark in marks):
        raise ConfigError("--compact", ..., "a model whose norms count the same columns")
    kept, tensors = marks[0], {}
    axes = find_axes(source.config, plugins=source.plugins)
    for name, tensor in source.tensors.items():
        if not name.endswith(COUNTED):
            tensors[name] = _cut(name, tensor, axes.get(name, ()), kept)
    config = restate_width(source.config, int(kept.sum()), source.plugins)
    line = f"{int((~kept).sum()):,} of {len(kept):,} residual columns"
    return replace(source, config=config, tensors=tensors), line


def _cut(name: str, tensor: Tensor, blocks: Sequence[int], kept: Tensor) -> Tensor:
    """A tensor with the columns that are kept."""
    for axis, times in enumerate(blocks):
        if not times:
            continue
        columns = kept.repeat(times)
        if bool(tensor.index_select(axis, (~columns).nonzero().flatten()).any()):
            allowed = f"a model that was pruned as a whole; {name} has been trained anew"
            fix = "plmctl convert <the pruned run> --compact --out narrow, then train narrow"
            raise ConfigError("--compact", ..., allowed, fix=fix)
        tensor = tensor.index_select(axis, columns.nonzero().flatten())
    return tensor


def _fix_heads(node: Any, old: int, new: int, plugins: Sequence[str]) -> None:
    """Let every cell below a node state how wide its heads are, where that is not the rest."""
    if not isinstance(node, dict):
        return
    for letter, cell in (node.get("cells") or {}).items():
        heads = (cell or {}).get("num_heads")
        if not heads or "head_width" not in (parameters_of(cell, plugins) or {}):
            continue
        stated, own = cell.get("head_width"), (node.get("by_layer") or {}).get(letter) or {}
        if "num_heads" in own and "head_width" not in own:
            own["head_width"] = [stated or old // count for count in own["num_heads"]]
        width = stated or old // heads
        cell["head_width"] = None if width * heads == new else width
    for child in node.values():
        _fix_heads(child, old, new, plugins)


def _list_ties(one: Model, two: Model) -> Iterator[str]:
    """The parts of a model, and of the same model of twice the width, that tie residual columns to
    heads, waves or each other.
    """
    backbone: Any = one.backbone
    if type(backbone) is not Encoder:
        yield type(backbone).__name__
        return
    position, stack = backbone.position, backbone.stack
    adds = type(position).embed is not Position.embed and not isinstance(position, Learned)
    if adds or type(position).every_step is not Position.every_step:
        yield type(position).__name__
    if stack.reversible or stack.halting is not None:
        yield "stack.reversible" if stack.reversible else type(stack.halting).__name__
    if any(isinstance(part, Block) and part.columns is not None for part in stack.modules()):
        yield "stack.columns"
    cells = [cell for _, cell in list_cells(backbone)]
    with_heads = {id(part) for part in (*cells, *one.heads.modules())}
    for part, other in zip(one.modules(), two.modules(), strict=True):
        heads, width = getattr(part, "num_heads", 0), getattr(part, "head_width", None)
        tied = id(part) in with_heads and heads and (not width or width != other.head_width)
        tied |= isinstance(part, Sinusoidal) and part.width != other.width  # type: ignore[operator]
        tied |= getattr(part, "factor", 1.0) != getattr(other, "factor", 1.0)
        tied |= isinstance(part, ScalarMix) and part.norm  # it counts all columns
        if tied or isinstance(part, RelativeAttention | ConvolutionBranches):
            yield type(part).__name__


def _count_blocks(name: str, old: int, new: int, width: int) -> int:
    """How often the residual columns stand on an axis."""
    if new != 2 * old or old % width:
        raise _refuse(f"the tensor {name}")
    return old // width


def _refuse(what: str) -> ConfigError:
    allowed = f"needs a model whose columns can go one by one; {what} ties them together"
    return ConfigError("pruning.width", ..., allowed, fix="pruning=[heads,neurons]")
