"""Movement pruning against loops written from its equations."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from plmctl.core.errors import ConfigError
from plmctl.objectives.base import Output
from plmctl.training.optim.groups import split_groups
from plmctl.training.pruning.movement import Scored, l0, movement, soft_movement
from plmctl.training.pruning.rules import HardConcrete
from tests.training.pruning.driven import DOWN, UP, loss_of, make_batch, take_up, update

WHEN: Any = {"begin_at": 0.2, "end_at": 0.8, "only": ["*.f.*"]}


def spread(blocks: Tensor, size: tuple[int, int]) -> Tensor:
    return torch.kron(blocks, torch.ones(size, dtype=blocks.dtype))


@pytest.mark.parametrize("block", [(1, 1), (2, 4)])
def test_scores_learn_from_the_gradient_of_masked_weights(block: tuple[int, int]) -> None:
    """W, S and M of every update, with plain gradient descent."""
    part: Any = movement(sparsity=0.75, lr=0.5, scope="matrix", block=block, **WHEN)
    model = take_up(part)
    loop = copy.deepcopy(model)
    weights = dict(loop.named_parameters())
    dense = {name: weights[name].detach().clone() for name in (UP, DOWN)}
    scores = {
        name: torch.zeros([n // b for n, b in zip(w.shape, block, strict=True)]).to(w)
        for name, w in dense.items()
    }
    masks = {name: torch.ones_like(s) for name, s in scores.items()}
    groups = [{"params": model.parameters()}, {"params": part.parameters(), "lr": 0.5}]
    optimizer = torch.optim.SGD(groups, lr=0.05)
    for step in range(1, 11):
        update(part, model, optimizer, share=step / 10, step=step)
        read = {
            name: w if name not in dense else dense[name] * spread(masks[name], block)
            for name, w in weights.items()
        }
        read = {name: w.detach().clone().requires_grad_() for name, w in read.items()}
        called: Any = partial(functional_call, loop, read)
        loss = loss_of(called, make_batch(step))
        gradients = dict(zip(read, torch.autograd.grad(loss, [*read.values()]), strict=True))
        for name, own in weights.items():
            if name not in dense:
                own.data -= 0.05 * gradients[name]
                continue
            if step <= 8:  # the last choice is made in update 8
                moved = gradients[name] * dense[name]
                for i in range(scores[name].shape[0]):
                    for j in range(scores[name].shape[1]):
                        r, c = block
                        here = moved[i * r : (i + 1) * r, j * c : (j + 1) * c]
                        scores[name][i, j] -= 0.5 * here.sum()
            dense[name] -= 0.05 * gradients[name] * spread(masks[name], block)
            if 2 < step <= 8:
                share = 0.75 * (1 - (1 - (step / 10 - 0.2) / 0.6) ** 3)
                order = scores[name].flatten().argsort()
                masks[name] = torch.ones_like(scores[name])
                masks[name].view(-1)[order[: round(share * len(order))]] = 0
    now = dict(model.named_parameters())
    for name in dense:
        torch.testing.assert_close(part.scores.of(name).detach(), scores[name])
        torch.testing.assert_close(now[name].detach(), dense[name] * spread(masks[name], block))
        assert int((now[name] == 0).sum()) == round(0.75 * now[name].numel())


def test_a_threshold_masks_low_scores_and_the_loss_has_their_price() -> None:
    part: Any = soft_movement(threshold=0.4, weight=30.0, lr=0.1, **WHEN)
    model, batch = take_up(part), make_batch()
    with torch.no_grad():
        for values in part.scores.parameters():
            values.copy_(torch.linspace(-3, 3, len(values)))
    part.share.set(0.5)
    reached = 1 - (1 - 0.3 / 0.6) ** 3
    out = part.add(Output({}), lambda: Output({}), batch)
    term = out.terms["sparsity"]
    wanted = sum(float(torch.sigmoid(part.scores.of(n).detach()).mean()) for n in part.names) / 2
    assert term.weight == pytest.approx(30 * reached)
    assert part.counts(None, batch) == {"sparsity": 4}
    assert float(term.total.detach()) == pytest.approx(4 * wanted)
    term.total.backward()
    scores = part.scores.of(UP).detach()
    s = torch.sigmoid(scores)
    own = part.scores.values[UP.replace(".", "/")].grad.view_as(scores)
    torch.testing.assert_close(own, 4 * s * (1 - s) / (2 * scores.numel()))
    part.after_step(model, 5)
    assert bool((part.masks.of(UP) == (s > 0.4 * reached)).all())
    with torch.no_grad():
        for values in part.scores.parameters():
            values.sub_(100)  # none is above: half a percent is left
    part.after_step(model, 6)
    assert int(part.masks.of(UP).sum()) == round(0.005 * scores.numel())
    part.share.set(0.9)
    part.after_step(model, 7)
    assert not part.unfinished
    assert part.add(Output({}), lambda: Output({}), batch).terms["sparsity"].weight == 0


def test_gates_at_random_are_hard_concrete() -> None:
    rule, scores = HardConcrete(start=2.0), torch.linspace(-6, 6, 4000, dtype=torch.float64)
    mask, slope = rule.draw(scores, torch.Generator().manual_seed(3))
    u = torch.rand(4000, generator=torch.Generator().manual_seed(3)).clamp(1e-4, 1 - 1e-4).double()
    leaf = scores.clone().requires_grad_()
    s = torch.sigmoid((torch.log(u) - torch.log1p(-u) + leaf) / (2 / 3))
    theirs = (s * 1.2 - 0.1).clamp(0, 1)
    torch.testing.assert_close(mask, theirs.detach())
    torch.testing.assert_close(slope, torch.autograd.grad(theirs.sum(), leaf)[0])
    # the price is the probability that a gate is open
    same = torch.full((200_000,), -1.0)
    drawn, _ = rule.draw(same, torch.Generator().manual_seed(0))
    assert float((drawn > 0).float().mean()) == pytest.approx(float(rule.price(same)[0]), abs=0.005)
    assert rule.masks({"x": torch.tensor([-9.0, 0.0, 9.0])}, 1.0)["x"].tolist() == [0, 0.5, 1]


def test_gates_of_evaluation_are_not_drawn_and_training_goes_on_with_its_own() -> None:
    part: Any = l0(weight=1.0, start=0.3, lr=0.1, **WHEN)
    model = take_up(part)
    optimizer = torch.optim.SGD([*model.parameters(), *part.parameters()], lr=0.05)
    for step in range(1, 6):
        update(part, model, optimizer, share=step / 10, step=step)
    trained = dict(model.named_parameters())[UP].detach().clone()
    part.exchange(model)
    shown = dict(model.named_parameters())[UP].detach().clone()
    gates = (torch.sigmoid(part.scores.of(UP).detach()) * 1.2 - 0.1).clamp(0, 1)
    torch.testing.assert_close(shown, part.scores.dense.of(UP) * gates)
    part.exchange(model)
    assert bool((dict(model.named_parameters())[UP] == trained).all())
    assert not bool((shown == trained).all())
    for step in range(6, 10):
        update(part, model, optimizer, share=step / 10, step=step)
    before = dict(model.named_parameters())[UP].detach().clone()
    part.exchange(model)
    assert bool((dict(model.named_parameters())[UP] == before).all())


def test_scores_have_a_rate_of_their_own() -> None:
    part = movement(sparsity=0.5, lr=0.03, scope="model", **WHEN)
    assert isinstance(part, Scored)
    take_up(part)
    assert set(part.own_rates().values()) == {0.03}
    assert set(part.own_rates()) == set(part.scores.parameters())
    assert all(values.dim() == 1 for values in part.own_rates())


def test_blocks_divide_the_matrices() -> None:
    for block in ((3, 1), (0, 1), (2,)):
        with pytest.raises(ConfigError, match=r"block.*rows and columns"):
            take_up(movement(sparsity=0.5, lr=0.1, scope="model", block=block, **WHEN))


def test_groups_with_a_rate_of_their_own_stand_apart() -> None:
    weights = {name: torch.nn.Parameter(torch.zeros(3)) for name in ("w", "s", "b")}
    optimizer = torch.optim.AdamW(
        [{"params": [*weights.values()], "lr": 0.1, "initial_lr": 0.1, "weight_decay": 0.2}]
    )
    names = split_groups(optimizer, [*weights.items()], lambda name: "", {weights["s"]: 0.5})
    assert names == ["w", "s"]
    shared, own = optimizer.param_groups
    assert [id(p) for p in shared["params"]] == [id(weights["w"]), id(weights["b"])]
    assert (shared["lr"], shared["weight_decay"], shared.get("apart")) == (0.1, 0.2, None)
    assert (own["lr"], own["initial_lr"], own["weight_decay"], own["apart"]) == (0.5, 0.5, 0, True)
