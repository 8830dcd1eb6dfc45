"""Weights of 8 and 4 bits: their numbers by loops, the products of the kernels, and the texts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from plmctl.core.errors import ConfigError
from plmctl.generation.few_bits import Int4Map, Int8Map
from plmctl.generation.packed import LAYOUTS, Packed, pack_linear


def draw(outputs: int = 32, inputs: int = 128) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(inputs, outputs)


def test_8_bits_by_a_loop() -> None:
    linear = draw()
    found = Int8Map(linear.weight, linear.bias)
    for row, weights in enumerate(linear.weight.tolist()):
        scale = max(abs(weight) for weight in weights) / 127
        assert [round(weight / scale) for weight in weights] == found.rounded[row].tolist()
        assert max(map(abs, found.rounded[row].tolist())) == 127
        assert float(found.scale[row]) == pytest.approx(scale, rel=2**-8)  # in bf16


@pytest.mark.parametrize(("inputs", "group"), [(128, 64), (96, 32)])
def test_4_bits_by_a_loop(inputs: int, group: int) -> None:
    linear = draw(inputs=inputs)
    found = Int4Map(linear.weight, linear.bias)
    assert found.group == group
    rebuilt = found.rebuilt
    for row, weights in enumerate(linear.weight.tolist()):
        for start in range(0, inputs, group):
            some = weights[start : start + group]
            step = (max(some) - min(some)) / 15
            for place, weight in enumerate(some, start):
                level = round((weight - min(some)) / step)
                own = min(some) + level * step
                assert float(rebuilt[row, place]) == pytest.approx(
                    own, abs=2**-6 * max(map(abs, some))
                )


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", ["int8", "int4"])
@pytest.mark.parametrize("rows", [(1,), (5,), (1, 1), (3, 2), (40,)])
def test_the_product_is_that_of_the_rebuilt_weights(
    rows: tuple[int, ...], name: str, bias: bool
) -> None:
    linear = draw()
    found: Any = LAYOUTS[name](linear.weight, linear.bias if bias else None)
    x = torch.randn(*rows, 128)
    with torch.inference_mode():
        wanted = x.bfloat16().float() @ found.rebuilt.t()
        wanted = wanted + linear.bias if bias else wanted
        torch.testing.assert_close(found(x), wanted, rtol=2e-2, atol=2e-2)
        assert found(x).dtype == torch.float32


def test_4_bits_of_any_number_of_outputs() -> None:
    whole, x = draw(outputs=48), torch.randn(3, 128)
    all_rows, some = Int4Map(whole.weight, whole.bias), Int4Map(whole.weight[:37], whole.bias[:37])
    with torch.inference_mode():
        torch.testing.assert_close(some(x), all_rows(x)[:, :37], rtol=0, atol=0)
    torch.testing.assert_close(some.rebuilt, all_rows.rebuilt[:37], rtol=0, atol=0)


def test_a_shape_that_no_kernel_knows_stays_in_fp32() -> None:
    model = nn.Sequential(nn.Linear(24, 10), nn.Linear(64, 32))
    with pack_linear(model, "int4"):
        assert isinstance(model[0].forward, Packed)
        assert isinstance(model[1].forward, Int4Map)
    with pack_linear(model, "int8"):
        assert isinstance(model[1].forward, Int8Map)
    with pack_linear(model):
        assert isinstance(model[1].forward, Packed)


def test_fewer_bits_are_of_fp32_on_a_cpu() -> None:
    model = nn.Sequential(nn.Linear(64, 32)).double()
    with pytest.raises(ConfigError, match="weights"), pack_linear(model, "int8"):
        pass
