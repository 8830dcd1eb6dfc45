"""The space of the Evolved Transformer's cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.models.base import Model
from plmctl.nn.cells.branched import BranchedCell
from plmctl.nn.norm import layer_norm
from plmctl.nn.stack import Stack
from plmctl.search.evolved import EvolvedSpace, Gene
from plmctl.search.space import Point, compute_point_key

WIDTH = 32
LINE = [
    "size=tiny", f"size.inner_width={4 * WIDTH}", "data.path=x",
    "data.target_path=y", "model.start=1",
]  # fmt: skip
RECIPE = "evolved_transformer"
TRANSLATOR = EvolvedSpace(width=WIDTH)
LANGUAGE_MODEL = EvolvedSpace(system="language_model", width=WIDTH)
# sublayers of the ordinary pre-norm Transformer -> the weights of two layers in one cell of blocks
ENCODER = {"a": ("left_{}", [0, 3]), "f": ("left_{}", [1, 4])}
DECODER = {"a": ("left_{}", [0, 4]), "c": ("left_{}", [1, 5]), "f": ("left_{}", [2, 6])}


@cache
def make_model(recipe: str, *words: str) -> Model:
    line = LINE if recipe == "evolved_transformer" else LINE[:3]
    cfg = compose("pretrain", recipe, [*line, *words])
    model = build_model(cfg, vocab_size=32, seed=0).double().eval()
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
        parameter.data.add_(0.1 * noise)
    return model


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def copy_layers(stack: nn.Module, to: nn.Module, sublayers: Mapping[str, Any], letter: str) -> None:
    """Copy the weights of an ordinary stack into cells that hold two layers each."""
    for number, block in enumerate(to.blocks[letter]):  # type: ignore[index, arg-type]
        for name, (layer, blocks) in sublayers.items():
            for half, place in enumerate(blocks):
                own = stack.blocks[name][2 * number + half]  # type: ignore[index]
                cell, layers = own.cell, block.cell.layers
                block.cell.norms[str(place)].load_state_dict(own.norm_in.state_dict())
                if name == "f":
                    layers[layer.format(place)].taps.load_state_dict(cell.up.state_dict())
                    layers[layer.format(place + 1)].taps.load_state_dict(cell.down.state_dict())
                else:
                    layers[layer.format(place)].load_state_dict(cell.state_dict())


@torch.no_grad()
def test_the_transformer_as_a_point_is_the_ordinary_one() -> None:
    """The pre-norm encoder-decoder with six layers a stack: equal logits, as many weights."""
    plain = ["model.encoder.stack.layout=af*6", "model.decoder.stack.layout=acf*6"]
    ordinary = make_model(RECIPE, f"size.width={WIDTH}", *plain)
    point = TRANSLATOR.seeds()["transformer"]
    data = make_model(RECIPE, *TRANSLATOR.overrides(point))
    assert count(data) == count(ordinary)
    rest = {name: x for name, x in ordinary.state_dict().items() if ".blocks." not in name}
    data.load_state_dict(rest, strict=False)
    for end, sublayers, letter in (("encoder", ENCODER, "n"), ("decoder", DECODER, "o")):
        copy_layers(*(getattr(m.backbone, end).stack for m in (ordinary, data)), sublayers, letter)
    ids = torch.randint(4, 32, (2, 12), generator=torch.Generator().manual_seed(0))
    seq = Seq(ids, torch.full((2,), 12), full=True)
    batch = Batch(torch.arange(2), {"source": seq, "target": seq})
    one, two = (model.heads["seq2seq"](model(batch).last) for model in (ordinary, data))
    torch.testing.assert_close(one, two, rtol=0, atol=1e-6)
    assert one.std() > 0.1


@pytest.mark.parametrize(
    ("space", "recipe", "ways"),
    [
        (TRANSLATOR, "evolved_transformer", {"encoder": "n", "decoder": "o"}),
        (LANGUAGE_MODEL, "gpt2", {"": "n"}),
    ],
)
def test_the_published_cells_are_those_of_the_model_files(
    space: EvolvedSpace, recipe: str, ways: Mapping[str, str]
) -> None:
    """The blocks of conf/model, which tests/nn/test_branched.py compares with hand-made cells."""
    plans = []
    point = space.seeds()["evolved"]
    words = [word for word in space.overrides(point) if ".blocks=" not in word]
    for line in (words, space.overrides(point)):
        model = make_model(recipe, *line)
        stacks = [part for part in model.modules() if isinstance(part, Stack)]
        plans.append(
            [
                stack.blocks[name][0].cell.plan
                for stack, name in zip(stacks, ways.values(), strict=True)
            ]
        )
    assert plans[0] == plans[1]


def find_differences(space: EvolvedSpace, point: Point, other: Point) -> Iterator[tuple[Gene, Any]]:
    """(a gene, its value in `other`) for each gene that both have and that differs."""
    ours, theirs = dict(walk(point)), dict(walk(other))
    for gene in sorted({*space.genes(point)} & {*space.genes(other)}, key=str):
        if ours[gene] != theirs[gene]:
            yield gene, theirs[gene]


def walk(value: Any, way: Gene = ()) -> Iterator[tuple[Gene, Any]]:
    if isinstance(value, Mapping | list):
        for key in value if isinstance(value, Mapping) else range(len(value)):
            yield from walk(value[key], (*way, key))
    else:
        yield way, value


@pytest.mark.parametrize("space", [TRANSLATOR, LANGUAGE_MODEL])
def test_mutations_lead_from_the_transformer_to_the_published_cells(space: EvolvedSpace) -> None:
    """One gene a step, each step a value that a mutation may draw, each point valid."""
    seeds = space.seeds()
    point, goal, steps = seeds["transformer"], seeds["evolved"], 0
    while point != goal:
        for gene, value in find_differences(space, point, goal):
            assert value in space.values(point, gene)
            child = space.change(point, gene, value)
            if space.problems(child) is None:
                before, after = dict(walk(point)), dict(walk(child))
                changed = {way for way in before if before[way] != after[way]}
                silenced = {way for way in changed if way not in set(space.genes(child))}
                assert changed - silenced == {gene}
                point, steps = child, steps + 1
                break
        else:
            raise AssertionError(f"no valid step from {point}")
    assert 10 < steps < 80


@pytest.mark.parametrize("space", [TRANSLATOR, LANGUAGE_MODEL])
def test_mutants_and_draws_can_be_built(space: EvolvedSpace) -> None:
    """Every point that comes out is valid; a mutant differs, and its parent stays as it was."""
    random = np.random.default_rng(0)
    parent = space.seeds()["transformer"]
    key = compute_point_key(parent)
    children = [space.mutate(parent, random) for _ in range(40)]
    drawn = [space.draw(random) for _ in range(20)]
    assert all(space.problems(point) is None for point in [*children, *drawn])
    assert compute_point_key(parent) == key not in map(compute_point_key, children)
    assert len(set(map(compute_point_key, drawn))) == len(drawn)
    again = np.random.default_rng(0)
    assert children[:3] == [space.mutate(parent, again) for _ in range(3)]


def test_a_mutation_changes_each_gene_equally_often() -> None:
    """With rate 0, one gene of all that say something; a silent gene never changes."""
    space = EvolvedSpace(system="language_model", width=WIDTH, rate=0.0)
    parent, random = space.seeds()["transformer"], np.random.default_rng(0)
    before, genes = dict(walk(parent)), set(space.genes(parent))
    hits: dict[Gene, int] = {}
    for _ in range(800):
        after = dict(walk(space.mutate(parent, random)))
        changed = {way for way in before if before[way] != after[way]} & genes
        layers = {way for way in changed if way[-1] == "layer"}
        gene = min(layers or changed, key=str)
        hits[gene] = hits.get(gene, 0) + 1
    free = [gene for gene in genes if gene[-1] in ("norm", "activation")]
    assert all(hits.get(gene, 0) > 800 / len(genes) / 5 for gene in free)
    assert set(hits) <= genes


def test_parameters_by_formula_of_200_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """The formula's number is that of the cells as they are built, with their norms."""
    monkeypatch.setattr(nn.Linear, "reset_parameters", lambda self: None)  # values do not count
    random = np.random.default_rng(1)
    for number in range(200):
        space = (TRANSLATOR, LANGUAGE_MODEL)[number % 2]
        point = space.draw(random)
        built = 0
        with torch.device("meta"):
            for name, stack in point.items():
                cell = BranchedCell(
                    width=WIDTH,
                    blocks=stack["blocks"],
                    num_heads=space.num_heads,
                    norm=lambda width: layer_norm(width=width, eps=1e-6),
                    causal=name == "decoder",
                    dropout=0.0,
                )
                built += stack["cells"] * count(cell)
        assert space.count_parameters(point) == built


