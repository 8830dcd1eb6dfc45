"""Weights of 8 and 4 bits: their numbers by loops, the products of the kernels, and the texts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from plmctl.core.errors import ConfigError
from plmctl.core.machine import cpu_sums_int8
from plmctl.generation import packed
from plmctl.generation.few_bits import Int4Map, Int8Map, Int8Product
from plmctl.generation.packed import LAYOUTS, Packed, pack_linear

units = pytest.mark.skipif(not cpu_sums_int8(), reason="a processor without VNNI")


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


@units
@pytest.mark.parametrize("bias", [True, False])
def test_8_bits_of_inputs_by_a_loop(bias: bool) -> None:
    linear, x = draw(), 3 * torch.randn(2, 3, 128)
    x[0, 0] = 0
    found = Int8Product(linear.weight, linear.bias if bias else None)
    with torch.inference_mode():
        y = found(x)
    assert y.shape == (2, 3, 32)
    for row, result in zip(x.view(6, -1).tolist(), y.view(6, -1).tolist(), strict=True):
        top = max(1e-12, *(abs(value) for value in row))
        inputs = [round(value * 127 / top) for value in row]
        for n, (weights, own) in enumerate(zip(linear.weight.tolist(), result, strict=True)):
            scale = max(abs(weight) for weight in weights) / 127
            whole = sum(round(w / scale) * q for w, q in zip(weights, inputs, strict=True))
            wanted = whole * scale * top / 127 + (linear.bias.tolist()[n] if bias else 0.0)
            # of x.5, fp32 may round one number to the other side
            assert own == pytest.approx(wanted, abs=1.01 * scale * 127 * top / 127, rel=1e-5)
    torch.testing.assert_close(y, linear(x) - (0 if bias else linear.bias), rtol=0, atol=0.05)


@units
def test_sums_of_8_bits_are_exact_and_no_row_changes_another() -> None:
    inputs, outputs = 1024, 48
    x = torch.randint(-127, 128, (7, inputs)).float()
    x[0], x[:, 0] = 127, 127  # the largest sums
    weight = torch.randint(-127, 128, (outputs, inputs)).float()
    weight[0], weight[:, 0] = 127, 127
    found = Int8Product(weight, None)
    with torch.inference_mode():
        torch.testing.assert_close(found(x), x @ weight.t(), rtol=1e-6, atol=0.5)
        for row in range(len(x)):
            assert torch.equal(found(x[row : row + 1])[0], found(x)[row])


@units
def test_rounding_inputs_takes_less_time_than_their_product() -> None:
    x, weight = torch.randn(256, 2048), torch.randn(512, 2048)
    found, kernel = Int8Product(weight, torch.randn(512)), torch.ops.onednn.qlinear_pointwise
    inputs = torch.randint(256, x.shape, dtype=torch.uint8)
    how = (found.scale, found.zero, None, 1.0, 0, torch.float32, "none", [], "")

    def measure(compute: Callable[[], object]) -> float:
        times = []
        for _ in range(9):
            began = time.thread_time()
            compute()
            times.append(time.thread_time() - began)
        return min(times)

    with torch.inference_mode():
        alone = measure(lambda: kernel(inputs, 1.0, 128, found.packed, *how))
        assert measure(lambda: found(x)) < 2 * alone


def test_without_units_inputs_keep_their_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "cpu_sums_int8", lambda: False)
    model = nn.Sequential(nn.Linear(64, 32))
    with pytest.raises(ConfigError, match="VNNI"), pack_linear(model, "w8a8"):
        pass
    assert "forward" not in vars(model[0])


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
