"""Word dropout, blanks and local shuffling against the formulas of Lample et al. (2018)."""

from collections import Counter

import numpy as np
import pytest
from scipy import stats

from plmctl.core.batch import Rows, Seq
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.noise.word_blank import WordBlank
from plmctl.noise.word_drop import WordDrop
from plmctl.noise.word_shuffle import WordShuffle
from tests.noise.moving_rows import CLS, MASK, SEP, make_rows, make_vocab

V = make_vocab()


def words_of(rows: Rows) -> np.ndarray:
    """[n, T] number of the word in its row, 0 for special tokens and padding; a stretch begins
    with a word.
    """
    seq = rows.seqs["text"]
    ordinary = seq.ids >= 200
    starts = ordinary & seq.tracks["word_start"]
    starts[:, 1:] |= ordinary[:, 1:] & ~ordinary[:, :-1]
    return np.cumsum(starts, axis=1) * ordinary


@pytest.mark.sampled(2)
@pytest.mark.parametrize("packed", [False, True])
def test_words_go_as_a_whole_and_independently(packed):
    rows = make_rows(600, 100, packed=packed)
    word, seq = words_of(rows), WordDrop(vocab=V, rate=0.1)(rows, Draws(0, 0)).seqs["source"]
    left = np.zeros(word.size, bool)
    left[seq.tracks["origin"][seq.ids >= 200]] = True
    left = left.reshape(word.shape)
    kept, total, pairs = 0, 0, 0
    for r in range(600):
        fate = [left[r, word[r] == w] for w in range(1, word[r].max() + 1)]
        assert all(x.all() or not x.any() for x in fate)
        there = np.array([x[0] for x in fate])
        kept, total, pairs = (
            kept + there.sum(),
            total + len(there),
            pairs + (~there[1:] & ~there[:-1]).sum(),
        )
    assert abs(1 - kept / total - 0.1) < 3.5 * np.sqrt(0.09 / total)
    assert abs(pairs / total - 0.01) < 4 * np.sqrt(0.01 / total)


def test_one_word_always_stays():
    ids = np.tile([CLS, 300, 301, 302, SEP], (3000, 1)).astype(np.int32)
    start = np.tile([True, True, False, True, True], (3000, 1))
    rows = Rows(np.arange(3000), {"text": Seq(ids, np.full(3000, 5), {"word_start": start})})
    seq = WordDrop(vocab=V, rate=0.9)(rows, Draws(0, 0)).seqs["source"]
    assert seq.length.min() == 3
    first = (seq.ids[:, 1] == 300) & (seq.length == 4)  # of two words, the first alone
    assert (seq.ids[first][:, :4] == [CLS, 300, 301, SEP]).all()
    second = (seq.ids[:, 1] == 302) & (seq.length == 3)
    assert abs(first.mean() - second.mean()) < 4 * np.sqrt(1 / 3000)
    assert abs(first.mean() - (0.09 + 0.81 / 2)) < 4 * np.sqrt(0.25 / 3000)


def test_blanks_keep_lengths_and_the_rate():
    rows = make_rows(600, 100, packed=True)
    word, seq = words_of(rows), WordBlank(vocab=V, rate=0.1)(rows, Draws(0, 0)).seqs["source"]
    hidden = seq.ids == MASK
    assert np.array_equal(seq.ids[~hidden], rows.seqs["text"].ids[~hidden])
    assert (word[hidden] > 0).all()
    fate = [hidden[r, word[r] == w] for r in range(600) for w in range(1, word[r].max() + 1)]
    assert all(x.all() or not x.any() for x in fate)
    assert abs(np.mean([x[0] for x in fate]) - 0.1) < 3.5 * np.sqrt(0.09 / len(fate))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("distance", [1, 3])
@pytest.mark.parametrize("width", [40, 1100])
def test_shuffled_words_like_the_formula(distance, width):
    """The same displacements as sorting i + (k + 1) * u_i, word by word, in each document."""
    n = 240_000 // width // 4
    rows = make_rows(n, width, packed=True, short=True)
    word, seq = (
        words_of(rows),
        WordShuffle(vocab=V, distance=distance)(rows, Draws(0, 0)).seqs["source"],
    )
    document, rng, ours, theirs = (
        rows.seqs["text"].tracks["document"],
        np.random.default_rng(0),
        [],
        [],
    )
    origin = seq.tracks["origin"] - np.arange(n)[:, None] * width
    for r in range(n):
        for d in range(document[r].max() + 1):
            inside = np.flatnonzero((document[r] == d) & (word[r] > 0))
            if not len(inside):
                continue
            assert sorted(origin[r, inside].tolist()) == inside.tolist()
            order = word[r, origin[r, inside]]
            runs = order[np.append(True, np.diff(order) != 0)]
            assert len(np.unique(runs)) == len(runs)  # words stay whole
            assert all((np.diff(origin[r, inside][order == w]) == 1).all() for w in runs)
            moved = runs - np.arange(word[r, inside[0]], word[r, inside[-1]] + 1)
            ours.append(moved)
            theirs.append(
                np.argsort(np.arange(len(runs)) + (distance + 1) * rng.random(len(runs)))
                - np.arange(len(runs))
            )
    assert max(np.abs(x).max() for x in ours) == distance
    table = [
        np.bincount(np.concatenate(x) + distance, minlength=2 * distance + 1)
        for x in (ours, theirs)
    ]
    assert stats.chi2_contingency(np.array(table)).pvalue > 1e-3
    pairs = [[(x[i], x[i + 1]) for x in side for i in range(len(x) - 1)] for side in (ours, theirs)]
    kinds = sorted(set(pairs[0]) | set(pairs[1]))
    joint = np.array([[counted[kind] for kind in kinds] for counted in map(Counter, pairs)])
    joint = joint[:, joint.sum(0) > 20]
    assert stats.chi2_contingency(joint).pvalue > 1e-3


def test_wrong_settings():
    for make in (lambda: WordDrop(vocab=V, rate=1.0), lambda: WordBlank(vocab=V, rate=0.0)):
        with pytest.raises(ConfigError, match="0 < rate < 1"):
            make()
    with pytest.raises(ConfigError, match="at least 1"):
        WordShuffle(vocab=V, distance=0)
    with pytest.raises(ConfigError, match="mask token"):
        WordBlank(vocab=make_vocab(mask=None), rate=0.1)
