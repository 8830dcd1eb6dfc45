"""The CRF against sums over all sequences of tags."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from plmctl.heads.crf import (
    IMPOSSIBLE,
    Chains,
    LinearChain,
    Transitions,
    find_best,
    measure_marginals,
    measure_path,
    measure_total,
)

LENGTHS, K = [4, 1, 3, 5], 3
EDGES = [[1, 1], [1, 1], [0, 1], [1, 0]]


def draw(seed: int) -> tuple[Chains, Transitions]:
    made = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return 3 * torch.randn(*shape, generator=made, dtype=torch.float64)

    real = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    chains = Chains(normal(len(LENGTHS), max(LENGTHS), K), real, torch.tensor(EDGES).bool())
    return chains, Transitions(normal(K), normal(K), normal(K, K))


def score(chains: Chains, transitions: Transitions, row: int, tags: tuple[int, ...]) -> float:
    """`s(x, y)`, summand by summand (Lample et al., 2016, sec. 2.2)."""
    total = sum(float(chains.scores[row, t, tag]) for t, tag in enumerate(tags))
    total += sum(float(transitions.follow[a, b]) for a, b in itertools.pairwise(tags))
    begins, ends = EDGES[row]
    total += begins * float(transitions.first[tags[0]])
    return total + ends * float(transitions.last[tags[-1]])


def all_scores(chains: Chains, transitions: Transitions, row: int) -> dict[tuple[int, ...], float]:
    sequences = itertools.product(range(K), repeat=LENGTHS[row])
    return {tags: score(chains, transitions, row, tags) for tags in sequences}


@pytest.mark.parametrize("seed", range(5))
def test_everything_is_that_of_all_sequences(seed: int) -> None:
    chains, transitions = draw(seed)
    if seed == 4:
        transitions.follow[0, 1] = transitions.first[2] = IMPOSSIBLE
    totals, best = measure_total(chains, transitions), find_best(chains, transitions)
    marginals = measure_marginals(chains, transitions)
    for row, length in enumerate(LENGTHS):
        scores = all_scores(chains, transitions, row)
        top = max(scores.values())
        total = top + math.log(math.fsum(math.exp(s - top) for s in scores.values()))
        assert totals[row].item() == pytest.approx(total, rel=1e-12)
        winner = max(scores, key=scores.__getitem__)
        assert best[row].tolist() == [*winner, *[0] * (max(LENGTHS) - length)]
        for t, k in itertools.product(range(length), range(K)):
            wanted = math.fsum(math.exp(s - total) for tags, s in scores.items() if tags[t] == k)
            assert marginals[row, t, k].item() == pytest.approx(wanted, abs=1e-12)
        assert not marginals[row, length:].any()
    for tags in itertools.product(range(K), repeat=max(LENGTHS)):
        found = measure_path(chains, transitions, torch.tensor(tags).expand(len(LENGTHS), -1))
        paths = [
            score(chains, transitions, row, tags[:length]) for row, length in enumerate(LENGTHS)
        ]
        assert found.tolist() == pytest.approx(paths)


def test_gradients_are_those_of_differences() -> None:
    chains, transitions = draw(7)
    tags = torch.tensor([[0, 1, 2, 0, 1]]).expand(len(LENGTHS), -1)

    def loss(scores: Tensor, first: Tensor, last: Tensor, follow: Tensor) -> Tensor:
        own, moves = chains._replace(scores=scores), Transitions(first, last, follow)
        return (measure_total(own, moves) - measure_path(own, moves, tags)).sum()

    given = [each.clone().requires_grad_() for each in (chains.scores, *transitions)]
    assert torch.autograd.gradcheck(loss, given)


def test_far_scores_have_a_finite_loss_and_gradient() -> None:
    """In fp32, with scores as far apart as a confident encoder gives them."""
    scores = torch.tensor([[[900.0, -900.0], [-900.0, 900.0]]], requires_grad=True)
    chains = Chains(scores, torch.ones(1, 2, dtype=torch.bool), torch.ones(1, 2))
    chain = LinearChain(num_classes=2, gain=1.0)
    transitions = chain()
    loss = measure_total(chains, transitions) - measure_path(
        chains, transitions, torch.tensor([[0, 0]])
    )
    loss.sum().backward()
    assert loss.item() == pytest.approx(1800)
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
    assert chain.follow.grad is not None
    assert chain.follow.grad.isfinite().all()


def test_it_begins_as_a_softmax_of_each_word() -> None:
    chains, _ = draw(1)
    transitions = LinearChain(num_classes=K)()
    softmax = chains.scores.softmax(-1)[chains.real]
    assert torch.allclose(measure_marginals(chains, transitions)[chains.real], softmax)
    lengths = chains.scores.logsumexp(-1).masked_fill(~chains.real, 0).sum(1)
    assert torch.allclose(measure_total(chains, transitions), lengths)


def test_the_gain_makes_transitions_learn_faster() -> None:
    chain = LinearChain(num_classes=K, gain=100.0)
    with torch.no_grad():
        chain.follow[0, 1] = 0.02
    assert chain().follow[0, 1].item() == pytest.approx(2.0)


@pytest.mark.slow
def test_a_thousand_tags_take_no_square_of_memory_for_each_word() -> None:
    """What 20 sentences of 20 words keep for the backward pass is far from 20 x 20 x 1,000,000."""
    scores = torch.randn(20, 20, 1000, requires_grad=True)
    chains = Chains(scores, torch.ones(20, 20, dtype=torch.bool), torch.ones(20, 2))
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        measure_total(chains, LinearChain(num_classes=1000)()).sum().backward()
    assert sum(kept.values()) < 20_000_000
