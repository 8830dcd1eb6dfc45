"""Settings of cells that differ from layer to layer."""

from __future__ import annotations

import pytest
import torch

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.errors import ConfigError
from tests.nn.stacks import W, make_env, make_input, make_stack, run_stack


def test_each_copy_has_its_own_values() -> None:
    stack = make_stack(
        "af*2 f", by_layer={"f": {"inner_width": [4, 8, 32]}, "a": {"num_heads": [1, 4]}}
    )
    assert [block.cell.up.out_features for block in stack.blocks["f"]] == [4, 8, 32]
    assert [block.cell.num_heads for block in stack.blocks["a"]] == [1, 4]
    assert run_stack(stack, make_input(), make_env())[0].shape == make_input().shape


def test_equal_values_are_the_plain_stack() -> None:
    plain, same = make_stack("af*2"), make_stack("af*2", by_layer={"f": {"inner_width": [16, 16]}})
    for one, other in zip(plain.parameters(), same.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_shared_layers_have_one_value() -> None:
    stack = make_stack("af@3", by_layer={"f": {"inner_width": [4]}})
    assert stack.blocks["f"][0].cell.up.out_features == 4


@pytest.mark.parametrize(
    ("by_layer", "said"),
    [
        ({"f": {"inner_width": [4, 8]}}, r"f\.inner_width=\[4, 8\]: a list of 3 values, one for"),
        ({"f": {"inner_width": 8}}, r"f\.inner_width=8: a list of 3 values"),
        ({"f": {"inner_with": [1, 2, 3]}}, r"a setting of 'f': .*\(did you mean 'inner_width'"),
        ({"g": {"inner_width": [1, 2, 3]}}, r"by_layer='g': a cell of the layout: a, f"),
        ({"f": {"inner_width": [1, 2, "x"]}}, r"each must be a whole number"),
        ({"a": {"num_heads": [2, 3, 2]}}, r"a\.num_heads=3: must divide size\.width=8"),
    ],
)
def test_wrong_values_are_said_where_they_stand(by_layer, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        make_stack("af*3", by_layer=by_layer)
    assert error.value.path.startswith("model.stack.by_layer")
    assert W == 8  # what the sentence about heads says


def test_the_command_line_takes_it() -> None:
    """As one value, or each cell's own."""
    for words in (
        ["model.stack.by_layer={f:{inner_width:[4,8]},a:{num_heads:[1,2]}}"],
        ["model.stack.by_layer.f.inner_width=[4,8]", "model.stack.by_layer.a.num_heads=[1,2]"],
    ):
        cfg = compose("pretrain", "gpt2", [*words, "size.num_layers=2", "data.path=x"])
        model = build_model(cfg, vocab_size=64)
        blocks = model.backbone.stack.blocks
        assert [block.cell.up.out_features for block in blocks["f"]] == [4, 8]
        assert [block.cell.num_heads for block in blocks["a"]] == [1, 2]
