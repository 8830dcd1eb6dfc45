"""METEOR of exact words and stems."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from plmctl.tasks.scores.rouge import words
from plmctl.text.porter import stem

WEIGHT, POWER, MOST = 0.9, 3.0, 0.5  # alpha, beta and gamma


def meteor(gold: str, guess: str) -> float:
    """`(1 - gamma (c / m)^beta) P R / (alpha P + (1 - alpha) R)` with alpha 0.9, beta 3, gamma 0.5.
    P and R are the matched shares of the words of the guess and of the reference. The m matches are
    in c runs of neighbours (Banerjee and Lavie, 2005; Lavie and Agarwal, 2007, sec. 2).

    Words match that are equal, then those left whose stems by Porter are. From the end of the guess
    on, each takes the last such word of the reference, as NLTK aligns them. Differs: synonyms of
    WordNet and paraphrases (METEOR 1.5) do not match, and of several alignments the one with the
    fewest runs is not searched for.
    """
    golds, guesses = words(gold), words(guess)
    pairs = sorted(_align(golds, guesses))
    if not pairs:
        return 0.0
    precision, recall = len(pairs) / len(guesses), len(pairs) / len(golds)
    mean = precision * recall / (WEIGHT * precision + (1 - WEIGHT) * recall)
    runs = 1 + sum((one[0] + 1, one[1] + 1) != other for one, other in pairwise(pairs))
    return mean * (1 - MOST * (runs / len(pairs)) ** POWER)


def mean(golds: Sequence[Sequence[str]], guesses: Sequence[str]) -> float:
    """100 times the mean over examples of the best score that any of an example's references
    gives.
    """
    best = [
        max(meteor(gold, guess) for gold in several)
        for several, guess in zip(golds, guesses, strict=True)
    ]
    return 100 * math.fsum(best) / len(best) if best else 0.0


def _align(golds: Sequence[str], guesses: Sequence[str]) -> list[tuple[int, int]]:
    """(position in the guess, position in the reference) of the matches."""
    left, right = list(enumerate(guesses)), list(enumerate(golds))
    pairs: list[tuple[int, int]] = []
    for form in (str, stem):
        for at, word in reversed(list(left)):
            found = next((n for n, other in reversed(right) if form(other) == form(word)), None)
            if found is not None:
                pairs.append((at, found))
                left = [each for each in left if each[0] != at]
                right = [each for each in right if each[0] != found]
    return pairs
