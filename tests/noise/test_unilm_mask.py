"""Against UniLM's get_masked_pos as a literal loop, whose one difference is measured."""

from __future__ import annotations

import random

import numpy as np
import pytest
from scipy import stats

from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.noise.unilm_mask import UnilmMask
from tests.noise.worded import chosen_of, worded


def literal(ids: list[int], budget: int, rng: random.Random) -> tuple[set[int], bool]:
    """unilm-v1, loader_utils.py (plain tokens); and whether the exact rule of the end mattered."""
    places = [i for i, token in enumerate(ids) if token >= 10]
    rng.shuffle(places)
    chosen: set[int] = set()
    differs = False
    for at in places:
        if len(chosen) >= budget:
            break
        if at in chosen:
            continue
        drawn = rng.randint(2, 3) if rng.random() < 0.2 else 1
        n = 1
        for step in range(2, drawn + 1):
            if at + step > len(ids) or ids[at + step - 1] < 10:
                break
            if len(chosen) + step > budget:
                differs |= len(chosen | set(range(at, at + step - 1))) < budget
                break
            n = step
        chosen |= set(range(at, at + n))
    return chosen, differs


def test_statistics_of_the_literal_loop(vocab_of):
    rows, rng = worded(4000, 64), random.Random(0)
    ids = rows.seqs["text"].ids
    ids[:] = ids[0]  # the same text in every row
    wanted, differs = np.zeros((4000, 64), bool), 0
    for row in wanted:
        places, other = literal(ids[0].tolist(), 10, rng)
        row[list(places)] = True
        differs += other
    found = chosen_of(UnilmMask(vocab=vocab_of(), rate=0.15)(rows, Draws(0, 0)))
    assert (wanted.sum(1) == 10).all()
    assert (found.sum(1) == 10).all()
    assert differs / 4000 < 0.02  # of rows in which the two rules for the last choice can differ
    ordinary = ids[0] >= 10
    assert (
        stats.chi2_contingency(np.stack([wanted.sum(0), found.sum(0)])[:, ordinary]).pvalue > 1e-3
    )
    runs = [np.bincount((x[:, 1:] & ~x[:, :-1]).sum(1), minlength=12) for x in (wanted, found)]
    table = np.stack(runs)[:, (runs[0] + runs[1]) > 10]
    assert stats.chi2_contingency(table).pvalue > 1e-3


def test_without_ngrams_it_is_token_masking(vocab_of, cells_of):
    chosen = chosen_of(
        UnilmMask(vocab=vocab_of(), rate=0.15, ngram_share=0.0)(cells_of(3000, 34), Draws(0, 0))
    )
    assert (chosen.sum(1) == 5).all()
    assert stats.chisquare(chosen.sum(0)[1:-1]).pvalue > 1e-3
    both = (chosen[:, 1:-2] & chosen[:, 2:-1]).mean()
    assert both == pytest.approx(5 / 32 * 4 / 31, abs=0.002)


def test_share_of_ngrams(vocab_of, cells_of):
    """One choice a row: of budget 3, the first is a single token in 80%, a bigram in 10%, a
    trigram in 10%.
    """
    rows = cells_of(8000, 300)
    mask = UnilmMask(vocab=vocab_of(), rate=0.01)
    chosen = chosen_of(mask(rows, Draws(0, 0)))
    assert (chosen.sum(1) == 3).all()
    runs = (chosen[:, 1:] & ~chosen[:, :-1]).sum(1)
    # one run: a trigram first, or 1 + bigram cut to two: only if they touch (rare); two: a bigram,
    # or a single and then one
    trigram = (runs == 1).mean()
    assert trigram == pytest.approx(0.1, abs=0.012)
    assert (runs == 2).mean() == pytest.approx(0.1 + 0.8 * 0.2, abs=0.02)


def test_wrong_settings(vocab_of):
    for options, message in [
        ({"ngram_share": 1.2}, "ngram_share"),
        ({"max_tokens": 1}, "at least 2"),
    ]:
        with pytest.raises(ConfigError, match=message):
            UnilmMask(vocab=vocab_of(), rate=0.15, **options)
