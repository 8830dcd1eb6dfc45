"""Against BERT's definition as a literal loop: the same choices in the same order, and the same
statistics from another one.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from scipy import stats

from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.noise.masking import Shuffled
from plmctl.noise.whole_word_mask import WholeWordMask
from tests.noise.worded import chosen_of, one_long_word, worded, words_of


def literal(words: list[list[int]], budget: int) -> set[int]:
    """create_pretraining_data.py, create_masked_lm_predictions, for words that are shuffled
    already.
    """
    chosen: set[int] = set()
    for word in words:
        if len(chosen) >= budget:
            break
        if len(chosen) + len(word) > budget:
            continue
        chosen |= set(word)
    return chosen


def shuffled_words(rows, draws: Draws) -> list[list[list[int]]]:
    """The words of every row in the order in which the noise looks at them."""
    width, found = rows.seqs["text"].ids.shape[1], []
    words = [words_of(rows, row) for row in range(len(rows.key))]
    barred = np.full(rows.seqs["text"].ids.shape, ~np.uint32(0))
    for row, listed in enumerate(words):
        barred[row, [word[0] for word in listed]] = 0
    order = Shuffled(rows, draws.child("select"), barred)
    for row, listed in enumerate(words):
        place, allowed = order.gather(row * width + np.arange(width))
        by_start = {word[0]: word for word in listed}
        found.append([by_start[at] for at in (place[allowed] - row * width).tolist()])
    return found


@pytest.mark.parametrize("rate", [0.15, 0.5, 0.95])
def test_equals_the_literal_loop(vocab_of, rate):
    lengths = np.random.default_rng(0).integers(4, 90, 120).tolist()
    rows = worded(120, 90, lengths=lengths)
    for row in range(0, 120, 3):
        if lengths[row] > 40:
            rows = one_long_word(rows, row, 5, 24)
    draws = Draws(3, 1)
    chosen = chosen_of(WholeWordMask(vocab=vocab_of(), rate=rate)(rows, draws))
    for row, words in enumerate(shuffled_words(rows, draws)):
        budget = max(1, round(rate * lengths[row]))
        assert set(np.flatnonzero(chosen[row]).tolist()) == literal(words, budget), row


def test_statistics_of_an_independent_loop(vocab_of):
    """Chosen tokens a row, sizes of chosen words and places, from Python's own generator."""
    rows = worded(1, 64, seed=5)
    many = worded(4000, 64, seed=5)
    seq = many.seqs["text"]
    same = {name: np.repeat(track[:1], 4000, 0) for name, track in rows.seqs["text"].tracks.items()}
    many = many.with_seq(
        "text", type(seq)(np.repeat(rows.seqs["text"].ids, 4000, 0), seq.length, same)
    )
    words, rng = words_of(rows, 0), random.Random(1)
    wanted = np.zeros((4000, 64), bool)
    for row in wanted:
        row[list(literal(rng.sample(words, len(words)), 10))] = True
    found = chosen_of(WholeWordMask(vocab=vocab_of(), rate=0.15)(many, Draws(0, 0)))
    ordinary = rows.seqs["text"].ids[0] >= 10
    places = np.stack([wanted.sum(0), found.sum(0)])[:, ordinary]
    assert stats.chi2_contingency(places).pvalue > 1e-3
    counts = np.stack([np.bincount(x.sum(1), minlength=11)[8:] for x in (wanted, found)])
    counts = counts[:, counts.sum(0) > 0]
    assert counts.shape[1] == 1 or stats.chi2_contingency(counts).pvalue > 1e-3


def test_words_stay_whole_and_the_budget_holds(vocab_of):
    rows = worded(300, 128, lengths=[128, 77, 30] * 100)
    chosen = chosen_of(WholeWordMask(vocab=vocab_of(), rate=0.15)(rows, Draws(0, 0)))
    budget = np.array([19, 12, 4] * 100)
    assert (chosen.sum(1) <= budget).all()
    # a row has nearly always a word that fits exactly
    assert (chosen.sum(1) == budget).mean() > 0.99
    for row in range(300):
        for word in words_of(rows, row):
            assert chosen[row, word].all() or not chosen[row, word].any()


def test_a_word_longer_than_the_budget_is_never_chosen(vocab_of):
    rows = one_long_word(worded(50, 40, seed=2), 0, 1, 20)
    for epoch in range(20):
        assert not chosen_of(WholeWordMask(vocab=vocab_of(), rate=0.15)(rows, Draws(0, epoch)))[
            0, 1:21
        ].any()


def test_with_one_piece_a_word_it_is_token_masking(cells_of, vocab_of):
    rows = cells_of(500, 64)
    seq = rows.seqs["text"]
    rows = rows.with_seq("text", seq.with_tracks(word_start=np.ones(seq.ids.shape, bool)))
    chosen = chosen_of(WholeWordMask(vocab=vocab_of(), rate=0.15)(rows, Draws(0, 0)))
    assert (chosen.sum(1) == 10).all()
    assert stats.chisquare(chosen.sum(0)[1:-1]).pvalue > 1e-3


def test_wrong_settings(vocab_of):
    with pytest.raises(ConfigError, match="exact, probabilistic, ceiling"):
        WholeWordMask(vocab=vocab_of(), rate=0.15, selection="some")