def test_parameters_of_a_whole_model_by_formula() -> None:
    """Cells, tables of tokens, two final norms: nothing else has weights."""
    point = TRANSLATOR.draw(np.random.default_rng(3))
    model = build_model(
        compose("pretrain", "evolved_transformer", [*LINE, *TRANSLATOR.overrides(point)]),
        vocab_size=64,
        seed=0,
    )
    cells = [part for part in model.modules() if isinstance(part, BranchedCell)]
    assert len(cells) == sum(stack["cells"] for stack in point.values())
    rest = count(model) - 2 * 2 * WIDTH - 64 * WIDTH
    assert TRANSLATOR.count_parameters(point) == sum(map(count, cells)) == rest


@pytest.mark.parametrize(
    ("way", "value", "said"),
    [
        (("decoder", "cells"), 9, "decoder.cells must be 1 to 4"),
        (("decoder", "blocks", 0, "left", "state"), 1, r"decoder.blocks\[0\].left.state must be 0"),
        (("encoder", "blocks", 0, "left", "layer"), "source", "encoder: a layer reads the source"),
        (("encoder", "blocks", 0, "left", "width"), 0.51, "whole columns of 32"),
    ],
)
def test_a_point_that_cannot_be_built_says_why(way: Gene, value: Any, said: str) -> None:
    point = TRANSLATOR.change(TRANSLATOR.seeds()["transformer"], way, value)
    assert said.replace("\\", "") in (TRANSLATOR.problems(point) or "")


