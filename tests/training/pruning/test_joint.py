"""Gates of cells and units against autograd over explicit ones, and their share at the end."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from plmctl.objectives.base import Output
from plmctl.training.pruning.joint import Joint
from tests.training.pruning.driven import DOWN, OUT, loss_of, make_batch, take_up, update

HOW: Any = {"sparsity": 0.5, "start": 0.3, "lr": 0.1, "warm_up": 0.4, "end_at": 0.6}


def keys(name: str) -> tuple[str, str]:
    place = name.replace(".", "/")
    return f"cell/{place}", f"unit/{place}"


def opened(score: Tensor, u: Tensor) -> Tensor:
    """A gate of Louizos et al. (2018), eq. 10 and 11."""
    s = torch.sigmoid((u.log() - (1 - u).log() + score) / (2 / 3))
    return (s * 1.2 - 0.1).clamp(0, 1)


def test_scores_and_multipliers_have_the_gradients_of_explicit_gates() -> None:
    part = Joint(**HOW)
    model = take_up(part)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.0)
    for number, own in enumerate(part.scores.values()):
        own.data += 0.1 * number
    part.multipliers["linear"].data.fill_(0.7)
    part.multipliers["square"].data.fill_(2.0)
    part.before_step(model, optimizer, 0.2)
    part.after_step(model, 5)
    scores = {key: own.detach().clone().requires_grad_() for key, own in part.scores.items()}
    words = np.random.SeedSequence([1, 5]).generate_state(1, np.uint64)
    generator = torch.Generator().manual_seed(int(words[0]))
    gates = {
        key: opened(own, torch.rand(own.shape, generator=generator).clamp(1e-4, 1 - 1e-4).to(own))
        for key, own in scores.items()
    }
    hooks = []
    named = dict(model.named_parameters())
    with torch.no_grad():
        part.factors.restore(named)
    for name in (OUT, DOWN):
        units, (cell, unit) = part.factors.units[name], keys(name)
        wide = (gates[cell] * gates[unit]).repeat_interleave(units.width)
        hooks.append(
            units.output.register_forward_pre_hook(lambda m, x, w=wide: (x[0] * w.to(x[0]),))
        )
    loss = loss_of(model, make_batch(3))
    for hook in hooks:
        hook.remove()
    ends = 2 / 3 * math.log(0.1 / 1.1)
    sure = {key: torch.sigmoid(own - ends) for key, own in scores.items()}
    kept = torch.zeros(())
    for name, price in part.factors.prices.items():
        cell, unit = keys(name)
        for each in sure[unit]:
            kept = kept + price * sure[cell][0] * each
    gap = 1 - kept - 0.5 * 0.2 / 0.4
    wanted = torch.autograd.grad(loss + 0.7 * gap + 2.0 * gap**2, list(scores.values()))
    with torch.no_grad():
        part.mask(named)
    found = loss_of(model, make_batch(3))
    torch.testing.assert_close(found, loss, rtol=1e-5, atol=1e-7)
    term = part.add(Output(terms={}), lambda: Output(terms={}), make_batch(3)).terms["sparsity"]
    (found + term.weight * term.total / 4).backward()
    for own, gradient in zip(part.scores.values(), wanted, strict=True):
        torch.testing.assert_close(own.grad.double(), gradient.double(), rtol=1e-4, atol=1e-6)
    climbs = {name: own.grad.item() for name, own in part.multipliers.items()}
    assert climbs["linear"] == pytest.approx(-gap.item(), abs=1e-5)
    assert climbs["square"] == pytest.approx(-(gap.item() ** 2), abs=1e-5)


def test_the_share_is_exact_in_the_end_and_stays() -> None:
    part = Joint(**{**HOW, "start": 2.2})
    model = take_up(part, layers=2)
    own = [*part.scores.parameters(), *part.multipliers.parameters()]
    groups = [{"params": model.parameters()}, {"params": own, "lr": 0.1, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.02, weight_decay=0.1)
    expected, zeros = [], []
    for step in range(1, 21):
        term = part.add(Output(terms={}), lambda: Output(terms={}), make_batch()).terms["sparsity"]
        (term.weight * term.total / 4).backward()
        update(part, model, optimizer, share=step / 20, step=step)
        expected.append(part.expect().item())
        named = dict(model.named_parameters())
        zeros.append([(named[name] == 0).all(0).tolist() for name in part.names])
    assert not part.unfinished
    assert zeros[11] == zeros[-1]
    assert expected[11] > expected[0]  # the multipliers drive it
    largest = max(part.factors.prices.values())
    assert 0.5 <= part.figures()["sparsity"] < 0.5 + largest


def test_evaluation_has_gates_without_chance() -> None:
    part = Joint(**HOW)
    model = take_up(part)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.0)
    update(part, model, optimizer, share=0.1, step=1)
    trained = {name: own.clone() for name, own in model.named_parameters()}
    part.exchange(model)
    for name in (OUT, DOWN):
        cell, unit = (part.scores[key].detach() for key in keys(name))
        gate = [(torch.sigmoid(own) * 1.2 - 0.1).clamp(0, 1) for own in (cell, unit)]
        width = part.factors.units[name].width
        wanted = part.factors.dense.of(name) * (gate[0] * gate[1]).repeat_interleave(width)
        torch.testing.assert_close(dict(model.named_parameters())[name].detach(), wanted)
    part.exchange(model)
    assert all(bool((own == trained[name]).all()) for name, own in model.named_parameters())
