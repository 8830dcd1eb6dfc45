"""Each loss against its formula as a loop, and its gradient."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.graph.losses import one_vs_all
from plmctl.graph.losses.base import SampledLoss
from plmctl.graph.losses.k_vs_all import KVsAll
from plmctl.graph.losses.log_sigmoid import LogSigmoid
from plmctl.graph.losses.margin import Margin
from plmctl.graph.losses.one_vs_all import OneVsAll
from plmctl.graph.losses.sampled_softmax import SampledSoftmax
from plmctl.graph.losses.self_adversarial import SelfAdversarial
from plmctl.graph.penalties.power import Power
from plmctl.graph.scores.base import Score
from plmctl.graph.scores.complex import ComplEx
from plmctl.graph.scores.transe import TransE

B, K, N, W = 5, 3, 11, 4


def log_sigmoid(x: float) -> float:
    return -math.log1p(math.exp(-x))


def margin(positive: float, negative: list[float]) -> float:
    return sum(max(0.0, 1.5 - positive + other) for other in negative) / len(negative)


def self_adversarial(positive: float, negative: list[float]) -> float:
    weights = [math.exp(0.7 * other) for other in negative]
    wrong = sum(
        w / sum(weights) * log_sigmoid(-x - 2) for w, x in zip(weights, negative, strict=True)
    )
    return -log_sigmoid(2 + positive) - wrong


def kepler(positive: float, negative: list[float]) -> float:
    wrong = sum(log_sigmoid(-(4 + other)) for other in negative) / len(negative)
    return -(log_sigmoid(4 + positive) + wrong) / 2


SAMPLED: dict[str, tuple[SampledLoss, object]] = {
    "margin": (Margin(gamma=1.5, negatives=K), margin),
    "self_adversarial": (SelfAdversarial(gamma=2, temperature=0.7, negatives=K), self_adversarial),
    "log_sigmoid": (LogSigmoid(gamma=4, negatives=K), kepler),
}


def draw(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("name", sorted(SAMPLED))
def test_losses_of_drawn_entities_are_the_formula(name: str) -> None:
    loss, formula = SAMPLED[name]
    positive, negative = draw(B), draw(B, K, seed=1)
    pairs = zip(positive.tolist(), negative.tolist(), strict=True)
    expected = sum(formula(*pair) for pair in pairs)  # type: ignore[operator]
    assert loss.total(positive, negative).item() == pytest.approx(expected, rel=1e-12)


def test_weights_of_drawn_entities_have_no_gradient() -> None:
    loss = SelfAdversarial(gamma=2, temperature=0.7, negatives=K)
    negative = draw(B, K, seed=1).requires_grad_()
    loss.total(draw(B), negative).backward()
    weight = (0.7 * negative.detach()).softmax(1)
    torch.testing.assert_close(negative.grad, weight * torch.sigmoid(2 + negative.detach()))


def test_without_temperature_all_weigh_the_same() -> None:
    alike = SelfAdversarial(gamma=4, temperature=0, negatives=K)
    positive, negative = draw(B), draw(B, K, seed=1)
    kepler_twice = 2 * LogSigmoid(gamma=4, negatives=K).total(positive, negative)
    torch.testing.assert_close(alike.total(positive, negative), kepler_twice)


@pytest.mark.parametrize("held", [1, 2 * N, 1 << 19])
def test_one_vs_all_is_the_softmax_with_its_gradient(
    held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_vs_all, "HELD", held)
    answer = torch.tensor([0, 3, 3, 10, 7])
    total, gradients = 0.0, []
    for ours in (True, False):
        question, table = draw(B, W).requires_grad_(), draw(N, W, seed=1).requires_grad_()
        if ours:
            loss = OneVsAll().total(ComplEx(), question, table, answer, None)
            total = loss.item()
        else:
            loss = F.cross_entropy(question @ table.T, answer, reduction="sum")
            assert total == pytest.approx(loss.item(), rel=1e-12)
            rows = (question @ table.T).tolist()
            by_hand = sum(
                math.log(sum(map(math.exp, row))) - row[a]
                for row, a in zip(rows, answer.tolist(), strict=True)
            )
            assert total == pytest.approx(by_hand, rel=1e-12)
        (3 * loss).backward()
        gradients.append((question.grad, table.grad))
    for ours_, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours_, theirs)


@pytest.mark.parametrize("held", [1, 2 * N, 1 << 19])
@pytest.mark.parametrize("score", [ComplEx(), TransE(norm=1)], ids=["product", "distance"])
def test_one_vs_all_of_groups_is_that_of_each_triple(
    score: Score, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_vs_all, "HELD", held)
    answer, row = torch.tensor([4, 0, 3, 3, 10, 7, 9]), torch.tensor([2, 0, 0, 1, 4, 4, 4])
    found = []  # the third question has one answer, the fourth none
    for grouped in (True, False):
        question, table = draw(B, W).requires_grad_(), draw(N, W, seed=1).requires_grad_()
        loss = OneVsAll(grouped=grouped)
        if grouped:
            total = loss.total_of_groups(score, question, table, answer, row)
        else:
            total = loss.total(score, question[row], table, answer, None)
        (3 * total).backward()
        found.append((total.detach(), question.grad, table.grad))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("score", [ComplEx(), TransE(norm=1)], ids=["product", "distance"])
def test_sampled_softmax_is_the_formula_over_what_is_drawn(score: Score) -> None:
    question, table, answer = draw(B, W), draw(N, W, seed=1), torch.tensor([0, 3, 3, 10, 7])
    torch.manual_seed(5)
    drawn = torch.randint(N, (2 * N,)).tolist()
    assert set(drawn) & set(answer.tolist())  # some right answers are drawn
    expected = 0.0
    for asked, right in zip(question, answer.tolist(), strict=True):
        s = [math.exp(score.compare(asked, entity).item()) for entity in table]
        expected -= math.log(s[right] / (s[right] + sum(s[i] for i in drawn if i != right)))
    torch.manual_seed(5)
    total = SampledSoftmax(drawn=2 * N).total(score, question, table, answer, None)
    assert total.item() == pytest.approx(expected, rel=1e-5)


def test_one_vs_all_of_distances() -> None:
    question, table, answer = draw(B, W), draw(N, W, seed=1), torch.tensor([0, 3, 3, 10, 7])
    scores = -torch.stack([(q - table).abs().sum(1) for q in question])
    expected = F.cross_entropy(scores, answer, reduction="sum")
    total = OneVsAll().total(TransE(norm=1), question, table, answer, None)
    assert total.item() == pytest.approx(expected.item(), rel=1e-6)


def test_one_vs_all_in_bf16_is_near() -> None:
    answer = torch.tensor([0, 3, 3, 10, 7])
    exact = OneVsAll().total(ComplEx(), draw(B, W).float(), draw(N, W).float(), answer, None)
    question, table = draw(B, W).float().requires_grad_(), draw(N, W).float().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        total = OneVsAll().total(ComplEx(), question, table, answer, None)
    total.backward()
    assert total.dtype == torch.float32
    assert total.item() == pytest.approx(exact.item(), rel=0.02)
    assert question.grad is not None
    assert question.grad.dtype == torch.float32


def test_k_vs_all_asks_every_entity() -> None:
    question, table = draw(2, W), draw(N, W, seed=1)
    known = torch.tensor([0, 0, 1]), torch.tensor([2, 5, 0])
    loss = KVsAll(smoothing=0.2)
    total = loss.total(ComplEx(), question, table, torch.tensor([2, 0]), known)
    expected = 0.0
    for row, right in enumerate(({2, 5}, {0})):
        for entity in range(N):
            label = 0.8 * (entity in right) + 0.2 / N
            score = float(question[row] @ table[entity])
            expected -= label * log_sigmoid(score) + (1 - label) * log_sigmoid(-score)
    assert total.item() == pytest.approx(expected / N, rel=1e-5)


@pytest.mark.parametrize("power", [1.5, 2, 3])
def test_penalties_are_powers(power: float) -> None:
    sizes = draw(B, W).abs()
    expected = sum(size**power for row in sizes.tolist() for size in row)
    assert Power(weight=0.1, power=power).total(sizes).item() == pytest.approx(expected)
