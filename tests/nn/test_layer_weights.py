"""Layers that read a weighted sum of all results before them, against a loop over layers."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.errors import ConfigError
from plmctl.nn.env import Streams
from plmctl.nn.halting import Halting
from plmctl.nn.layer_weights import LayerWeights
from plmctl.nn.residual import PostNorm, PreNorm
from plmctl.runs.contract.stand_in import TINY
from plmctl.training.optim.groups import has_decay
from tests.nn.stacks import W, make_env, make_input, make_stack, run_stack

LAYERS = 3


def make(residual=PreNorm, **settings):
    weighted = partial(LayerWeights, **settings)
    return make_stack(f"af*{LAYERS}", residual=residual, weighted=weighted)


def block(stack, letter, number):
    return stack.blocks[letter][number]


def cell(stack, letter, number, x, env):
    """The cell of a block for the norm of x, without its residual sum."""
    part = block(stack, letter, number)
    return part.cell(Streams({"text": part.norm_in(x)}), env)


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("output", [False, True])
def test_elc_bert_as_its_equations(normalised, output):
    stack, x, env = make(normalised=normalised, output=output), make_input(), make_env()
    for scores in stack.weighted.scores:
        torch.nn.init.normal_(scores)
    results = [x]
    for n in range(LAYERS):
        alpha = torch.softmax(stack.weighted.scores[n], 0)
        read = sum(alpha[i] * results[i] for i in range(n + 1))
        attention = cell(stack, "a", n, read, env)
        h = attention + cell(stack, "f", n, attention + read, env)
        if normalised:
            mean, spread = h.mean(-1, keepdim=True), h.var(-1, unbiased=False, keepdim=True)
            h = (h - mean) / (spread + 1e-5).sqrt()
        results.append(h)
    last = results[-1]
    if output:
        alpha = torch.softmax(stack.weighted.scores[LAYERS], 0)
        last = sum(alpha[i] * results[i] for i in range(LAYERS + 1))
    torch.testing.assert_close(run_stack(stack, x, env)[0], stack.final_norm(last))


def test_dense_states_as_their_equation_and_at_first_the_plain_stack():
    stack, x, env = make(kind="states"), make_input(), make_env()
    plain = make_stack(f"af*{LAYERS}", residual=PreNorm)
    stack.weighted.start(torch.default_generator)
    own = {k: v for k, v in stack.state_dict().items() if not k.startswith("weighted")}
    plain.load_state_dict(own)
    torch.testing.assert_close(run_stack(stack, x, env)[0], run_stack(plain, x, env)[0])
    for scores in stack.weighted.scores:
        torch.nn.init.normal_(scores)
    results = [x]
    for n in range(LAYERS):
        read = sum(stack.weighted.scores[n][i] * results[i] for i in range(n + 1))
        after = read + cell(stack, "a", n, read, env)
        results.append(after + cell(stack, "f", n, after, env))
    last = sum(stack.weighted.scores[LAYERS][i] * results[i] for i in range(LAYERS + 1))
    torch.testing.assert_close(run_stack(stack, x, env)[0], stack.final_norm(last))


def test_first_weights_and_decay():
    changes, states = LayerWeights(num_layers=2), LayerWeights(num_layers=2, kind="states")
    assert [scores.tolist() for scores in changes.scores] == [[0], [0, 0]]
    assert [scores.tolist() for scores in states.scores] == [[1], [0, 1], [0, 0, 1]]
    assert changes.weights(1).tolist() == [0.5, 0.5]
    assert not any(has_decay(name, p) for name, p in changes.named_parameters())


def test_recorded_states_are_those_after_each_layer():
    stack, x, env = make(), make_input(), make_env()
    streams, recorded = stack(Streams({"text": x}), env, record=True)
    assert len(recorded) == LAYERS + 1
    assert torch.equal(recorded[0], x)
    assert torch.equal(recorded[-1], streams["text"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"residual": PostNorm}, r"unlike PostNorm\n  fix: model\.stack\.residual"),
        ({"reversible": True}, r"model\.stack\.weighted=null"),
        ({"halting": Halting(width=W)}, r"model\.stack\.weighted=null"),
    ],
)
def test_what_does_not_go_with_it(settings, message):
    settings = {"residual": PreNorm, "weighted": LayerWeights, **settings}
    with pytest.raises(ConfigError, match=message):
        make_stack("af*2", **settings)


def test_it_is_a_setting_of_a_model():
    words = ["size=tiny", "size.width=16", "size.inner_width=32", "model=decoder", "pattern=full"]
    target = "plmctl.nn.layer_weights.LayerWeights"
    words += [f"model.stack.weighted={{_target_: {target}, _partial_: true}}"]
    config = compose("pretrain", "bert", words)
    model = build_model(config, vocab_size=TINY.size, vocab=TINY)
    names = [name for name, _ in model.named_parameters() if "weighted" in name]
    assert len(names) == model.backbone.stack.num_layers
    assert model.backbone.list_layer_parts() == []
