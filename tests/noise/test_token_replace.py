"""Each token by itself gives way with probability `rate`; labels by ELECTRA's rule; frequencies
of the corpus.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from plmctl.core.batch import IGNORE
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.data.sample import sample_corpus
from plmctl.noise.token_replace import TokenReplace
from tests.noise.worded import worded


def test_rate_places_and_labels(vocab_of):
    rows = worded(3000, 64, lengths=[64, 40] * 1500)
    seq = rows.seqs["text"]
    noised = TokenReplace(vocab=vocab_of(), rate=0.15, ask_originals=True)(rows, Draws(0, 0))
    after, replaced, asked = (
        noised.seqs["text"].ids,
        noised.targets["replaced"],
        noised.targets["mlm"] != IGNORE,
    )
    ordinary = seq.ids >= 10
    assert np.array_equal(replaced == IGNORE, ~ordinary)
    assert np.array_equal(replaced == 1, after != seq.ids)
    assert (after[asked] >= 10).all()
    assert np.array_equal(noised.targets["mlm"][asked], seq.ids[asked])
    assert not asked[~ordinary].any()
    assert not (replaced[~asked] == 1).any()
    assert stats.binomtest(int(asked.sum()), int(ordinary.sum()), 0.15).pvalue > 1e-3
    # rows of one length: binomial, not a fixed budget
    counts = np.bincount(asked[::2].sum(1), minlength=30)
    tokens = int(ordinary[0].sum())
    expected = stats.binom.pmf(np.arange(30), tokens, 0.15) * 1500
    assert stats.chisquare(*pooled(counts, expected)).pvalue > 1e-3
    column = ordinary[:, 1:39].all(0).nonzero()[0] + 1
    assert stats.chisquare(asked.sum(0)[column]).pvalue > 1e-3


def pooled(found: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both with rare outcomes put together."""
    common = expected > 5
    put = lambda x: np.append(x[common], x[~common].sum())  # noqa: E731
    return put(found), put(expected) * found.sum() / put(expected).sum()


def test_a_token_replaced_by_itself_is_original(vocab_of):
    rows = worded(200, 64)
    ids = np.where(rows.seqs["text"].ids >= 10, 77, 2)
    rows = rows.with_seq(
        "text", type(rows.seqs["text"])(ids.astype(np.int32), rows.seqs["text"].length)
    )
    noised = TokenReplace(vocab=vocab_of(), rate=0.5, corpus_sample=np.full(9, 77))(
        rows, Draws(0, 0)
    )
    assert set(np.unique(noised.targets["replaced"])) == {IGNORE, 0}


def test_frequencies_to_a_power(vocab_of):
    """word2vec's unigram table: counts 16, 81 and 1 to the power of 0.75 are 8, 27 and 1."""
    rows, sample = worded(2000, 64), np.array([3] * 5 + [11] * 16 + [12] * 81 + [13])
    noised = TokenReplace(vocab=vocab_of(), rate=0.3, power=0.75, corpus_sample=sample)(
        rows, Draws(0, 0)
    )
    new = noised.seqs["text"].ids[(noised.targets["replaced"] == 1)]
    assert (
        stats.chisquare(np.bincount(new)[11:], np.array([8, 27, 1]) / 36 * len(new)).pvalue > 1e-3
    )
    with pytest.raises(ConfigError, match="power"):
        TokenReplace(vocab=vocab_of(), rate=0.3, power=1.5, corpus_sample=sample)


def test_frequencies_of_the_corpus_or_uniform(vocab_of):
    # 3 is special: never shown
    rows, sample = worded(2000, 64), np.array([3] * 5 + [11] * 6 + [12] * 3 + [13])
    before = rows.seqs["text"].ids
    noised = TokenReplace(vocab=vocab_of(), rate=0.3, corpus_sample=sample)(rows, Draws(0, 0))
    new = noised.seqs["text"].ids[(noised.targets["replaced"] == 1)]
    assert stats.chisquare(np.bincount(new)[11:], np.array([6, 3, 1]) / 10 * len(new)).pvalue > 1e-3
    uniform = TokenReplace(vocab=vocab_of(), rate=0.3, unigram=False, corpus_sample=sample)(
        rows, Draws(0, 0)
    )
    new = uniform.seqs["text"].ids[uniform.seqs["text"].ids != before]
    assert new.min() >= 10
    assert stats.chisquare(np.bincount((new - 10) // 99, minlength=10)).pvalue > 1e-3


def test_sample_of_a_corpus():
    ids = np.repeat(np.arange(100, dtype=np.uint16), 100)
    assert np.array_equal(sample_corpus(ids), ids)
    part = sample_corpus(ids, pieces=50, length=20)
    assert part.shape == (1000,)
    assert part[0] == 0
    assert part[-1] == 99
    assert np.bincount(part, minlength=100).max() <= 40


def test_declares_and_refuses(vocab_of):
    assert TokenReplace(vocab=vocab_of(), rate=0.1).writes == {"targets.replaced"}
    both = TokenReplace(vocab=vocab_of(), rate=0.1, ask_originals=True)
    assert both.capacity(64) == {"replaced": 64, "mlm": 64}
    with pytest.raises(ConfigError, match="0 < rate < 1"):
        TokenReplace(vocab=vocab_of(), rate=1.0)
