"""METEOR against NLTK's without synonyms, and the stems against NLTK's of Porter's own rules."""

from __future__ import annotations

import random
from typing import Any

import pytest

from plmctl.tasks.scores import meteor, written
from plmctl.text.porter import stem

WORDS = ["run", "running", "runs", "the", "house", "houses", "a", "quickly", "quick", "relate"]
WORDS += ["relational", "hopping", "hoped"]
ENDINGS = "ational tional enci izer abli alli ousli ation alism iveness aliti iviti biliti icate"
ENDINGS += " ative alize iciti ical ful ness al ance er ible ant ement ion ism ate ous ive ize"
ENDINGS += " eed ed ing s sses ies ss y e ll"


def porter() -> Any:
    module = pytest.importorskip("nltk.stem.porter")
    return module.PorterStemmer(mode=module.PorterStemmer.ORIGINAL_ALGORITHM)


@pytest.mark.slow  # a list of words; scores by hand stay
def test_stems_are_porters() -> None:
    theirs, draw = porter(), random.Random(0)
    for _ in range(4000):
        word = "".join(draw.choices("aeiouybcdlmnrstwxz", k=draw.randint(1, 6)))
        word += draw.choice([*ENDINGS.split(), ""])
        if len(word) < 3:  # which Porter's own program leaves alone, unlike the paper
            assert stem(word) == word
            continue
        assert stem(word) == theirs.stem(word), word
    # of the paper
    pairs = {"caresses": "caress", "ponies": "poni", "agreed": "agre", "plastered": "plaster"}
    pairs |= {"falling": "fall", "filing": "file", "happy": "happi", "sky": "sky"}
    pairs |= {"relational": "relat", "adoption": "adopt", "controll": "control", "by": "by"}
    assert {word: stem(word) for word in pairs} == pairs


class NoWordNet:
    """A dictionary without synonyms."""

    def synsets(self, word: str) -> list[Any]:
        return []


def test_meteor_is_nltks_without_synonyms() -> None:
    theirs = pytest.importorskip("nltk.translate.meteor_score")
    draw, stemmer = random.Random(1), porter()
    seen = set()
    for _ in range(500):
        gold, guess = (draw.choices(WORDS, k=draw.randint(1, 9)) for _ in range(2))
        wanted = theirs.single_meteor_score(gold, guess, stemmer=stemmer, wordnet=NoWordNet())
        assert meteor.meteor(" ".join(gold), " ".join(guess)) == pytest.approx(wanted, abs=1e-12)
        seen.add(round(wanted, 1))
    assert len(seen) > 6
    assert meteor.meteor("a", "b") == 0
    assert meteor.mean([["no", "run"], ["house"]], ["runs", "the"]) == 100 * 0.5 / 2


def test_bleu_by_the_longest_ngrams_and_shared_words() -> None:
    sacrebleu = pytest.importorskip("sacrebleu")
    rows = [
        {"guess": "the cat is on the mat today", "golds": ["the cat sat on the mat today"]},
        {"guess": "a b c d", "golds": ["a b c e d"]},
    ]
    names = ["bleu_1", "bleu_2", "bleu_3", "bleu_4", "bleu", "f1"]
    scores, _ = written.score(rows, names, tokenize="13a", lowercase=True)
    guesses, golds = [row["guess"] for row in rows], [[row["golds"][0] for row in rows]]
    for n in (1, 2, 3, 4):
        metric = sacrebleu.metrics.BLEU(max_ngram_order=n, lowercase=True)
        assert scores[f"bleu_{n}"] == metric.corpus_score(guesses, golds).score
    assert scores["bleu_4"] == scores["bleu"]
    # cat on mat today of {cat, is, on, mat, today} and {cat, sat, on, mat, today}; b c d
    assert scores["f1"] == pytest.approx(100 * (4 / 5 + 2 * 3 / (3 + 4)) / 2)
