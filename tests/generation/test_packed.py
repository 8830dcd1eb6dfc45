"""Packed linear maps give what plain ones give, only while text is written, and follow the
weights.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from plmctl.generation.packed import Packed, pack_linear
from plmctl.heads.lm import LMHead


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 5), (7, 5), (1, 1, 5), (3, 1, 5), (2, 2, 5), (2, 9, 5)])
def test_the_same_product(shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(0)
    linear, x = nn.Linear(5, 11, bias=bias), torch.randn(shape)
    with torch.inference_mode():
        torch.testing.assert_close(Packed(linear.weight, linear.bias)(x), linear(x))


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
