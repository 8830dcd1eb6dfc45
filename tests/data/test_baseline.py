"""The baseline against the definition, written as loops over tokens."""

import math
import tracemalloc
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from plmctl.data.baseline import (
    PRIORS,
    _count_pairs,
    measure_bigram_baseline,
    measure_unigram_baseline,
)
from plmctl.text import frequencies
from plmctl.text.frequencies import count_tokens


def test_it_equals_the_definition(monkeypatch):
    monkeypatch.setattr(frequencies, "_CHUNK", 7)  # several chunks, the last one short
    random = np.random.default_rng(0)
    vocab_size = 11
    train = random.choice(vocab_size, 200, p=np.arange(1, 12) / 66).astype(np.uint16)
    valid = random.choice(vocab_size, 50).astype(np.uint16)
    ignored = np.zeros(vocab_size, bool)
    ignored[[0, 10]] = True  # 10 is the most frequent one, but never predicted

    seen = Counter(int(i) for i in train if not ignored[i])
    asked = [int(i) for i in valid if not ignored[i]]
    frequent = max(seen, key=lambda i: seen[i])
    loss = -sum(math.log((seen[i] + 1) / (sum(seen.values()) + 9)) for i in asked) / len(asked)
    own = Counter(asked)
    entropy = -sum(math.log(own[i] / len(asked)) for i in asked) / len(asked)

    found = measure_unigram_baseline(train, valid, ignored=ignored)
    assert found.unigram_loss == pytest.approx(loss, rel=1e-12)
    assert found.entropy == pytest.approx(entropy, rel=1e-12)
    assert found.frequent_id == frequent
    assert found.frequent_accuracy == pytest.approx(own[frequent] / len(asked))
    assert found.tokens == len(asked)


def test_peeking_entropy_is_the_lower_of_the_two():
    random = np.random.default_rng(1)
    train, valid = random.integers(0, 30, 400), random.integers(5, 30, 100)
    found = measure_unigram_baseline(train, valid, ignored=np.zeros(30, bool))
    assert found.entropy < found.unigram_loss


def test_uniform_corpus_has_log_v():
    ids = np.tile(np.arange(64), 1000)
    found = measure_unigram_baseline(ids, ids, ignored=np.zeros(64, bool))
    assert found.unigram_loss == pytest.approx(math.log(64))
    assert found.frequent_accuracy == pytest.approx(1 / 64)


def test_an_id_outside_the_vocabulary_is_an_error():
    with pytest.raises(ValueError, match="token id 9 is outside"):
        count_tokens(np.array([1, 9]), 8)


def test_nothing_to_predict_is_an_error():
    with pytest.raises(ValueError, match="no validation token"):
        measure_unigram_baseline(np.array([1]), np.array([0]), ignored=np.array([True, False]))


def bigram_loss_by_loops(train, valid, ignored):
    """The definition, a pair at a time."""
    kept = [int(i) for i in train if not ignored[i]]
    size = sum(not i for i in ignored)
    chance = {
        i: (kept.count(i) + 1) / (len(kept) + size) for i in range(len(ignored)) if not ignored[i]
    }
    pairs = [(int(v), int(w)) for v, w in pairwise(train) if not ignored[w]]
    together, behind = Counter(pairs), Counter(v for v, _ in pairs)

    def log_p(v, w, k, left_out=0):
        seen = together[v, w] - left_out + k * chance[w]
        return math.log(seen / (behind[v] - left_out + k))

    prior = max(PRIORS, key=lambda k: sum(log_p(v, w, k, 1) for v, w in pairs))
    asked = [(int(v), int(w)) for v, w in pairwise(valid) if not ignored[w]]
    return -sum(log_p(v, w, prior) for v, w in asked) / len(asked)


@pytest.mark.parametrize("next_of", [1, 3, 9])  # how many tokens may follow one
def test_the_bigram_baseline_equals_the_definition(next_of):
    random = np.random.default_rng(next_of)
    ids = [0]
    for _ in range(500):
        ids.append((ids[-1] * 5 + int(random.integers(next_of))) % 12)
    train, valid = np.array(ids[:400], np.uint16), np.array(ids[400:], np.uint16)
    ignored = np.zeros(13, bool)
    ignored[[3, 12]] = True
    found = measure_bigram_baseline(train, valid, ignored=ignored)
    assert found == pytest.approx(bigram_loss_by_loops(train, valid, ignored), rel=1e-12)
    alone = measure_unigram_baseline(train, valid, ignored=ignored).unigram_loss
    assert found < alone


def test_independent_tokens_have_the_same_two_baselines():
    random = np.random.default_rng(2)
    train, valid = (random.choice(8, 20_000, p=np.arange(1, 9) / 36) for _ in range(2))
    nothing = np.zeros(8, bool)
    found = measure_bigram_baseline(train, valid, ignored=nothing)
    alone = measure_unigram_baseline(train, valid, ignored=nothing).unigram_loss
    assert found == pytest.approx(alone, abs=0.005)


def test_pieces_of_a_large_corpus_stand_for_all_of_it():
    ids = np.tile(np.arange(50), 2000)  # each token has one that follows it
    found = measure_bigram_baseline(ids, ids, ignored=np.zeros(50, bool), most=6400)
    assert found < 0.1


def test_no_pair_to_predict_is_an_error():
    with pytest.raises(ValueError, match="no validation token"):
        measure_bigram_baseline(np.array([0, 1]), np.array([0]), ignored=np.zeros(2, bool))


@pytest.mark.parametrize("size", [30_000, 70_000])  # pairs fit into 32 bits, and do not
def test_pairs_are_counted_in_little_room_as_unique_counts_them(size):
    draw = np.random.default_rng(0)
    ids, special = draw.zipf(1.3, 300_000) % size, np.arange(size) < 5
    pieces = [ids[:200_000].astype(np.int32), ids[200_000:].astype(np.int32)]
    tracemalloc.start()
    keys, counts = _count_pairs(pieces, ~special)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    pairs = [piece[:-1] * np.int64(size) + piece[1:] for piece in pieces]
    kept = [own[~special[piece[1:]]] for own, piece in zip(pairs, pieces, strict=True)]
    expected = np.unique(np.concatenate(kept), return_counts=True)
    assert np.array_equal(keys, expected[0])
    assert np.array_equal(counts, expected[1])
    assert peak < (14 if size == 30_000 else 18) * len(ids)  # widened pairs alone took 26 bytes
