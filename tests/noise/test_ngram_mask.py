"""Against ALBERT's definition as a literal loop, and p(n) ~ 1/n where nothing stands in the way."""

from __future__ import annotations

import random

import numpy as np
import pytest
from scipy import stats

from plmctl.core.draws import HALF, Draws
from plmctl.core.errors import ConfigError
from plmctl.noise.groups import Lengths, take_first_come
from plmctl.noise.ngram_mask import NgramMask
from tests.noise.test_whole_word_mask import shuffled_words
from tests.noise.worded import chosen_of, one_long_word, worded, words_of


def literal(
    starts: list[int], words: list[list[int]], drawn: dict[int, int], budget: int, cut: set[int]
) -> set[int]:
    """google-research/albert, create_pretraining_data.py: `drawn[i]` words from word i on;
    `cut`: words no n-gram runs into.
    """
    chosen: set[int] = set()
    for i in starts:
        if len(chosen) >= budget:
            break
        n = drawn[i]
        while n and (any(j in cut for j in range(i + 1, i + n)) or i + n > len(words)):
            n -= 1  # the n-gram ends at a special token or with the text
        tokens = [at for word in words[i : i + n] for at in word]
        while len(chosen) + len(tokens) > budget and n > 1:
            n -= 1
            tokens = [at for word in words[i : i + n] for at in word]
        if len(chosen) + len(tokens) > budget or any(at in chosen for at in tokens):
            continue
        chosen |= set(tokens)
    return chosen


def barriers(rows, row: int, words: list[list[int]]) -> set[int]:
    """Numbers of the words before which a special token or the border of a document stands."""
    return {i for i in range(1, len(words)) if words[i][0] != words[i - 1][-1] + 1}


@pytest.mark.parametrize(("rate", "max_words"), [(0.15, 3), (0.5, 3), (0.9, 5)])
def test_equals_the_literal_loop(vocab_of, rate, max_words):
    lengths = np.random.default_rng(0).integers(4, 90, 120).tolist()
    rows = worded(120, 90, lengths=lengths)
    for row in range(0, 120, 5):
        if lengths[row] > 40:
            rows = one_long_word(rows, row, 5, 12)
    draws = Draws(3, 1)
    chosen = chosen_of(NgramMask(vocab=vocab_of(), rate=rate, max_words=max_words)(rows, draws))
    shares = Lengths(1 / np.arange(1, max_words + 1))
    word = draws.child("select").words(rows.key, "words", 90)
    drawn = shares(word >> HALF)
    for row, order in enumerate(shuffled_words(rows, draws)):
        words = words_of(rows, row)
        number = {word[0]: i for i, word in enumerate(words)}
        lots = {i: int(drawn[row, word[0]]) for i, word in enumerate(words)}
        wanted = literal(
            [number[w[0]] for w in order],
            words,
            lots,
            max(1, round(rate * lengths[row])),
            barriers(rows, row, words),
        )
        assert set(np.flatnonzero(chosen[row]).tolist()) == wanted, row


def test_statistics_of_an_independent_loop(vocab_of):
    """Tokens a row, runs and places of the published loop (which steps over the inner sep) on
    one segment.
    """
    rows = worded(1, 64, seed=5)
    seq = rows.seqs["text"]
    ids = np.where(np.arange(64) % 63 == 0, seq.ids, np.maximum(seq.ids, 10))  # no inner sep
    same = {name: np.repeat(track, 4000, 0) for name, track in seq.tracks.items()}
    many = type(rows)(
        key=np.arange(4000),
        seqs={"text": type(seq)(np.repeat(ids, 4000, 0), np.full(4000, 64), same)},
    )
    words, rng = words_of(many, 0), random.Random(1)
    wanted = np.zeros((4000, 64), bool)
    for row in wanted:
        lots = dict(enumerate(rng.choices([1, 2, 3], [6, 3, 2], k=len(words))))
        row[list(literal(rng.sample(range(len(words)), len(words)), words, lots, 10, set()))] = True
    found = chosen_of(NgramMask(vocab=vocab_of(), rate=0.15)(many, Draws(0, 0)))
    assert stats.chi2_contingency(np.stack([wanted.sum(0), found.sum(0)])[:, 1:-1]).pvalue > 1e-3
    runs = [np.bincount((x[:, 1:] & ~x[:, :-1]).sum(1), minlength=12) for x in (wanted, found)]
    table = np.stack(runs)[:, (runs[0] + runs[1]) > 10]
    assert stats.chi2_contingency(table).pvalue > 1e-3


def test_lengths_are_as_published(vocab_of):
    """The first choice of a row is free: 6/11, 3/11 and 2/11 of one, two and three words."""
    lengths = Lengths(1 / np.arange(1, 4))
    found = np.bincount(lengths(Draws(0, 0).bits(np.arange(400), "n", 100).ravel()), minlength=4)[
        1:
    ]
    assert stats.chisquare(found, np.array([6, 3, 2]) / 11 * found.sum()).pvalue > 1e-3
    assert lengths.mean == pytest.approx(18 / 11)
    assert lengths(np.array([0, 2**32 - 1], np.uint32)).tolist() == [1, 3]


def test_budget_in_tokens_is_nearly_always_exact(vocab_of):
    rows = worded(300, 128)
    counts = chosen_of(NgramMask(vocab=vocab_of(), rate=0.15)(rows, Draws(0, 0))).sum(1)
    assert counts.max() == 19
    assert (counts == 19).mean() > 0.99


def test_first_come_is_the_loop():
    rng = np.random.default_rng(0)
    for _ in range(100):
        begin = rng.integers(0, 90, 40)
        end = begin + rng.integers(0, 9, 40)
        taken = rng.random(100) < 0.1
        covered, wanted = taken.copy(), []
        for a, b in zip(begin, end, strict=True):
            wanted.append(b > a and not covered[a:b].any())
            covered[a:b] |= wanted[-1]
        assert take_first_come(begin, end, 100, taken).tolist() == wanted


def test_wrong_settings(vocab_of):
    with pytest.raises(ConfigError, match="max_words"):
        NgramMask(vocab=vocab_of(), rate=0.15, max_words=0)