def test_a_decoder_without_source_is_refused() -> None:
    point = TRANSLATOR.seeds()["transformer"]
    for block in (1, 5):
        point = TRANSLATOR.change(point, ("decoder", "blocks", block, "left", "layer"), "gate")
    assert TRANSLATOR.problems(point) == "decoder: no layer reads the source"
    assert "a point has encoder and decoder" in (TRANSLATOR.problems({}) or "")


@pytest.mark.parametrize("space", [TRANSLATOR, LANGUAGE_MODEL])
def test_a_point_in_few_words(space: EvolvedSpace) -> None:
    """A name, or the genes that are not those of the parent, or cells and weights; never long."""
    random = np.random.default_rng(0)
    seeds = space.seeds()
    assert [space.brief(point) for point in seeds.values()] == list(seeds)
    parent = seeds["transformer"]
    child = space.change(parent, ("decoder", "blocks", 0, "left", "width"), 2.5)
    assert space.brief(child, parent) == "decoder 0 left width: 1.0 to 2.5"
    for _ in range(20):
        drawn = space.draw(random)
        assert f"{space.count_parameters(drawn):,} weights" in space.brief(drawn)
        child = space.mutate(drawn, random)
        assert 0 < len(space.brief(child, drawn)) < 120
        assert len(space.brief(child)) < 80
