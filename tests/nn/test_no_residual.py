"""Plain layers on top of each other, without residual sums and norms."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from plmctl.core.errors import ConfigError
from plmctl.nn.residual import NoResidual
from tests.nn.stacks import make_env, make_input, make_stack, run_stack


def plain(**settings: Any) -> NoResidual:
    return NoResidual(dropout=settings["dropout"])


def test_each_layer_reads_what_the_one_before_gives() -> None:
    stack, x = make_stack("f*3", residual=plain), make_input()
    wanted = x
    blocks: Any = stack.blocks["f"]
    for block in blocks:
        up, down = block.cell.up, block.cell.down
        wanted = torch.nn.functional.gelu(wanted @ up.weight.T + up.bias) @ down.weight.T
        wanted = wanted + down.bias
    torch.testing.assert_close(run_stack(stack, x, make_env())[0], wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("layout", "settings", "said"),
    [
        ("f|f", {}, "nothing to add up"),
        ("f*2", {"reversible": True}, "residual sums, which can be inverted, unlike NoResidual"),
        ("f*2", {"columns": {"f": [0, 0.5]}, "width": 8}, "writes all columns"),
    ],
)
def test_what_needs_residual_sums_is_refused(
    layout: str, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        make_stack(layout, residual=plain, **settings)
