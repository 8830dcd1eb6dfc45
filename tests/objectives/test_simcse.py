"""SimCSE against its formula as a loop over rows, with two real passes under dropout."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from plmctl.config.compose import compose
from plmctl.core.errors import ConfigError, UsageError
from plmctl.data.rows import join, make_blank
from plmctl.models.base import Model, Once
from plmctl.objectives.mix import Entry, Mix
from plmctl.objectives.simcse import SimCSE
from plmctl.runs.contract.contract import check_contract
from tests.objectives.contrastive import States, W, batch_of, cells_of, encoder, holed

LENGTHS = [10, 7, 9, 4, 10]


def simcse(temperature: float = 0.05) -> SimCSE:
    torch.manual_seed(3)
    return SimCSE(width=W, temperature=temperature).double()


def cosine(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum() / (x.square().sum().sqrt() * y.square().sum().sqrt())


def literal(objective: SimCSE, first: Tensor, second: Tensor, groups: list[int]) -> Tensor:
    """Rows of the same group are no negatives of each other."""
    a, b = (
        torch.tanh(x @ objective.mlp.dense.weight.T + objective.mlp.dense.bias)
        for x in (first, second)
    )
    total = torch.zeros((), dtype=torch.float64)
    for i, group in enumerate(groups):
        own = torch.exp(cosine(a[i], b[i]) / objective.temperature)
        others = [j for j in range(len(groups)) if j == i or groups[j] != group]
        total = total - torch.log(
            own / sum(torch.exp(cosine(a[i], b[j]) / objective.temperature) for j in others)
        )
    return total


@pytest.mark.parametrize("hidden", [False, True])
def test_two_passes_under_dropout(hidden: bool) -> None:
    model, objective, clean = encoder(0.3), simcse(), cells_of(LENGTHS)
    batch = batch_of(holed(clean, [(0, 2, 3), (3, 1, 1)]) if hidden else clean)
    torch.manual_seed(7)
    out = objective(model, batch)
    torch.manual_seed(7)
    first, second = (model(batch_of(clean)).last[:, 0] for _ in range(2))
    assert (first - second).abs().max() > 0.1
    torch.testing.assert_close(
        out.terms["simcse"].total,
        literal(objective, first, second, [0, 1, 2, 3, 4]),
        atol=1e-10,
        rtol=1e-10,
    )
    assert objective.counts(batch) == {"simcse": 5}


def test_any_pooling() -> None:
    torch.manual_seed(3)
    model, rows = encoder(0.3), cells_of(LENGTHS)
    objective = SimCSE(width=W, temperature=0.05, pooling="mean").double()
    torch.manual_seed(7)
    found = objective(model, batch_of(rows)).terms["simcse"].total
    torch.manual_seed(7)
    views = []
    for _ in range(2):
        states = model(batch_of(rows)).last
        views.append(torch.stack([states[i, :n].mean(0) for i, n in enumerate(LENGTHS)]))
    torch.testing.assert_close(found, literal(objective, *views, [0, 1, 2, 3, 4]))


def test_without_dropout_both_views_are_equal() -> None:
    model, objective, batch = encoder(0.3).eval(), simcse(0.5), batch_of(cells_of(LENGTHS))
    out = objective(model, batch)
    h = torch.tanh(objective.mlp.dense(model(batch).last[:, 0]))
    h = h / h.norm(dim=1, keepdim=True)
    by_hand = -sum(torch.log(math.exp(1 / 0.5) / torch.exp(h @ h[i] / 0.5).sum()) for i in range(5))
    torch.testing.assert_close(out.terms["simcse"].total, by_hand, atol=1e-10, rtol=1e-10)
    assert float(out.logs["align"][0]) == pytest.approx(0, abs=1e-12)
    assert out.logs["acc/simcse"] == (5, 5)


def test_logged_geometry_is_that_of_the_states_before_the_layer() -> None:
    model, objective, batch = encoder(0.3), simcse(), batch_of(cells_of(LENGTHS))
    torch.manual_seed(7)
    logs = objective(model, batch).logs
    torch.manual_seed(7)
    x, y = (torch.nn.functional.normalize(model(batch).last[:, 0], dim=1) for _ in range(2))
    align = sum((x[i] - y[i]).square().sum().item() for i in range(5)) / 5
    pairs = [
        math.exp(-2 * (x[i] - x[j]).square().sum().item())
        for i in range(5)
        for j in range(5)
        if i != j
    ]
    assert float(logs["align"][0] / logs["align"][1]) == pytest.approx(align, abs=1e-10)
    assert float(logs["uniform"][0] / logs["uniform"][1]) == pytest.approx(
        math.log(sum(pairs) / len(pairs)), abs=1e-10
    )


def test_equal_rows_are_no_negatives() -> None:
    rows = cells_of([8, 8, 8, 6])
    rows.seqs["text"].ids[2] = rows.seqs["text"].ids[0]
    model, objective, batch = encoder(0.3), simcse(), batch_of(rows)
    torch.manual_seed(7)
    total = objective(model, batch).terms["simcse"].total
    torch.manual_seed(7)
    views = [model(batch).last[:, 0] for _ in range(2)]
    torch.testing.assert_close(
        total, literal(objective, *views, [0, 1, 0, 3]), atol=1e-10, rtol=1e-10
    )
    assert total.item() < literal(objective, *views, [0, 1, 2, 3]).item()


def test_rows_that_count_for_nothing_are_neither_asked_nor_negatives() -> None:
    rows = cells_of([8, 8, 6])
    padded = batch_of(join([rows, make_blank(rows, 3)]))
    states = torch.randn(6, 10, W, dtype=torch.float64), torch.randn(6, 10, W, dtype=torch.float64)
    objective, model = simcse(), Model(backbone=States(*states), heads={})
    out = objective(model, padded)
    wanted = literal(objective, states[0][:3, 0], states[1][:3, 0], [0, 1, 2])
    torch.testing.assert_close(out.terms["simcse"].total, wanted, atol=1e-10, rtol=1e-10)
    assert objective.counts(padded) == {"simcse": 3}
    assert out.logs["align"][1] == out.logs["uniform"][1] == 3


def test_only_first_tokens_receive_a_gradient() -> None:
    states = [torch.randn(5, 10, W, dtype=torch.float64) for _ in range(2)]
    model, objective = Model(backbone=States(*states), heads={}), simcse()
    objective(model, batch_of(cells_of(LENGTHS))).terms["simcse"].total.backward()
    for view in model.backbone.states:
        assert (view.grad.abs().sum(-1) > 0).tolist() == [[True] + [False] * 9] * 5
    assert all(parameter.grad.abs().sum() > 0 for parameter in objective.parameters())


def test_the_views_are_not_shared_in_a_mix() -> None:
    """The memory of an update knows batches by identity: two passes stay two."""
    states = [torch.randn(5, 10, W, dtype=torch.float64) for _ in range(3)]
    model, batch = Model(backbone=States(*states), heads={}), batch_of(cells_of(LENGTHS))
    out = Mix({"simcse": Entry(simcse(), weight=0.5)})(model, batch)
    assert len(model.backbone.seen) == 2
    assert out.terms["simcse"].weight == 0.5
    once = Once(model)
    once(batch)
    assert len(model.backbone.seen) == 3


def test_one_row_has_no_negatives() -> None:
    words = ["objective=[simcse]", "noise=[]", "eval.noise=null", "format=sentences", "size=tiny"]
    check_contract(compose("pretrain", "roberta", [*words, "train.batch_size=2"]))
    check_contract(compose("pretrain", "roberta", [*words, "train.micro_batch_size=1"]))
    with pytest.raises(UsageError, match=r"at least 2: objective\.simcse compares the rows of an"):
        check_contract(compose("pretrain", "roberta", [*words, "train.batch_size=1"]))
    stages = "train.stages=[{share:0.5},{share:0.5,train.batch_size:1}]"
    with pytest.raises(UsageError, match=r"train\.stages\.1\.train\.batch_size=1"):
        check_contract(compose("pretrain", "roberta", [*words, stages]))


def test_masked_tokens_beside_it() -> None:
    """As the header of the recipe says; both passes then read the text before the masks, as the
    first test shows.
    """
    words = ["objective=[simcse,mlm]", "noise=[token_mask]", "objective.mlm.weight=0.1"]
    assert "mlm" in check_contract(compose("pretrain", "simcse", words)).heads


def test_wrong_temperature() -> None:
    with pytest.raises(ConfigError, match="above 0"):
        SimCSE(width=W, temperature=0.0)


def test_validation_has_dropout_too_and_leaves_the_model_as_it_was() -> None:
    model, objective, batch = encoder(0.3).eval(), simcse().eval(), batch_of(cells_of(LENGTHS))
    torch.manual_seed(7)
    found = objective(model, batch)
    assert found.logs["align"][0] > 0.1
    assert not any(part.training for part in model.modules())
    torch.manual_seed(7)
    assert (
        objective.train()(model.train(), batch)
        .terms["simcse"]
        .total.equal(found.terms["simcse"].total)
    )
