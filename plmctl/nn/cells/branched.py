"""Cells as data: blocks of two branches, wired by numbers, as a search over architectures changes
them (Zoph et al., 2018, arXiv:1707.07012, sec. 3; So et al., 2019, arXiv:1901.11117, sec. 3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Literal, NotRequired, TypedDict

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.attention.patterns.offsets import Offsets
from plmctl.core.errors import ConfigError, nearest
from plmctl.core.parts import part_of
from plmctl.core.values import DropoutRate
from plmctl.nn.cells.attention import Attention
from plmctl.nn.cells.base import Cell, CellFacts, RowSize, Work
from plmctl.nn.cells.convolution import DepthwiseConvolution, PlainConvolution, SeparableConvolution
from plmctl.nn.cells.cross_attention import CrossAttention
from plmctl.nn.cells.feedforward import ACTIVATIONS, find_activation
from plmctl.nn.cells.glu import GatedLinearUnit
from plmctl.nn.dropout import Dropout
from plmctl.nn.env import Env, Streams

Combiner = Literal["add", "concat", "multiply"]


class Branch(TypedDict):
    """One layer of a block: `activation(layer(norm(state)))`, with dropout.

    `state`: 0 is the input of the cell, n the result of its block n. `layer`: one of `LAYERS`, or
    "dead", no branch. `width`: columns of the result as a multiple of W; "identity" keeps those of
    its state, and has no dropout.
    """

    layer: str
    state: NotRequired[int]
    norm: NotRequired[bool]
    width: NotRequired[float]
    activation: NotRequired[str | None]


class BranchBlock(TypedDict):
    """Two branches and the rule that combines their results; null is a dead branch."""

    left: NotRequired[Branch | None]
    right: NotRequired[Branch | None]
    combine: NotRequired[Combiner]


@dataclass(frozen=True)
class LayerSite:
    """The numbers of a layer in its cell.

    Args:
        inputs: columns that it reads.
        outputs: columns of its result.
        source: columns of the states that cross-attention reads.
        number: the numbers in its name, such as the kernel.
        heads: heads of attention.
    """

    inputs: int
    outputs: int
    source: int
    number: tuple[int, ...]
    heads: int
    causal: bool
    dropout: float


@dataclass(frozen=True)
class LayerKind:
    """One kind of layer: the cell, and its number of weights by a formula."""

    build: Callable[[LayerSite], Cell]
    count: Callable[[LayerSite], int]


def _attend(at: LayerSite) -> Attention:
    return Attention(width=at.inputs, num_heads=at.heads, dropout=at.dropout, outputs=at.outputs)


def _attend_to_source(at: LayerSite) -> CrossAttention:
    return CrossAttention(
        width=at.inputs,
        num_heads=at.heads,
        dropout=at.dropout,
        source_width=at.source,
        outputs=at.outputs,
    )


def _convolve(at: LayerSite, dilation: int = 1) -> PlainConvolution:
    return PlainConvolution(
        width=at.inputs,
        kernel=at.number[0],
        causal=at.causal,
        outputs=at.outputs,
        dilation=dilation,
    )


def _convolve_columns(at: LayerSite) -> DepthwiseConvolution:
    lightweight = len(at.number) > 1
    return DepthwiseConvolution(
        width=at.inputs,
        kernel=at.number[0],
        causal=at.causal,
        outputs=at.outputs,
        sharing=at.number[1] if lightweight else 1,
        softmax=lightweight,
    )


def _count_map(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def _count_columns(at: LayerSite) -> int:
    kernel, sharing = at.number if len(at.number) > 1 else (*at.number, 1)
    return kernel * sum(divmod(at.inputs, sharing)) * at.outputs // at.inputs


KINDS: Mapping[str, LayerKind] = {
    "attention": LayerKind(
        _attend, lambda at: _count_map(at.inputs, 3 * at.inputs) + _count_map(at.inputs, at.outputs)
    ),
    "source": LayerKind(
        _attend_to_source,
        lambda at: (
            _count_map(at.inputs, at.inputs)
            + _count_map(at.source, 2 * at.inputs)
            + _count_map(at.inputs, at.outputs)
        ),
    ),
    "gate": LayerKind(
        lambda at: GatedLinearUnit(width=at.inputs, outputs=at.outputs),
        lambda at: 2 * _count_map(at.inputs, at.outputs),
    ),
    "convolution": LayerKind(
        _convolve, lambda at: _count_map(at.number[0] * at.inputs, at.outputs)
    ),
    "dilated": LayerKind(
        lambda at: _convolve(at, dilation=2),
        lambda at: _count_map(at.number[0] * at.inputs, at.outputs),
    ),
    "separable": LayerKind(
        lambda at: SeparableConvolution(
            width=at.inputs, kernel=at.number[0], causal=at.causal, outputs=at.outputs
        ),
        lambda at: at.number[0] * at.inputs + _count_map(at.inputs, at.outputs),
    ),
    "depthwise": LayerKind(_convolve_columns, _count_columns),
    "lightweight": LayerKind(_convolve_columns, _count_columns),
}
# "separable_9": a kernel of 9; "lightweight_7_4": a kernel of 7, the same for 4 columns;
# "attention": heads of the model, "attention_16": 16 heads; "source": attention to the source
LAYERS = (
    "dead",
    "identity",
    *(f"convolution_{kernel}" for kernel in (1, 3, 5)),
    *(f"separable_{kernel}" for kernel in (3, 5, 7, 9, 11, 13, 15)),
    *(f"depthwise_{kernel}" for kernel in (3, 5, 7)),
    *(f"lightweight_{kernel}_{sharing}" for kernel in (3, 5, 7, 15) for sharing in (1, 4, 16)),
    *(f"dilated_{kernel}" for kernel in (3, 5)),
    "gate",
    "attention",
    *(f"attention_{heads}" for heads in (4, 16, 32)),
    "source",
)
FIRST: Mapping[str, Any] = {  # genes that a branch need not state
    "layer": "dead",
    "state": 0,
    "norm": False,
    "width": 1.0,
    "activation": None,
}


@dataclass(frozen=True)
class CellPlan:
    """A cell's blocks, checked.

    Args:
        branches: {name: (branch, numbers of its layer, or None where it has no weights)}.
        widths: columns of every state, the input first.
        normed: states that a branch norms.
        loose: states that no branch reads, which the result adds up.
    """

    branches: Mapping[str, tuple[Mapping[str, Any], LayerSite | None]]
    widths: Sequence[int]
    normed: Sequence[int]
    loose: Sequence[int]

    @property
    def width(self) -> int:
        """Columns of the result."""
        return max(self.widths[state] for state in self.loose)

    def count(self, width: int, norm: int = 2) -> int:
        """The weights of one cell by formula, if a norm has `norm` weights a column."""
        sites = [(branch, site) for branch, site in self.branches.values() if site]
        layers = sum(KINDS[find_kind(branch["layer"])].count(site) for branch, site in sites)
        resize = 0 if self.width == width else _count_map(self.width, width)
        return layers + norm * sum(self.widths[state] for state in self.normed) + resize


def find_kind(layer: str) -> str:
    """The kind of a layer: that of "separable_9" is "separable"."""
    return layer.partition("_")[0]


def plan_blocks(
    blocks: Sequence[BranchBlock],
    *,
    width: int,
    num_heads: int,
    causal: bool = False,
    dropout: float = 0.0,
    source: int | None = None,
) -> CellPlan:
    """The columns of all states of a cell, and the numbers of its layers.

    Raises:
        ConfigError: A block that cannot be built, with the reason.
    """
    if not blocks:
        raise ConfigError("blocks", [], "at least one block")
    common = (source or width, num_heads, causal, dropout)
    branches: dict[str, tuple[Mapping[str, Any], LayerSite | None]] = {}
    widths = [width]
    for number, block in enumerate(blocks):
        for part in block:
            _check_name(f"blocks[{number}]", part, ("left", "right", "combine"))
        combine = block.get("combine", "add")
        _check_name(f"blocks[{number}].combine", combine, COMBINERS)
        found: list[int] = []
        for side in ("left", "right"):
            branch = {**FIRST, **(block.get(side) or {})}  # type: ignore[dict-item]
            path = f"blocks[{number}].{side}"
            _check_branch(path, branch, len(widths))
            if branch["layer"] != "dead":
                inputs = widths[branch["state"]]
                site = _find_site(path, branch, inputs, width, common)
                branches[f"{side}_{number}"] = branch, site
                found.append(site.outputs if site else inputs)
        if not found:
            raise ConfigError(f"blocks[{number}]", "dead", "at least one branch that is not dead")
        widths.append(sum(found) if combine == "concat" else max(found))
    read = {branch["state"] for branch, _ in branches.values()}
    normed = {branch["state"] for branch, _ in branches.values() if branch["norm"]}
    loose = [state for state in range(len(widths)) if state not in read]
    return CellPlan(branches, widths, sorted(normed), loose)


def _find_site(
    path: str,
    branch: Mapping[str, Any],
    inputs: int,
    width: int,
    common: tuple[int, int, bool, float],
) -> LayerSite | None:
    """The numbers of a branch's layer; None of "identity", which has no weights."""
    layer, (source, num_heads, causal, dropout) = branch["layer"], common
    if layer == "identity":
        return None
    return LayerSite(
        inputs=inputs,
        outputs=_find_outputs(path, branch, inputs, width),
        source=source,
        number=_find_numbers(layer),
        heads=_find_heads(path, layer, inputs, num_heads),
        causal=causal,
        dropout=dropout,
    )


