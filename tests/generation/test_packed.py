"""Packed linear maps give what plain ones give, only while text is written, and follow the
weights.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from plmctl.generation import layouts
from plmctl.generation.layouts import SMALL, USUAL, LayoutPlan, find_plan
from plmctl.generation.packed import Packed, pack_linear
from plmctl.heads.lm import LMHead


@pytest.mark.parametrize("blocked", [False, True])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 5), (7, 5), (1, 1, 5), (3, 1, 5), (2, 2, 5), (2, 9, 5)])
def test_the_same_product(shape: tuple[int, ...], bias: bool, blocked: bool) -> None:
    torch.manual_seed(0)
    linear, x = nn.Linear(5, 11, bias=bias), torch.randn(shape)
    plan = LayoutPlan(blocked_row=blocked, blocked_prompt=blocked)
    with torch.inference_mode():
        torch.testing.assert_close(Packed(linear.weight, linear.bias, plan)(x), linear(x))


def test_a_row_takes_the_layout_of_the_plan() -> None:
    linear, x = nn.Linear(5, 11), torch.randn(1, 5)
    with torch.inference_mode():
        for blocked in (False, True):
            found = Packed(linear.weight, linear.bias, LayoutPlan(blocked, blocked))
            found(x)
            assert ("blocked" in vars(found), "transposed" in vars(found)) == (blocked, not blocked)


def test_a_plan_is_measured_once_on_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def measure(rows: int, size: int) -> float:
        asked.append((rows, size))
        return 2.0 if rows == 1 else 0.5

    monkeypatch.setattr(layouts, "measure_gain", measure)
    assert find_plan(SMALL) == USUAL
    assert asked == []
    size = 4 * SMALL - 1
    for _ in range(2):
        layouts._measure_plan.cache_clear()  # as another process
        assert find_plan(size) == LayoutPlan(blocked_row=True, blocked_prompt=False)
    assert [rows for rows, _ in asked] == [1, layouts._PROMPT]
    layouts._measure_plan.cache_clear()


@pytest.mark.parametrize("rows", [1, 3])
def test_a_measured_gain_is_a_ratio_of_times(rows: int) -> None:
    assert 0.01 < layouts.measure_gain(rows, 1 << 20) < 100


# fused: torch changes weights without counting a new version of them
@pytest.mark.parametrize("fused", [False, True])
def test_inside_alone_and_with_the_weights_of_now(fused: bool) -> None:
    table = nn.Embedding(64, 6)
    head = LMHead(
        width=6, vocab_size=50, token_embedding=table, tied=True, transform=True, bias=True
    )
    model = nn.Sequential(nn.Linear(4, 6), head)
    x = torch.randn(3, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, fused=fused)
    for _ in range(3):
        with torch.inference_mode():
            plain = model(x)
            with pack_linear(model):
                assert isinstance(model[0].forward, Packed)
                torch.testing.assert_close(model(x), plain, rtol=1e-5, atol=1e-5)
        model(x).square().sum().backward()  # gradients flow: nothing is packed any more
        optimizer.step()
    assert not {"forward", "product"} & {*vars(model[0]), *vars(head)}


def negate(weight: torch.Tensor) -> None:
    weight.data.neg_()


def swap(weight: torch.Tensor) -> None:  # the sum stays
    weight.data.copy_(weight.data.flip(0))


def nudge(weight: torch.Tensor) -> None:
    weight.data[2, 1] += 1e-3


@pytest.mark.parametrize("change", [negate, swap, nudge])
@pytest.mark.parametrize("shape", [(4, 6), (3, 7)])
def test_changes_of_data_are_noticed(
    change: Callable[[torch.Tensor], None], shape: tuple[int, int]
) -> None:
    model, x = nn.Sequential(nn.Linear(*shape)), torch.randn(3, shape[0])
    with torch.inference_mode(), pack_linear(model):
        model(x)
    version = model[0].weight._version
    change(model[0].weight)
    assert model[0].weight._version == version
    with torch.inference_mode():
        plain = model(x)
        with pack_linear(model):
            torch.testing.assert_close(model(x), plain, rtol=1e-5, atol=1e-5)


def test_inside_of_another_call_the_maps_stay() -> None:
    model = nn.Sequential(nn.Linear(4, 6))
    with pack_linear(model):
        outer = model[0].forward
        with pack_linear(model):
            assert model[0].forward is outer
        assert model[0].forward is outer
    assert "forward" not in vars(model[0])


def test_what_is_not_fp32_on_a_cpu_stays_as_it_is() -> None:
    model = nn.Sequential(nn.Linear(4, 6)).double()
    with pack_linear(model):
        assert "forward" not in vars(model[0])


def test_under_autocast_maps_stay_as_they_are() -> None:
    # what attention gives there
    model, x = nn.Sequential(nn.Linear(4, 6)), torch.randn(3, 4).bfloat16()
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        plain = model(x)
        with pack_linear(model):
            torch.testing.assert_close(model(x), plain, rtol=0, atol=0)


def test_an_error_leaves_the_model_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(4, 6))
    with pytest.raises(KeyError), pack_linear(model):
        raise KeyError
    assert "forward" not in vars(model[0])
