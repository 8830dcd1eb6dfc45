"""The shared softmax: full, and sampled against the published correction written as a loop."""

from __future__ import annotations

import math

import pytest
import torch

from plmctl.core.batch import IGNORE
from plmctl.core.errors import ConfigError
from plmctl.heads.shared_softmax import SharedSoftmax, count_expected, draw_log_uniform

V, W = 20, 6


def made(**numbers) -> SharedSoftmax:
    head = SharedSoftmax(width=2 * W, vocab_size=V, **numbers).double()
    head.start(torch.Generator().manual_seed(0))
    return head


def test_full_is_cross_entropy() -> None:
    torch.manual_seed(0)
    head, x, ids = made(), torch.randn(5, W).double(), torch.tensor([3, 0, IGNORE, 19, 7])
    loss, right = head.loss(x, ids)
    wanted = torch.nn.functional.cross_entropy(head(x), ids, ignore_index=IGNORE, reduction="sum")
    torch.testing.assert_close(loss.double(), wanted)
    assert int(right) == int((head(x).argmax(-1) == ids).sum())
    assert made(samples=30).samples is None  # as many as there are: all


def test_sampled_is_the_published_correction() -> None:
    torch.manual_seed(1)
    head, x, ids = made(samples=4), torch.randn(4, W).double(), torch.tensor([3, 0, IGNORE, 9])
    drawn, tries = torch.tensor([0, 5, 9, 2]), 7
    table, bias = head.softmax.table.tolist(), head.softmax.bias.tolist()

    def logit(row: int, word: int) -> float:
        q = math.log((word + 2) / (word + 1)) / math.log(V + 1)
        often = 1 - (1 - q) ** tries
        return (
            sum(a * b for a, b in zip(x[row].tolist(), table[word], strict=True))
            + bias[word]
            - math.log(often)
        )

    slow = 0.0
    for row, word in enumerate(ids.tolist()):
        if word != IGNORE:
            others = [math.exp(logit(row, other)) for other in drawn.tolist() if other != word]
            slow += math.log(math.exp(logit(row, word)) + sum(others)) - logit(row, word)
    assert head.sampled_loss(x, ids, drawn, tries).item() == pytest.approx(slow, rel=1e-6)


def test_training_samples_and_evaluation_does_not() -> None:
    torch.manual_seed(2)
    head, x, ids = made(samples=4), torch.randn(4, W).double(), torch.tensor([3, 0, 5, 9])
    loss, right = head.loss(x, ids)
    assert right is None
    head.eval()
    whole, right = head.loss(x, ids)
    assert right is not None
    assert whole.item() == pytest.approx(
        torch.nn.functional.cross_entropy(head(x), ids, reduction="sum").item()
    )
    assert loss.item() != pytest.approx(whole.item())


def test_candidates_are_log_uniform_and_their_expected_counts_true() -> None:
    """1 - (1 - q)^tries, averaged over draws, is how often a word is among them."""
    torch.manual_seed(3)
    seen, hoped = torch.zeros(V), torch.zeros(V)
    for _ in range(2000):
        drawn, tries = draw_log_uniform(V, 6, device=torch.device("cpu"))
        assert len(set(drawn.tolist())) == 6
        assert tries >= 6
        seen[drawn] += 1
        hoped += count_expected(torch.arange(V), V, tries)
    assert hoped.sum().item() == pytest.approx(6 * 2000, rel=0.02)
    torch.testing.assert_close(seen / 2000, hoped / 2000, rtol=0, atol=0.04)


def test_how_many_draws_it_took() -> None:
    """The same uniform numbers, taken one by one until there are enough different words."""
    for seed in range(20):
        torch.manual_seed(seed)
        drawn, tries = draw_log_uniform(8, 3, device=torch.device("cpu"))
        torch.manual_seed(seed)
        found: list[int] = []
        for count, u in enumerate(torch.rand(12, dtype=torch.float64).tolist(), 1):
            word = min(7, int(math.exp(u * math.log(9)) - 1))
            found += [] if word in found else [word]
            if len(found) == 3:
                assert (drawn.tolist(), tries) == (found, count)
                break


def test_only_the_first_words() -> None:
    head = made(words=8)
    assert head(torch.zeros(2, W).double()).shape == (2, 8)
    for wrong in ({"words": 0}, {"samples": 0}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            made(**wrong)
