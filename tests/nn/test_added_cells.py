"""Cells that are added to a layout of any depth: published layouts, shared weights, cells that run
together, the names of trained weights, mistakes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from plmctl.core.errors import ConfigError
from plmctl.nn.added_cells import add_cells, rename_plain
from plmctl.nn.cells.feedforward import FeedForward
from plmctl.nn.layout import parse, spell_layer, split_layers
from plmctl.nn.norm import layer_norm
from plmctl.nn.residual import PostNorm
from plmctl.nn.stack import Stack

ERNIE = {"m": {"before": "x", "layers": [0.5, 1]}, "x": {"replaces": "f", "layers": [0.42, 1]}}
KNOWBERT = {"k": {"after": "f", "layers": [0.75, 0.84]}}
TWO_BASES = {**KNOWBERT, "w": {"after": "f", "layers": [0.84]}}


def spell(layout: str, adds: Any) -> list[str]:
    steps = add_cells(parse(layout), adds).steps
    return [spell_layer([step for _, step in layer]) for layer in split_layers(steps)]


@pytest.mark.parametrize(
    ("layout", "adds", "published"),
    [
        ("af*12", ERNIE, "af*5 ax amx*6"),
        ("af*2", ERNIE, "ax amx"),
        ("saf*4", ERNIE, "saf sax samx*2"),
        ("af*12", KNOWBERT, "af*9 afk af*2"),
        ("af*2", KNOWBERT, "afk af"),
        ("af", KNOWBERT, "afk"),
        ("a|f*4", KNOWBERT, "a|f*2 a|fk a|f"),
        ("af*12", TWO_BASES, "af*9 afk afw af"),
        ("af*2", TWO_BASES, "afk afw"),
        ("a|f*2", {"k": {"before": "f", "layers": [0, 0.5]}}, "ka|f a|f"),
        ("af*2", {}, "af*2"),
    ],
)
def test_layouts_of_any_depth(layout: str, adds: Any, published: str) -> None:
    assert spell(layout, adds) == spell(published, {})
    plain = [(s.letter, s.ends, s.joins) for s in parse(published)]
    assert [(s.letter, s.ends, s.joins) for s in add_cells(parse(layout), adds).steps] == plain


@pytest.mark.sampled(5)
@pytest.mark.parametrize("depth", range(2, 49))
def test_two_bases_stand_in_different_layers(depth: int) -> None:
    layers = spell(f"af*{depth}", TWO_BASES)
    assert sum("w" in layer for layer in layers) == 1
    assert any("k" in layer for layer in layers)
    assert not any({*"kw"} <= {*layer} for layer in layers)


def test_copies_and_where_they_come_from() -> None:
    extended = add_cells(parse("af*4"), ERNIE)
    assert [(s.letter, s.copy) for s in extended.steps] == [
        ("a", 0), ("f", 0), ("a", 1), ("x", 0), ("a", 2), ("m", 0), ("x", 1), ("a", 3), ("m", 1),
        ("x", 2),
    ]  # fmt: skip
    assert extended.origins == {
        **{("a", n): ("a", n) for n in range(4)},
        ("f", 0): ("f", 0), ("x", 0): ("f", 1), ("x", 1): ("f", 2), ("x", 2): ("f", 3),
    }  # fmt: skip
    middle = add_cells(parse("af*3"), {"x": {"replaces": "f", "layers": [0.34, 0.67]}})
    assert middle.origins["f", 1] == ("f", 2)
    shared = add_cells(parse("af@4"), ERNIE)  # ALBERT
    assert {(s.letter, s.copy) for s in shared.steps} == {(letter, 0) for letter in "afxm"}
    assert shared.origins["x", 0] == ("f", 0)


def test_names_of_trained_weights() -> None:
    names = [
        f"b.{letter}.{n}.{end}" for letter in "af" for n in range(2) for end in ("cell.up", "norm")
    ]
    tensors = {name: torch.tensor(number) for number, name in enumerate([*names, "other"])}
    adds = {"x": {"replaces": "f", "layers": [0.5, 1]}}
    origins = add_cells(parse("af*2"), adds).origins
    continues = {"a": "", "f": "", "x": "words"}
    renamed = rename_plain(tensors, origins, continues, stack="b")
    changed = {"b.f.1.cell.up": "b.x.0.cell.words.up", "b.f.1.norm": "b.x.0.norm"}
    assert renamed == {changed.get(name, name): tensor for name, tensor in tensors.items()}


def test_the_last_copy_has_settings_of_its_own() -> None:
    norm = partial(layer_norm, width=8, eps=1e-12)
    cell = partial(FeedForward, width=8, inner_width=16, activation="gelu")
    adds = {"x": {"replaces": "f", "layers": [0.5, 1], "last": {"inner_width": 4}}}
    stack = Stack(
        layout="f*4", cells={"f": cell, "x": cell}, residual=PostNorm(norm=norm, dropout=0.0),
        adds=adds,
    )  # fmt: skip
    maps: list[nn.Linear] = [stack.block(step).cell.projection for step in stack.steps]
    assert [part.in_features for part in maps] == [16, 16, 16, 4]


@pytest.mark.parametrize(
    ("adds", "answer"),
    [
        ({"f": {"after": "a"}}, "a letter that the layout has not: af af"),
        ({"k": {"after": "g"}}, "fix: model.stack.adds.k.after=f"),
        ({"k": {"layers": [0, 1]}}, "one of replaces, before, after"),
        ({"k": {"after": "f", "layer": 1}}, "one of replaces, before, after"),
        ({"k": {"after": "f", "layers": [1, 0.5]}}, "shares of the depth"),
        ({"k": {"after": "f", "layers": 3}}, "shares of the depth"),
        ({"k": {"after": "f", "layers": [1]}}, "shares of the depth"),
    ],
)
def test_what_is_refused(adds: Any, answer: str) -> None:
    with pytest.raises(ConfigError, match="adds") as refused:
        add_cells(parse("af*2"), adds)
    assert answer in str(refused.value)
