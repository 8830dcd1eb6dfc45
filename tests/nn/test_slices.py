"""Feed-forward cells that compute a few tokens at a time: equal numbers, less memory, costs."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from plmctl.nn.cells.base import RowSize
from plmctl.nn.cells.feedforward import FeedForward
from plmctl.nn.cells.glu import GLU
from tests.nn.saved_tensors import saved_numbers
from tests.nn.stacks import T, W, make_env, make_input, make_stack, run_stack

INNER = 64
KINDS = {"feed-forward": FeedForward, "gated": GLU}
KIND = pytest.mark.parametrize("kind", KINDS)
CHUNK = pytest.mark.parametrize("chunk", [1, 3, T, 99])


def make(kind: str, chunk: int | None, layout: str = "af*2", **settings: Any) -> Any:
    cell = partial(KINDS[kind], width=W, inner_width=INNER, activation="relu", chunk=chunk)
    return make_stack(layout, more={"f": cell}, **settings)


def gradients(stack: Any, x: Tensor, env: Any) -> list[Tensor]:
    last, _ = run_stack(stack, x, env)
    return [last, *torch.autograd.grad(last.square().sum(), [x, *stack.parameters()])]


@pytest.mark.sampled(3)
@KIND
@CHUNK
@pytest.mark.parametrize("reversible", [False, True])
def test_the_numbers_are_those_of_all_at_once(kind: str, chunk: int, reversible: bool) -> None:
    wanted, found = (
        gradients(make(kind, size, reversible=reversible), make_input(), make_env())
        for size in (None, chunk)
    )
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.sampled(2)
@KIND
def test_less_is_kept(kind: str) -> None:
    """Of the wide activations, nothing is kept."""
    x, env = make_input(), make_env()
    plain, sliced = (saved_numbers(make(kind, chunk, "f"), x, env) for chunk in (None, 2))
    assert plain - sliced >= x.shape[0] * T * INNER


@pytest.mark.parametrize("reversible", [False, True])
def test_less_is_alive_at_the_peak(reversible: bool) -> None:
    """Forward and backward, as the largest tensor that any operator makes."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        size = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore
            result = function(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, tuple | list) else [result]:
                if isinstance(tensor, Tensor):
                    self.size = max(self.size, tensor.untyped_storage().nbytes())
            return result

    sizes = []
    for chunk in (None, 8):
        stack = make("feed-forward", chunk, "f", reversible=reversible, dtype=torch.float32)
        x = torch.randn(2, 512, W, requires_grad=True)
        with Largest() as largest:
            run_stack(stack, x, make_env(T))[0].sum().backward()
        sizes.append(largest.size)
    assert sizes[0] == 2 * 512 * INNER * 4
    assert sizes[1] == 2 * 512 * W * 4  # no tensor is larger than the stream


@KIND
def test_costs_say_so(kind: str) -> None:
    plain, sliced = (
        KINDS[kind](width=W, inner_width=INNER, activation="relu", chunk=chunk)
        for chunk in (None, 16)
    )
    row = RowSize(tokens=64)
    assert (plain.facts.recomputes, sliced.facts.recomputes) == (False, True)
    assert sliced.work(row).macs == plain.work(row).macs
    inner = plain.work(row).kept - 64 * W
    assert sliced.work(row).kept == 64 * W + inner / 4
    assert sliced.work(RowSize(tokens=8)).kept == plain.work(RowSize(tokens=8)).kept
