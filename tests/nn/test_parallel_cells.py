"""Cells in parallel: one normed input, one sum."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from plmctl.config.compose import compose
from plmctl.core.errors import ConfigError
from plmctl.nn.cells.feedforward import FeedForward
from plmctl.nn.env import Streams
from plmctl.nn.layout import count_copies, parse, split_rounds
from plmctl.nn.residual import PostNorm, PreNorm, SandwichNorm
from tests.nn.stacks import INNER, W, make_env, make_input, make_stack, run_stack


@pytest.mark.parametrize(
    ("layout", "found"),
    [
        ("a|f*2", "a0|f0. a1|f1."),
        ("af*1 a|f@2", "a0 f0. a1|f1. a1|f1."),
        ("a|c|f", "a0|c0|f0."),
        ("ca|fk*2", "c0 a0|f0 k0. c1 a1|f1 k1."),
        ("a|a", "a0|a1."),
    ],
)
def test_layouts_with_cells_in_parallel(layout: str, found: str) -> None:
    said = ""
    for step in parse(layout):
        said += "|" if step.joins else " " if said else ""
        said += f"{step.letter}{step.copy}{'.' if step.ends else ''}"
    assert said == found


def test_rounds_are_what_runs_together() -> None:
    steps = list(enumerate(parse("ca|fk")))
    assert [[number for number, _ in each] for each in split_rounds(steps)] == [[0], [1, 2], [3]]
    assert count_copies(parse("a|f*3")) == {"a": 3, "f": 3}


@pytest.mark.parametrize("layout", ["|a", "a|", "a||f", "a |f", "a|*2"])
def test_wrong_layouts_are_refused(layout: str) -> None:
    with pytest.raises(ConfigError, match=r"'a\|f\*12' \(in parallel\)"):
        parse(layout)


def test_a_shared_cell_cannot_both_join_and_not() -> None:
    with pytest.raises(ConfigError, match=r"model\.stack\.share\.f=1: more copies"):
        parse("af*1 a|f*1", share={"f": 1})


@pytest.mark.parametrize("kind", [PreNorm, PostNorm, SandwichNorm])
def test_the_published_formula_as_a_literal_loop(kind: type) -> None:
    """y = x + attention(norm(x)) + feedforward(norm(x)) (Chowdhery et al., 2022, sec. 2); norms
    behind a cell are its own, that behind the sum is one.
    """
    stack, x = make_stack("a|f*3", residual=kind), make_input()
    env, state = make_env(), x
    for layer in range(3):
        a, f = stack.blocks["a"][layer], stack.blocks["f"][layer]
        read = a.norm_in(state)
        streams = Streams({"text": read})
        state = state + a.norm_out(a.cell(streams, env)) + f.norm_out(f.cell(streams, env))
        state = a.norm_sum(state)
    found, _ = run_stack(stack, x, env)
    torch.testing.assert_close(found, stack.final_norm(state), rtol=0, atol=1e-12)
    # the second has no weights of norms that would never be used
    names = {name for name, _ in stack.blocks["f"].named_parameters()}
    assert not any("norm_in" in name or "norm_sum" in name for name in names)


def test_every_weight_learns_and_layers_count() -> None:
    stack = make_stack("af*1 a|f*2")
    run_stack(stack, make_input(), make_env())[0].square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in stack.parameters())
    assert stack.num_layers == 3
    assert stack.records


def test_the_command_line_takes_it() -> None:
    cfg = compose("pretrain", "gpt2", ["model.stack.layout='af*2 a|f*10'", "data.path=x"])
    assert cfg.model.stack.layout == "af*2 a|f*10"
    cfg = compose("pretrain", "gpt2", ["model.stack.layout=a|f*2", "data.path=x"])
    assert cfg.model.stack.layout == "a|f*2"


class _Aside(FeedForward):
    writes = "other"


@pytest.mark.parametrize(
    ("layout", "reversible", "said"),
    [
        ("f|g*2", False, r"layout='f\|g\*2': cells in parallel write one stream, these write"),
        ("fg*2", True, r"reversible=True: false: the layout fg\*2 has a cell that writes other"),
    ],
)
def test_cells_of_other_streams(layout: str, reversible: bool, said: str) -> None:
    aside = partial(_Aside, width=W, inner_width=INNER, activation="gelu")
    with pytest.raises(ConfigError, match=said):
        make_stack(layout, more={"g": aside}, reversible=reversible)
