"""ROUGE against its definitions spelled out, and against the published Python port where that is
installed.
"""

import itertools
import random

import pytest

from plmctl.tasks.scores import rouge


def _subsequences(words):
    return {
        tuple(words[i] for i in places)
        for n in range(len(words) + 1)
        for places in itertools.combinations(range(len(words)), n)
    }


def _texts(seed, *, sentences=1):
    draw = random.Random(seed)
    return "\n".join(
        " ".join(draw.choices("abcde", k=draw.randint(1, 7))) for _ in range(sentences)
    )


@pytest.mark.parametrize("seed", range(20))
def test_the_common_subsequence_is_a_longest_one(seed):
    a, b = _texts(seed).split(), _texts(seed + 100).split()
    longest = max(map(len, _subsequences(a) & _subsequences(b)))
    places = rouge.common(a, b)
    assert places == sorted(set(places))
    assert len(places) == longest
    assert tuple(a[i] for i in places) in _subsequences(b)
    expected = 2 * longest / (len(a) + len(b))  # 2 P R / (P + R)
    assert rouge.rouge_l(" ".join(a), " ".join(b)) == pytest.approx(expected)


def test_n_grams_count_as_often_as_both_have_them():
    assert rouge.rouge_n("the cat sat on the mat", "the the the cat", n=1) == pytest.approx(
        2 * 3 / (6 + 4)
    )
    assert rouge.rouge_n("the cat sat on the mat", "the cat on the mat", n=2) == pytest.approx(
        2 * 3 / (5 + 4)
    )
    assert rouge.rouge_n("one", "one", n=2) == 0.0
    assert rouge.rouge_n("", "one", n=1) == 0.0


def test_the_papers_example_of_the_union():
    """Lin, 2004, sec. 3.2: of w1..w5, {w1 w2} and {w1 w3 w5} together cover four."""
    gold, guess = "w1 w2 w3 w4 w5", "w1 w2 w6 w7 w8\nw1 w3 w8 w9 w5"
    assert rouge.rouge_l_sum(gold, guess) == pytest.approx(
        2 * (4 / 5) * (4 / 10) / (4 / 5 + 4 / 10)
    )


def test_words():
    assert rouge.words("It's 3.14 – naïve_ÜBER 中文x") == [
        "it",
        "s",
        "3",
        "14",
        "naïve",
        "über",
        "中",
        "文",
        "x",
    ]


def test_the_best_reference_counts():
    assert rouge.mean("rouge1", [["x y", "a b"], ["c"]], ["a b", "d"]) == 50.0
    assert rouge.mean("rouge1", [], []) == 0.0


def test_the_published_port_gives_the_same():
    scorer = pytest.importorskip("rouge_score.rouge_scorer").RougeScorer(
        list(rouge.METRICS), use_stemmer=False
    )
    for seed in range(60):
        gold, guess = (_texts(seed + shift, sentences=1 + seed % 4) for shift in (0, 1000))
        expected = scorer.score(gold, guess)
        for name, ours in rouge.METRICS.items():
            assert ours(gold, guess) == pytest.approx(expected[name].fmeasure, abs=1e-12), (
                name,
                gold,
                guess,
            )
