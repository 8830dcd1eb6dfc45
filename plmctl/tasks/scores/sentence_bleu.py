"""BLEU-2 of short texts, one source at a time: how COMET's tails are scored."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from plmctl.tasks.record import Predictions
from plmctl.text.letters import split_spaced

SMOOTHED = 0.1  # matches of n-grams of a size of which none matches


def bleu2(golds: Sequence[str], guess: str) -> float:
    """`min(1, exp(1 - r / c)) sqrt(p1 p2)` of words by white space, or of the characters of
    scripts without spaces; 0 where no word matches.

    The shares of words and of pairs of words of the guess that a reference has are p1 and p2. Each
    word counts at most as often as in the reference, and no match of pairs counts as 0.1. The
    length of the guess is c; r is that of the reference of the nearest length, the shorter one of
    two (Papineni et al., 2002, sec. 2; smoothing: Chen and Cherry, 2014, method 1; as in COMET's
    bleu_atomic.py).

    Args:
        guess: the text that is scored.
    """
    words, references = split_spaced(guess), [split_spaced(gold) for gold in golds]
    first, second = (_share(words, references, n) for n in (1, 2))
    if not words or first == 0:
        return 0.0
    nearest = min((abs(len(each) - len(words)), len(each)) for each in references)[1]
    brevity = min(1.0, math.exp(1 - nearest / len(words)))
    return brevity * math.sqrt(first * (second or SMOOTHED / max(1, len(words) - 1)))


def mean(predictions: Predictions, *, lowercase: bool) -> float:
    """The mean of `bleu2` over the different sources in percent; the references of a source are
    those of all of its predictions, of which the first counts.

    Differs: the released script averages each relation, then these, and leaves out sources of
    which a third of the references is "none".
    """
    golds: dict[str, list[str]] = {}
    guesses: dict[str, str] = {}
    fold = str.lower if lowercase else str
    for prediction in predictions:
        golds.setdefault(prediction["source"], []).extend(map(fold, prediction["golds"]))
        guesses.setdefault(prediction["source"], fold(prediction["guess"]))
    scores = [bleu2(golds[source], guess) for source, guess in guesses.items()]
    return 100 * math.fsum(scores) / len(scores) if scores else 0.0


def _share(words: Sequence[str], references: Sequence[Sequence[str]], n: int) -> float:
    """The n-grams of a text that a reference has, over all of its n-grams."""
    found, most = _count(words, n), Counter[tuple[str, ...]]()
    for reference in references:
        most |= _count(reference, n)
    return (found & most).total() / max(1, found.total())


def _count(words: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(words[i:] for i in range(n)), strict=False))
