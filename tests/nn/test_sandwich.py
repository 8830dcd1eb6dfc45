"""Sandwich orders (Press et al., 2020, sec. 4): the same cells, weights and work, in another
order.
"""

from __future__ import annotations

import pytest
import torch

from plmctl.artifacts.assemble import build_model
from plmctl.artifacts.cost import Cost, cost
from plmctl.config.compose import compose
from plmctl.core.errors import ConfigError
from plmctl.nn.env import Streams
from tests.nn.stacks import make_env, make_input, make_stack, run_stack

LAYERS = 4


def test_none_is_the_ordinary_stack() -> None:
    plain, same = make_stack("af*3"), make_stack("af*3", sandwich=0)
    same.load_state_dict(plain.state_dict())
    results = [run_stack(stack, make_input(), make_env())[0] for stack in (plain, same)]
    torch.testing.assert_close(*results, rtol=0, atol=0)


@pytest.mark.parametrize("k", [1, 2])
def test_the_string_of_cells_as_a_loop(k: int) -> None:
    """With the weights of an ordinary stack, by their own names."""
    plain, stack = make_stack("af*3"), make_stack("af*3", sandwich=k)
    stack.load_state_dict(plain.state_dict())
    env, state = make_env(), make_input()
    numbers = {"a": 0, "f": 0}
    for letter in "a" * k + "af" * (3 - k) + "f" * k:
        block = plain.blocks[letter][numbers[letter]]
        numbers[letter] += 1
        state = state + block.cell(Streams({"text": block.norm_in(state)}), env)
    assert numbers == {"a": 3, "f": 3}
    result, _ = run_stack(stack, make_input(), env)
    torch.testing.assert_close(result, plain.final_norm(state), rtol=0, atol=1e-12)
    assert (result - run_stack(plain, make_input(), env)[0]).abs().max() > 1e-3


def measure(recipe: str, k: int) -> Cost:
    words = [f"model.stack.sandwich={k}", "size=tiny", f"size.num_layers={LAYERS}", "data.path=x"]
    model = build_model(compose("pretrain", recipe, words), vocab_size=64)
    return cost(model, length=64, predicted={})


@pytest.mark.parametrize("recipe", ["gpt2", "bert"])
def test_weights_and_work_do_not_depend_on_k(recipe: str) -> None:
    plain = measure(recipe, 0)
    for k in range(1, LAYERS):
        sandwich = measure(recipe, k)
        assert sandwich.total_parameters == plain.total_parameters
        assert sandwich.flops_per_token == plain.flops_per_token
        assert sandwich.macs_per_token == plain.macs_per_token
        assert sandwich.saved_per_row == plain.saved_per_row


def test_both_stacks_of_an_encoder_decoder_take_it() -> None:
    words = ["model.encoder.stack.sandwich=1", "model.decoder.stack.sandwich=2"]
    files = ["data.path=a", "data.target_path=b", "size=tiny", "size.num_layers=3"]
    cfg = compose("pretrain", "transformer", [*words, *files])
    backbone = build_model(cfg, vocab_size=64).backbone
    letters = [
        "".join(step.letter for step in part.stack.steps)
        for part in (backbone.encoder, backbone.decoder)
    ]
    assert letters == ["aafaff", "acacacfff"]


def test_the_setting_is_named() -> None:
    with pytest.raises(ConfigError, match=r"model\.stack\.sandwich=7: 0 to 2 in the layout"):
        make_stack("af*3", sandwich=7)
