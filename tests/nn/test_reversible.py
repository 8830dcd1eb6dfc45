"""Reversible stacks: the gradients of the same two streams with stored activations, and memory that
does not grow with depth.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch

from plmctl.core.errors import ConfigError, PlmctlError
from plmctl.nn.env import Streams
from plmctl.nn.recorder import ATTENTION, Recorder
from plmctl.nn.residual import PostNorm, SandwichNorm
from tests.nn.saved_tensors import saved_numbers
from tests.nn.stacks import B, T, W, make_env, make_input, make_stack, run_stack


def _literal(stack, x, env, source=None):
    """y1 = x1 + a(x2), y2 = x2 + f(y1), ... and half their sum or both, with stored activations."""

    def joined(first, second):
        return (first + second) / 2 if stack.join == "mean" else torch.cat([first, second], -1)

    one, two, states, first = x, x, [joined(x, x)], True
    for layer in stack.rounds:
        for steps in layer:
            read = Streams({"text": stack.block(steps[0][1]).norm_in(two), "source": source})
            blocks = [stack.block(step) for _, step in steps]
            made = sum(each.dropout(each.norm_out(each.cell(read, env))) for each in blocks)
            one, two = two, one + made  # the one that changes next stands first
            first = not first
        states.append(joined(*((one, two) if first else (two, one))))
    last = stack.final_norm(states[-1])
    return last, [*states[:-1], last]


def _gradients(run, stack, x, env, source):
    torch.manual_seed(5)
    last, recorded = run(stack, x, env, source=source)
    (last.square().sum() + sum(state.cos().sum() for state in recorded)).backward()
    inputs = [x] if source is None else [x, source]
    found = {name: p.grad.clone() for name, p in stack.named_parameters()}
    found |= {f"input {place}": each.grad.clone() for place, each in enumerate(inputs)}
    stack.zero_grad()
    for each in inputs:
        each.grad = None
    return last.detach(), found


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("layout", ["af*6", "af@6", "a|f*5", "acf*3", "a*2 af*2 f"])
@pytest.mark.parametrize(("dtype", "apart"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_gradients_are_those_of_stored_activations(layout, dropout, dtype, apart) -> None:
    stack = make_stack(layout, dropout=dropout, dtype=dtype, reversible=True)
    x, env = make_input(dtype), make_env(source=4)
    source = make_input(dtype, length=4) if "c" in layout else None
    run = partial(run_stack, record=True)
    wanted, found = (_gradients(each, stack, x, env, source) for each in (_literal, run))
    torch.testing.assert_close(found[0], wanted[0], rtol=0, atol=0)
    torch.testing.assert_close(found[1], wanted[1], rtol=apart, atol=apart)


@pytest.mark.parametrize("layout", ["af*3", "a*2 f", "acf*2"])
def test_both_streams_side_by_side(layout) -> None:
    """The published end: 2 W columns under one norm, whether steps are even or odd."""
    stack = make_stack(layout, dropout=0.3, reversible=True, join="concatenate")
    x, env = make_input(), make_env(source=4)
    source = make_input(length=4) if "c" in layout else None
    run = partial(run_stack, record=True)
    wanted, found = (_gradients(each, stack, x, env, source) for each in (_literal, run))
    torch.testing.assert_close(found[0], wanted[0], rtol=0, atol=0)
    torch.testing.assert_close(found[1], wanted[1], rtol=1e-10, atol=1e-10)
    assert found[0].shape == (B, T, 2 * W)
    assert stack.final_norm.weight.shape == (2 * W,)
    assert stack.widening == 2


def test_one_stream_has_nothing_to_join() -> None:
    with pytest.raises(ConfigError, match=r"(?s)join=.concatenate.*reversible=true"):
        make_stack("af*2", join="concatenate")


def test_frozen_layers_and_inputs_without_gradient() -> None:
    """What is below the lowest weight that learns is not gone back through."""
    stack, x = make_stack("af*3", reversible=True), make_input().detach()
    for letter in "af":
        stack.blocks[letter][0].requires_grad_(False)
    for run in (_literal, run_stack):
        run(stack, x, make_env())[0].square().sum().backward()
        grads = {n: p.grad for n, p in stack.named_parameters() if p.grad is not None}
        if run is _literal:
            wanted = grads
        stack.zero_grad()
    torch.testing.assert_close(grads, wanted, rtol=1e-10, atol=1e-10)
    assert len(grads) < len(list(stack.parameters()))


@pytest.mark.slow  # gradients are those of stored activations
def test_memory_does_not_grow_with_depth() -> None:
    x, env, kept = make_input(), make_env(), {}
    for layers in (2, 4, 12):
        stored = saved_numbers(make_stack(f"af*{layers}"), x, env)
        kept[layers] = saved_numbers(make_stack(f"af*{layers}", reversible=True), x, env)
        assert kept[layers] < stored / 4
    assert kept[2] == kept[4] == kept[12] <= 6 * B * T * W


def test_the_generator_goes_on_as_if_nothing_was_run_again() -> None:
    stack, x = make_stack("af*3", dropout=0.3, reversible=True), make_input()
    draws = []
    for run in (_literal, run_stack):
        torch.manual_seed(5)
        run(stack, x, make_env())[0].sum().backward()
        draws.append(torch.rand(3))
    assert torch.equal(*draws)


def test_what_is_recorded_is_recorded_once() -> None:
    stack, recorder = make_stack("af*2", reversible=True), Recorder.of(ATTENTION)
    run_stack(stack, make_input(), make_env(recorder=recorder))[0].sum().backward()
    assert {len(found) for found in recorder.recorded.values()} == {2}


def test_reading_without_gradients_stores_nothing() -> None:
    stack, x = make_stack("af*2", reversible=True), make_input()
    with torch.no_grad():
        last, _ = run_stack(stack, x, make_env())
    torch.testing.assert_close(last, _literal(stack, x, make_env())[0].detach())


def test_a_second_way_back_is_refused() -> None:
    stack, x = make_stack("af*2", reversible=True), make_input()
    last = run_stack(stack, x, make_env())[0].sum()
    torch.autograd.grad(last, x, retain_graph=True)
    with pytest.raises(PlmctlError, match=r"needs model\.stack\.reversible=false"):
        last.backward()


def test_a_norm_of_sums_has_no_way_back() -> None:
    with pytest.raises(ConfigError, match=r"reversible=True: no norm after a sum.* PostNorm"):
        make_stack("af*2", residual=PostNorm, reversible=True)
    make_stack("af*2", residual=SandwichNorm, reversible=True)
