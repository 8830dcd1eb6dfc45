"""Gradient-disentangled embedding sharing: what learns from what, what is evaluated and saved."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from plmctl.core.errors import ConfigError
from plmctl.objectives.gradient_disentangled import Disentanglement
from tests.objectives.electra_parts import made, one_batch

SAME = ["objective.electra.generator.share=1", "objective.electra.generator.tied=gdes"]


def tables(model: Any, mix: Any) -> tuple[torch.nn.Parameter, torch.nn.Parameter]:
    generator = mix.parts["electra"].generator
    return model.backbone.token_embedding.weight, generator.backbone.token_embedding.weight


def test_the_tables_are_a_sum_of_which_each_loss_trains_one_part() -> None:
    _, model, mix = made(*SAME)
    own, other = tables(model, mix)
    first, (batch, _) = own.detach().clone(), one_batch()
    out = mix.train()(model.train(), batch)
    assert own.count_nonzero() == 0  # E_delta
    assert other.equal(first)  # E_G begins with the model's table
    out.terms["rtd"].total.backward()
    assert other.grad is None
    assert own.grad is not None
    gradient = own.grad.clone()
    own.grad = None
    out = mix(model, batch)
    out.terms["mlm"].total.backward()
    assert own.grad is None
    assert other.grad is not None
    with torch.no_grad():  # an update of each
        own -= 0.1 * gradient
        other += 0.2
    delta, whole = own.detach().clone(), (own + other).detach().clone()
    ids = batch.text.ids
    found = model.backbone.token_embedding(ids)
    torch.testing.assert_close(found, whole[ids])
    mix.exchange(model)  # evaluated and saved
    assert own.equal(whole)
    torch.testing.assert_close(model.backbone.token_embedding(ids), whole[ids])
    saved = {name: x.clone() for name, x in mix.state_dict().items()}, whole
    mix.exchange(model)
    assert own.equal(delta)
    # a run that goes on
    _, again, other_mix = made(*SAME, seed=5)
    other_mix.load_state_dict(saved[0])
    with torch.no_grad():
        again.backbone.token_embedding.weight.copy_(saved[1])
    other_mix.exchange(again)
    mine, theirs = tables(again, other_mix)
    assert mine.equal(delta)
    assert theirs.equal(other)
    other_mix.train()(again.train(), batch)
    assert mine.equal(delta)


def test_other_sizes_are_refused() -> None:
    with pytest.raises(ConfigError, match="share=1"):
        Disentanglement([(torch.nn.Embedding(3, 2), torch.nn.Embedding(3, 4))])
