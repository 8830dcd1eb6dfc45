"""BLEU-2 of short texts: worked cases, a loop, and nltk."""

import math
import random

import pytest

from plmctl.tasks.scores.sentence_bleu import bleu2, mean


@pytest.mark.parametrize(
    ("golds", "guess", "expected"),
    [
        (["to go home"], "to go home", 1.0),
        (["to go home"], "to go", math.exp(1 - 3 / 2)),  # both precisions are 1
        (["to go home"], "go to home", math.sqrt(1 * (0.1 / 2))),  # no pair matches
        (["happy"], "happy", math.sqrt(0.1)),  # one word has no pairs
        (["the cat"], "the the the", math.sqrt(1 / 3 * 0.1 / 2)),  # each as often as there
        (["sad"], "happy", 0.0),
        (["sad"], "", 0.0),
        # the nearest length counts, of two the shorter one: no brevity penalty
        (["a b c d e", "a"], "a b c", 1.0),
    ],
)
def test_worked_cases(golds, guess, expected):
    assert bleu2(golds, guess) == pytest.approx(expected)


def test_it_is_nltks():
    bleu_score = pytest.importorskip("nltk.translate.bleu_score")
    smooth, draw = bleu_score.SmoothingFunction().method1, random.Random(0)
    for _ in range(200):
        texts = [draw.choices("abcd", k=draw.randint(1, 5)) for _ in range(draw.randint(2, 4))]
        guess, *golds = texts
        expected = bleu_score.sentence_bleu(
            golds, guess, weights=(0.5, 0.5), smoothing_function=smooth
        )
        found = bleu2([" ".join(gold) for gold in golds], " ".join(guess))
        assert found == pytest.approx(expected), texts


def test_a_source_counts_once_with_all_of_its_references():
    def of(source, gold, guess):
        return {"source": source, "golds": [gold], "guess": guess}

    found = [of("a", "to go", "to rest"), of("a", "to rest", "to rest"), of("b", "Sad", "sad")]
    assert mean(found, lowercase=False) == pytest.approx(50)
    assert mean(found, lowercase=True) == pytest.approx(50 * (1 + math.sqrt(0.1)))
    assert mean([], lowercase=True) == 0.0
