"""Stacks that store only the inputs of their layers: the same numbers to the bit."""

from __future__ import annotations

import pytest
import torch

from plmctl.core.errors import ConfigError
from plmctl.nn.recorder import ATTENTION, Recorder
from plmctl.nn.stack import checkpoint_stacks
from tests.nn.saved_tensors import saved_numbers
from tests.nn.stacks import make_env, make_input, make_stack, run_stack


def _gradients(stack, x, env):
    torch.manual_seed(5)
    last, recorded = run_stack(stack, x, env, record=True)
    (last.square().sum() + sum(state.sum() for state in recorded)).backward()
    return [last.detach(), x.grad, *(p.grad for p in stack.parameters())]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("layout", ["af*3", "af@3", "a|f*3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_to_the_bit_with_dropout(layout: str, dtype: torch.dtype) -> None:
    plain, other = (make_stack(layout, dropout=0.3, dtype=dtype) for _ in range(2))
    checkpoint_stacks(other, torch.nn.Identity())
    wanted, found = (_gradients(each, make_input(dtype), make_env()) for each in (plain, other))
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)


def test_the_generator_goes_on_as_if_nothing_was_run_again() -> None:
    draws = []
    for wanted in (False, True):
        stack = make_stack("af*2", dropout=0.3)
        stack.checkpointed = wanted
        _gradients(stack, make_input(), make_env())
        draws.append(torch.rand(3))
    assert torch.equal(*draws)


@pytest.mark.slow  # a matter of memory, not of results
def test_memory_is_that_of_the_inputs() -> None:
    x, env = make_input(), make_env()
    kept = {}
    for layers in (2, 6):
        stack = make_stack(f"af*{layers}")
        plain = saved_numbers(stack, x, env)
        checkpoint_stacks(stack, torch.nn.Identity())
        kept[layers] = saved_numbers(stack, x, env)
        assert kept[layers] < plain / 4
    assert kept[6] - kept[2] == 4 * x.numel()


def test_what_is_recorded_is_recorded_once() -> None:
    stack = make_stack("af*2")
    checkpoint_stacks(stack, torch.nn.Identity())
    recorder = Recorder.of(ATTENTION)
    run_stack(stack, make_input(), make_env(recorder=recorder))[0].sum().backward()
    assert {len(found) for found in recorder.recorded.values()} == {2}


def test_a_model_without_stacks_is_refused() -> None:
    with pytest.raises(ConfigError, match="checkpoint_activations=True: false: this model has no"):
        checkpoint_stacks(torch.nn.Linear(2, 2), make_stack("af"))
