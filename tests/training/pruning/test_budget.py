"""Factors of heads and neurons against explicit gates, and the cut against a loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from plmctl.core.errors import ConfigError
from plmctl.objectives.base import Output
from plmctl.training.pruning.budget import Budgeted
from tests.training.pruning.driven import BLOCKS, DOWN, OUT, loss_of, make_batch, take_up, update

HOW: Any = {"sparsity": 0.5, "weight": 0.3, "lr": 0.1, "end_at": 0.6}


def test_factors_learn_as_gates_and_pay_for_parameters() -> None:
    part, batch = Budgeted(**HOW), make_batch(1)
    model = take_up(part)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.0)
    values = {OUT: [0.5, -1.5], DOWN: [0.1 * n - 0.7 for n in range(16)]}
    for name, own in values.items():  # the model holds W a
        part.of(name).data.copy_(torch.tensor(own))
    part.share.set(0.01)
    part.after_step(model, 1)
    gates = {
        name: torch.tensor(own, dtype=torch.float64, requires_grad=True)
        for name, own in values.items()
    }
    part.before_step(model, optimizer, 0.01)
    named, hooks = dict(model.named_parameters()), []
    kept = {name: (part.masks.of(name) != 0) for name in values}
    for name, own in gates.items():
        units = part.factors.units[name]
        wide = own.repeat_interleave(units.width) * kept[name][0]
        hooks.append(
            units.output.register_forward_pre_hook(lambda m, x, w=wide: (x[0] * w.to(x[0]),))
        )
    loss = loss_of(model, batch)
    total = sum(
        sum(p.numel() for p in model.get_submodule(f"{BLOCKS}.{cell}.0.cell").parameters()) - 8
        for cell in ("a", "f")
    )
    shares = {OUT: (4 * 8 * 8 + 3 * 8) / 2 / total, DOWN: (2 * 8 + 1) / total}
    price = sum(shares[name] * own.abs().sum() for name, own in gates.items())
    wanted = torch.autograd.grad(loss + 0.3 * price, list(gates.values()))
    for hook in hooks:
        hook.remove()
    with torch.no_grad():
        part.mask(named)
    found = loss_of(model, batch)
    torch.testing.assert_close(found, loss)
    out = part.add(Output(terms={}), lambda: Output(terms={}), batch)
    term = out.terms["budget"]
    task: Any = None
    (found + term.weight * term.total / part.counts(task, batch)["budget"]).backward()
    for (name, own), gradient in zip(gates.items(), wanted, strict=True):
        grad = part.values[name.replace(".", "/")].grad
        alive = kept[name].view(len(own), -1).any(1)
        torch.testing.assert_close(grad.double()[alive], gradient[alive], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("pruned", [0.0, 0.13, 0.5, 0.9])
def test_the_smallest_factors_are_cut_one_by_one(pruned: float) -> None:
    part = Budgeted(**HOW)
    model = take_up(part, layers=2)
    draws = torch.Generator().manual_seed(0)
    for name in part.names:
        part.of(name).data.normal_(generator=draws)
    named = dict(model.named_parameters())
    part.choose({name: named[name] for name in part.names}, pruned)
    units = sorted(
        (abs(value), part.factors.prices[name], name, number)
        for name in part.names
        for number, value in enumerate(part.of(name).tolist())
    )
    gone: set[tuple[str, int]] = set()
    left, target = sum(price for _, price, *_ in units), 1 - pruned
    assert left == pytest.approx(1)
    for _, price, name, number in units:
        if left <= target + 1e-9:
            break
        gone.add((name, number))
        left -= price
    for name in part.names:
        width = part.factors.units[name].width
        wanted = [
            0.0 if (name, number) in gone else value
            for number, value in enumerate(part.of(name).tolist())
            for _ in range(width)
        ]
        assert part.masks.of(name)[0].tolist() == pytest.approx(wanted)
    assert part.figures()["sparsity"] == pytest.approx(1 - left, abs=1e-6)


def test_the_budget_is_reached_and_stays() -> None:
    part = Budgeted(**HOW)
    model = take_up(part, layers=2)
    groups = [{"params": model.parameters()}, {"params": part.values.parameters(), "lr": 0.1}]
    optimizer = torch.optim.AdamW(groups, lr=0.02, weight_decay=0.1)
    zeros = []
    for step in range(1, 11):
        update(part, model, optimizer, share=step / 10, step=step)
        named = dict(model.named_parameters())
        zeros.append([(named[name] == 0).all(0).tolist() for name in part.names])
    assert zeros[5] == zeros[-1] != zeros[0]
    assert 0.5 <= part.figures()["sparsity"] < 0.5 + max(part.factors.prices.values())
    assert not part.unfinished


def test_a_model_without_units_is_refused() -> None:
    part = Budgeted(**HOW)
    model = take_up(part)
    model.requires_grad_(False)
    with pytest.raises(ConfigError, match="needs a model with trained heads of attention or feed"):
        Budgeted(**HOW).begin(type("Given", (), {"model": model})())  # type: ignore[arg-type]
