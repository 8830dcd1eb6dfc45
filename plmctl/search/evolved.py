"""The space of the Evolved Transformer: the cells of a stack, block by block."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.spelling import spell
from plmctl.core.values import Count, Rate
from plmctl.nn.cells.branched import COMBINERS, FIRST, LAYERS, CellPlan, plan_blocks
from plmctl.search.space import Point, Space

SIDES = ("left", "right")
VALUES: Mapping[str, Sequence[Any]] = {
    "layer": LAYERS,
    "norm": (False, True),
    "width": tuple(half / 2 for half in range(1, 11)),
    "activation": (None, "relu", "leaky_relu", "silu"),
}
# genes that say nothing of such a layer, and have their first value
SILENT: Mapping[str, tuple[str, ...]] = {
    "dead": ("state", "norm", "width", "activation"),
    "identity": ("width",),
}
SHOWN = 2  # genes of a point in few words
Gene = tuple[str | int, ...]  # the way to a value: ("encoder", "blocks", 0, "left", "layer")


@dataclass(frozen=True)
class SearchedStack:
    """One stack of a model: where its settings are, and what its cells may read."""

    stack: str  # path of the stack, with the setting `layout`
    cells: str  # path of the cells
    letter: str
    blocks: int
    source: bool = False

    @property
    def layers(self) -> Sequence[str]:
        """The layers that a branch may have."""
        return [name for name in LAYERS if self.source or name != "source"]


DECODER_CELLS = "model.decoder.stack.cells"
SITES: Mapping[str, Mapping[str, SearchedStack]] = {
    "translator": {
        "encoder": SearchedStack("model.encoder.stack", DECODER_CELLS, "n", 6),
        "decoder": SearchedStack("model.decoder.stack", DECODER_CELLS, "o", 8, source=True),
    },
    "language_model": {"decoder": SearchedStack("model.stack", "model.stack.cells", "n", 6)},
}


@part_of("space")
class EvolvedSpace(Space):
    """Cells of blocks with two branches: for each the state that it reads, norm, layer, width and
    activation; how they combine; and the number of cells of each stack.

    So et al., 2019, arXiv:1901.11117, sec. 3.1, with the layers of tensor2tensor
    (nas_layers.py). A width is a multiple of W / 2, from 1 to 10. A cell holds as many blocks as
    two layers of the Transformer, the point with the name `transformer`. `evolved` is the published
    one.

    Differs: The unit of widths is chosen here; it fits both published cells.

    Args:
        system: translator, for the recipes `evolved_transformer` and `transformer`, or
            language_model, for `gpt2`.
        width: W of every individual.
        num_heads: Heads of the layers that do not name their heads.
        cells: The most cells of one stack.
        rate: The probability that a mutation changes a gene (0.025 is recalled from the paper and
            was not checked). At least one changes.
    """

    def __init__(
        self,
        *,
        system: Literal["translator", "language_model"] = "translator",
        width: Count = 128,
        num_heads: Count = 2,
        cells: Count = 4,
        rate: Rate = 0.025,
    ) -> None:
        self.sites = SITES[system]
        self.width, self.num_heads, self.cells, self.rate = width, num_heads, cells, rate

    def draw(self, random: np.random.Generator) -> Point:
        """Every gene at random, a block again until it fits those before it."""
        while True:
            point = {name: self._draw_stack(site, random) for name, site in self.sites.items()}
            if self.problems(point) is None:
                return point

    def mutate(self, point: Point, random: np.random.Generator) -> Point:
        """A copy with other values of some genes, drawn again until it fits."""
        genes = list(self.genes(point))
        while True:
            chosen = random.random(len(genes)) < self.rate
            if not chosen.any():
                chosen[random.integers(len(genes))] = True
            child = point
            for gene, changes in zip(genes, chosen, strict=True):
                if changes and (values := self.values(child, gene)):
                    child = self.change(child, gene, _choose(values, random))
            if child != point and self.problems(child) is None:
                return child

    def genes(self, point: Point) -> Iterator[Gene]:
        """The ways to all values of a point that say something."""
        for name, stack in point.items():
            yield name, "cells"
            for number, block in enumerate(stack["blocks"]):
                alive = [side for side in SIDES if block[side]["layer"] != "dead"]
                for side in SIDES:
                    silent = SILENT.get(block[side]["layer"], ())
                    yield from (
                        (name, "blocks", number, side, gene) for gene in FIRST if gene not in silent
                    )
                if len(alive) == len(SIDES):
                    yield name, "blocks", number, "combine"

    def values(self, point: Point, gene: Gene) -> Sequence[Any]:
        """The other values that a gene may have."""
        values: Mapping[str, Sequence[Any]] = {
            **VALUES,
            "cells": range(1, self.cells + 1),
            "combine": tuple(COMBINERS),
            "layer": self.sites[str(gene[0])].layers,
            "state": range(int(gene[2]) + 1) if gene[-1] == "state" else (),
        }
        return [value for value in values[str(gene[-1])] if value != _find(point, gene)]

    def change(self, point: Point, gene: Gene, value: Any) -> Point:
        """A copy with another value of one gene; genes that it silences get their first value."""
        child = copy.deepcopy(dict(point))
        part = _find(child, gene[:-1])
        part[gene[-1]] = value
        if gene[-1] == "layer":
            _silence(part)
        block = _find(child, gene[:3]) if "blocks" in gene else None
        if block is not None and "dead" in (block[side]["layer"] for side in SIDES):
            block["combine"] = "add"
        return child

    def overrides(self, point: Point) -> tuple[str, ...]:
        """The words that build the cells of a point."""
        words = [f"size.width={self.width}", f"size.num_heads={self.num_heads}"]
        for name, site in self.sites.items():
            blocks = [_shorten(block) for block in point[name]["blocks"]]
            words += [
                f"{site.stack}.layout={site.letter}*{point[name]['cells']}",
                f"{site.cells}.{site.letter}.blocks={spell(blocks)}",
            ]
        return tuple(words)

    def brief(self, point: Point, parent: Point | None = None) -> str:
        """The name of a point that has one, else the genes that are not those of the parent, else
        cells and weights.
        """
        for name, seed in self.seeds().items():
            if point == seed:
                return name
        if parent is None:
            cells = ", ".join(f"{name} {point[name]['cells']}" for name in self.sites)
            return f"cells: {cells}; {self.count_parameters(point):,} weights"
        changed = [
            f"{_spell_gene(gene)}: {_find(parent, gene)} to {value}"
            for gene, value in _list_values(point)
            if value != _find(parent, gene)
        ]
        more = [f"and {len(changed) - SHOWN} more"] if len(changed) > SHOWN else []
        return ", ".join(changed[:SHOWN] + more)

    def problems(self, point: Point) -> str | None:
        """The first reason why cells cannot be built; None where they can."""
        if point.keys() != self.sites.keys():
            return f"a point has {' and '.join(self.sites)}"
        for name, site in self.sites.items():
            if not 1 <= point[name]["cells"] <= self.cells:
                return f"{name}.cells must be 1 to {self.cells}"
            layers = {block[side]["layer"] for block in point[name]["blocks"] for side in SIDES}
            if site.source != ("source" in layers):
                return f"{name}: {'no' if site.source else 'a'} layer reads the source"
            try:
                self.plan(point, name)
            except ConfigError as error:
                return f"{name}.{error.path} must be {error.allowed}"
        return None

    def plan(self, point: Point, name: str) -> CellPlan:
        """The columns and layers of the cells of one stack."""
        blocks = point[name]["blocks"]
        return plan_blocks(blocks, width=self.width, num_heads=self.num_heads)

    def count_parameters(self, point: Point) -> int:
        """The weights of all cells of a point by formula, without embeddings and final norms."""
        return sum(
            point[name]["cells"] * self.plan(point, name).count(self.width) for name in self.sites
        )

    def seeds(self) -> Mapping[str, Point]:
        """The Transformer, and the cells that the search of the paper has found."""
        translates = "encoder" in self.sites
        decoder = EVOLVED_DECODER if translates else EVOLVED_LANGUAGE_MODEL
        named = {
            "transformer": {
                "encoder": (3, _list_layers("attention")),
                "decoder": (3, _list_layers("attention", *["source"] * translates)),
            },
            "evolved": {"encoder": (3, EVOLVED_ENCODER), "decoder": (4, decoder)},
        }
        return {
            name: {
                site: {"cells": min(self.cells, stacks[site][0]), "blocks": stacks[site][1]}
                for site in self.sites
            }
            for name, stacks in named.items()
        }

    def _draw_stack(self, site: SearchedStack, random: np.random.Generator) -> dict[str, Any]:
        blocks: list[Any] = []
        while len(blocks) < site.blocks:
            block: Any = {side: self._draw_branch(site, len(blocks), random) for side in SIDES}
            alive = "dead" not in (branch["layer"] for branch in block.values())
            block["combine"] = _choose(tuple(COMBINERS), random) if alive else "add"
            try:
                plan_blocks([*blocks, block], width=self.width, num_heads=self.num_heads)
            except ConfigError:
                continue
            blocks.append(block)
        return {"cells": int(random.integers(1, self.cells + 1)), "blocks": blocks}

    def _draw_branch(
        self, site: SearchedStack, states: int, random: np.random.Generator
    ) -> dict[str, Any]:
        values = {**VALUES, "layer": site.layers, "state": range(states + 1)}
        branch = {gene: _choose(values[gene], random) for gene in FIRST}
        _silence(branch)
        return branch


def _choose(values: Sequence[Any], random: np.random.Generator) -> Any:
    return values[int(random.integers(len(values)))]


def _find(point: Any, gene: Gene) -> Any:
    for key in gene:
        point = point[key]
    return point


def _list_values(point: Any) -> Iterator[tuple[Gene, Any]]:
    """(the way to it, a value) for all values of a point."""
    for name, stack in point.items():
        yield (name, "cells"), stack["cells"]
        for number, block in enumerate(stack["blocks"]):
            for side in SIDES:
                for gene in FIRST:
                    yield (name, "blocks", number, side, gene), block[side][gene]
            yield (name, "blocks", number, "combine"), block["combine"]


def _spell_gene(gene: Gene) -> str:
    """`encoder 3 left layer`: the fourth block of the encoder."""
    return " ".join(str(key) for key in gene if key != "blocks")


def _silence(branch: dict[str, Any]) -> None:
    """Give the genes that say nothing their first value."""
    branch.update({gene: FIRST[gene] for gene in SILENT.get(branch["layer"], ())})


def _shorten(block: Mapping[str, Any]) -> dict[str, Any]:
    """A block without what it need not state."""
    short: dict[str, Any] = {
        side: {gene: value for gene, value in block[side].items() if value != FIRST[gene]}
        for side in SIDES
        if block[side]["layer"] != "dead"
    }
    return short if block["combine"] == "add" else {**short, "combine": block["combine"]}


def _branch(layer: str = "dead", state: int = 0, width: float = 1.0, **genes: Any) -> Any:
    norm = layer not in ("dead", "identity")
    return {**FIRST, "layer": layer, "state": state, "width": width, "norm": norm, **genes}


def _block(left: Any, right: Any = None) -> dict[str, Any]:
    return {"left": left, "right": right or _branch(), "combine": "add"}


def _residual(layer: str, state: int, **genes: Any) -> dict[str, Any]:
    """`s + layer(norm(s))`."""
    return _block(_branch(layer, state, **genes), _branch("identity", state))


def _list_layers(*attentions: str) -> list[dict[str, Any]]:
    """Two layers of the pre-norm Transformer, with these attentions before each feed-forward."""
    blocks: list[dict[str, Any]] = []
    for _ in range(2):
        for layer in attentions:
            blocks.append(_residual(layer, len(blocks)))
        blocks += _list_feed_forward(len(blocks), "relu", norm=False)
    return blocks


def _list_feed_forward(state: int, activation: str, *, norm: bool) -> list[dict[str, Any]]:
    """The two blocks of `s + down(activation(up(norm(s))))`; `norm`: one between the two maps."""
    down = _branch("convolution_1", state + 1, norm=norm)
    return [
        _block(_branch("convolution_1", state, 4.0, activation=activation)),
        _block(down, _branch("identity", state)),
    ]


EVOLVED_ENCODER = [
    _residual("gate", 0),
    _block(
        _branch("convolution_1", 1, 4.0, activation="relu"),
        _branch("convolution_3", 1, 0.5, activation="relu"),
    ),
    _block(_branch("separable_9", 2, 0.5), _branch("identity", 1)),
    _residual("attention", 3),
    *_list_feed_forward(4, "relu", norm=False),
]


def _list_branches(state: int) -> list[dict[str, Any]]:
    """The parallel convolutions of the published decoder, and one of their sum."""
    return [
        _block(
            _branch("separable_11", state, 2.0, activation="relu"),
            _branch("separable_7", state, 0.5),
        ),
        _block(_branch("separable_7", state + 1), _branch("identity", state)),
    ]


EVOLVED_DECODER = [
    _block(_branch("attention_16"), _branch("source")),
    _block(_branch("identity", 1), _branch("identity")),
    *_list_branches(2),
    _residual("attention", 4),
    _residual("source", 5),
    *_list_feed_forward(6, "silu", norm=True),
]
EVOLVED_LANGUAGE_MODEL = [
    _residual("attention_16", 0),
    *_list_branches(1),
    _residual("attention", 3),
    *_list_feed_forward(4, "silu", norm=True),
]
