"""The baseline against the definition, written as loops over tokens."""

import math
from collections import Counter

import numpy as np
import pytest

from plmctl.data import baseline
from plmctl.data.baseline import count_tokens, measure_unigram_baseline


def test_it_equals_the_definition(monkeypatch):
    monkeypatch.setattr(baseline, "_CHUNK", 7)  # several chunks, the last one short
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
