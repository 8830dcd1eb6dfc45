"""MinHash signatures against the Jaccard similarity of sets, by brute force."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from plmctl.cleaning.clusters import Clusters
from plmctl.cleaning.minhash import MinHash, estimate
from plmctl.cleaning.word_hashes import WordHashes, find_simple_words, hash_ngrams, hash_whole


@pytest.mark.parametrize(
    ("similarity", "probability"), [(0.5, 0.053), (0.7, 0.564), (0.8, 0.924), (0.95, 1.0)]
)
def test_a_bucket_is_shared_as_often_as_the_formula_says(
    similarity: float, probability: float
) -> None:
    """P(s) = 1 - (1 - s ** 8) ** 14, within four standard deviations of 300 pairs."""
    draws, minhash = np.random.default_rng(0), MinHash(ngram=1)
    shared, estimates, size = 0, [], 200
    common = round(2 * size * similarity / (1 + similarity))
    for _ in range(300):
        one = draws.integers(0, 1 << 63, size, dtype=np.uint64)
        other = np.concatenate(
            [one[:common], draws.integers(0, 1 << 63, size - common, dtype=np.uint64)]
        )
        signed = [minhash.sign(each) for each in (one, other)]
        estimates.append(estimate(*signed))
        keys = [minhash.find_keys(each) for each in signed]
        shared += bool((keys[0] == keys[1]).any())
    spread = 4 * np.sqrt(probability * (1 - probability) / 300) + 0.005
    assert shared / 300 == pytest.approx(probability, abs=spread)
    assert np.mean(estimates) == pytest.approx(similarity, abs=0.01)


def test_clusters_of_documents_are_those_of_brute_force() -> None:
    """200 documents: changed copies of 60, which are either clearly alike or clearly not."""
    draws = np.random.default_rng(3)
    vocabulary = ["".join(map(chr, draws.integers(97, 123, 6))) for _ in range(3000)]
    originals = [list(draws.choice(vocabulary, 150)) for _ in range(60)]
    documents = []
    for number in range(200):
        words = list(originals[number % 60])
        if number >= 60:
            words[int(draws.integers(150))] = "changed"
        if number % 60 > 50:
            draws.shuffle(words)
        documents.append(" ".join(words))
    sets = [{tuple(w[i : i + 5]) for i in range(146)} for w in (d.split() for d in documents)]
    alike = [
        (a, b)
        for a, b in combinations(range(200), 2)
        if len(sets[a] & sets[b]) / len(sets[a] | sets[b]) > 0.72
    ]
    hashes, minhash = WordHashes(), MinHash()
    keys = np.stack([minhash.find_keys(minhash.sign(hashes(d))) for d in documents])
    found = [(a, b) for a, b in combinations(range(200), 2) if (keys[a] == keys[b]).any()]
    best = []
    for pairs in (alike, found):
        clusters = Clusters(np.arange(200))
        clusters.join(np.array(pairs))
        best.append(clusters.find_best())
    assert (best[0] == best[1]).all()
    assert len(set(best[0])) == 60 + 18  # and the shuffled copies


def test_groups_are_those_of_a_slow_search() -> None:
    draws = np.random.default_rng(0)
    for _ in range(40):
        count = int(draws.integers(1, 40))
        order, pairs = draws.permutation(count), draws.integers(0, count, (count, 2))
        clusters = Clusters(order)
        clusters.join(pairs[: count // 2])
        clusters.join(pairs[count // 2 :])
        groups = {n: {n} for n in range(count)}
        for a, b in pairs:
            union = groups[a] | groups[b]
            groups |= dict.fromkeys(union, union)
        rank = {int(document): place for place, document in enumerate(order)}
        wanted = [min(groups[n], key=rank.__getitem__) for n in range(count)]
        assert clusters.find_best().tolist() == wanted


def test_a_long_chain_takes_few_steps() -> None:
    count = 200_000
    clusters = Clusters(np.arange(count)[::-1].copy())
    clusters.join(np.stack([np.arange(count - 1), np.arange(1, count)], 1))
    assert (clusters.find_best() == count - 1).all()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't STOP, now!", "don t stop now"),
        ("Café naïve", "cafe naive"),
        ("北京很大。Big!", "北 京 很 大 big"),
        ("ภาษา", "ภ า ษ า"),
        ("w12 3.5", "w12 3 5"),
    ],
)
def test_words_have_no_case_marks_and_signs(text: str, words: str) -> None:
    assert b" ".join(find_simple_words(text)).decode() == words


def test_numbers_are_equal_only_where_they_stand_alone() -> None:
    folded, exact = WordHashes(), WordHashes(fold_numbers=False)
    assert (folded("in 1990") == folded("in 42")).all()
    assert folded("w1") != folded("w2")
    assert exact("1990") != exact("42")


def test_ngrams_have_an_order_and_no_length_no_ngrams() -> None:
    words = WordHashes()("a b c d e f")
    one, two = hash_ngrams(words, 5), hash_ngrams(words[::-1], 5)
    assert len(one) == 2
    assert not set(one) & set(two)
    assert not len(hash_ngrams(words[:4], 5))
    assert not MinHash().find_keys(MinHash().sign(words[:4])).any()


def test_equal_texts_differ_in_case_and_space_alone() -> None:
    assert hash_whole("A  b\nc") == hash_whole("a b c")
    assert hash_whole("a b, c") != hash_whole("a b c")