def _check_branch(path: str, branch: Mapping[str, Any], states: int) -> None:
    for gene in branch:
        _check_name(path, gene, FIRST)
    _check_name(f"{path}.layer", branch["layer"], LAYERS)
    if branch["activation"] is not None:
        _check_name(f"{path}.activation", branch["activation"], ACTIVATIONS)
    if not 0 <= branch["state"] < states:
        allowed = f"0 to {states - 1}: a block reads the states before it"
        raise ConfigError(f"{path}.state", branch["state"], allowed)


def _check_name(path: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        raise ConfigError(path, name, f"one of {', '.join(known)}{nearest(name, known)}")


def _find_numbers(layer: str) -> tuple[int, ...]:
    return tuple(map(int, layer.split("_")[1:]))


def _find_heads(path: str, layer: str, inputs: int, num_heads: int) -> int:
    if find_kind(layer) not in ("attention", "source"):
        return 0
    heads = (*_find_numbers(layer), num_heads)[0]
    if inputs % heads:
        allowed = f"a layer whose heads divide its {inputs} columns: {heads} do not"
        raise ConfigError(f"{path}.layer", layer, allowed)
    return heads


def _find_outputs(path: str, branch: Mapping[str, Any], inputs: int, width: int) -> int:
    outputs = branch["width"] * width
    if outputs < 1 or outputs != int(outputs):
        raise ConfigError(f"{path}.width", branch["width"], f"whole columns of {width}")
    by_column = find_kind(branch["layer"]) in ("depthwise", "lightweight")
    if by_column and outputs % inputs:
        allowed = f"a multiple of the {inputs} columns that it reads, not {int(outputs)}"
        raise ConfigError(f"{path}.width", branch["width"], allowed)
    return int(outputs)


@part_of("cells")
class BranchedCell(Cell):
    """`resize(sum of loose states)`, with s_0 = x and s_n = combine(left_n, right_n), [B, T, W] ->
    [B, T, W].

    A branch is `dropout(activation(layer(norm(s))))`, without dropout for "identity". All branches
    that norm a state share the norm. Loose are the states that no branch reads. Narrower results
    are filled behind their last column, with zeros to add and ones to multiply. The cell has its
    own norms and residual sums, so that its result replaces its stream. With the blocks of its file
    it is the published cell.

    Source: So et al., 2019, arXiv:1901.11117, sec. 3.1; tensor2tensor, nas_model.py.
    Differs: A linear map gives each cell's result W columns if it has others (released: one behind
    the decoder). A depthwise layer of unfitting width is an error (released: it gets another
    width). Attention and dilated convolutions have biases. The slope of leaky_relu is 0.01
    (TensorFlow's: 0.2).

    Args:
        width: W.
        blocks: The blocks, each with the branches `left` and `right`, and `combine`: add, concat or
            multiply.
        num_heads: Heads of the layers "attention" and "source".
        norm: A factory of the norms.
        causal: Windows end at the token; otherwise it stands in their middle.
        dropout: The rate, behind each layer and on the probabilities of attention.
        source_width: Columns of the states that "source" reads; null: W.
    """

    facts = CellFacts(complete=True, biased=True, turned=True)

    def __init__(
        self,
        *,
        width: int,
        blocks: Sequence[BranchBlock],
        num_heads: int,
        norm: Callable[..., nn.Module],
        causal: bool,
        dropout: DropoutRate,
        source_width: int | None = None,
    ) -> None:
        super().__init__()
        self.plan = plan = plan_blocks(
            blocks,
            width=width,
            num_heads=num_heads,
            causal=causal,
            dropout=dropout,
            source=source_width,
        )
        self.num_heads = num_heads
        self.combiners = [COMBINERS[block.get("combine", "add")] for block in blocks]
        self.norms = nn.ModuleDict({str(n): norm(width=plan.widths[n]) for n in plan.normed})
        self.layers = nn.ModuleDict(
            {
                name: KINDS[find_kind(branch["layer"])].build(site)
                for name, (branch, site) in plan.branches.items()
                if site
            }
        )
        self.activations = {
            name: find_activation(branch["activation"])
            for name, (branch, _) in plan.branches.items()
            if branch["activation"]
        }
        self.dropout = Dropout(rate=dropout)
        self.resize = nn.Identity() if plan.width == width else nn.Linear(plan.width, width)
        self.facts = self._find_facts(causal)

    @property
    def projection(self) -> nn.Linear:  # type: ignore[override]
        last = self.resize if isinstance(self.resize, nn.Linear) else self._cells[-1].projection
        return last

    @property
    def _cells(self) -> list[Cell]:
        return list(self.layers.values())  # type: ignore[arg-type]

    def _find_facts(self, causal: bool) -> CellFacts:
        """The facts of the cell by those of its layers."""
        own = [layer.facts for layer in self._cells]
        here = Offsets.between(0, 0)
        convolves = any(not (facts.own_offsets & ~here).is_empty() for facts in own)
        attends = any(facts.computes == "attention" for facts in own)
        return replace(
            self.facts,
            reads=frozenset({"text"}).union(*(facts.reads for facts in own)),
            ahead=True if convolves and not causal else None if attends else False,
            offsets=Offsets.between(None, 0 if causal else None)
            if convolves
            else ~Offsets.everything(),
        )

    def work(self, row: RowSize) -> Work:
        parts = [layer.work(row) for layer in self._cells]
        if isinstance(self.resize, nn.Linear):
            rows = (1 + row.queries) * row.tokens
            parts.append(
                Work(rows * self.resize.weight.numel(), kept=rows * self.resize.out_features)
            )
        return Work(
            sum(part.macs for part in parts),
            sum(part.scores for part in parts),
            sum(part.kept for part in parts),
        )

    def forward(self, streams: Streams, env: Env) -> Tensor:
        env = env if env.recorder is None else replace(env, recorder=None)
        states, normed = [streams["text"]], dict[int, Tensor]()
        for number, combine in enumerate(self.combiners):
            results = [
                self._run(name, streams, states, normed, env)
                for name in (f"left_{number}", f"right_{number}")
                if name in self.plan.branches
            ]
            states.append(reduce(combine, results))
        return self.resize(reduce(add, [states[number] for number in self.plan.loose]))

    def _run(
        self,
        name: str,
        streams: Streams,
        states: Sequence[Tensor],
        normed: dict[int, Tensor],
        env: Env,
    ) -> Tensor:
        """[B, T, columns] the result of one branch."""
        branch, site = self.plan.branches[name]
        x = states[state := branch["state"]]
        if branch["norm"]:
            if state not in normed:
                normed[state] = self.norms[str(state)](x)
            x = normed[state]
        if site is not None:
            x = self.layers[name](streams.replace("text", x), env.enter(name))
        if name in self.activations:
            x = self.activations[name](x)
        return x if site is None else self.dropout(x)


def _fill(x: Tensor, other: Tensor, value: float) -> Tensor:
    """`x` with columns of `value` behind its last one, as many as `other` has more."""
    return F.pad(x, (0, max(0, other.shape[-1] - x.shape[-1])), value=value)


def add(x: Tensor, y: Tensor) -> Tensor:
    """[B, T, columns of the wider] their sum."""
    return _fill(x, y, 0.0) + _fill(y, x, 0.0)


def multiply(x: Tensor, y: Tensor) -> Tensor:
    """[B, T, columns of the wider] their product by elements."""
    return _fill(x, y, 1.0) * _fill(y, x, 1.0)


def concatenate(x: Tensor, y: Tensor) -> Tensor:
    """[B, T, columns of both]"""
    return torch.cat([x, y], -1)


COMBINERS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": add,
    "concat": concatenate,
    "multiply": multiply,
}
