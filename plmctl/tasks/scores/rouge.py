"""ROUGE (Lin, 2004, "ROUGE: A Package for Automatic Evaluation of Summaries"): n-grams and
common subsequences, as F1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from plmctl.text import sentences
from plmctl.text.letters import split_words


def words(text: str) -> list[str]:
    """Runs of letters, marks and digits in lower case; of scripts without spaces (Chinese,
    Japanese, Thai, Khmer, ...) each character with its marks; nothing else counts.

    Differs: the published Perl program may stem English words (`-m`), and knows only a-z and 0-9.
    """
    return split_words(text.lower())


def rouge_n(gold: str, guess: str, *, n: int) -> float:
    """F1 of the n-grams that both have, each as often as in the text that has it less often
    (sec. 2).
    """
    golds, guesses = (
        Counter(zip(*(w[i:] for i in range(n)), strict=False)) for w in (words(gold), words(guess))
    )
    return _f1((golds & guesses).total(), golds.total(), guesses.total())


def rouge_l(gold: str, guess: str) -> float:
    """F1 of the longest common subsequence of the two texts, sentences disregarded (sec. 3.1)."""
    golds, guesses = words(gold), words(guess)
    return _f1(len(common(golds, guesses)), len(golds), len(guesses))


def rouge_l_sum(gold: str, guess: str) -> float:
    """F1 of the union, for each sentence of `gold`, of its common subsequences with all of `guess`
    (sec. 3.2).

    A line is a sentence, and may hold several. No word counts more often than it occurs in either
    text.
    """
    golds, guesses = _split(gold), _split(guess)
    left = [Counter(word for sentence in side for word in sentence) for side in (golds, guesses)]
    hits = 0
    for sentence in golds:
        for position in sorted(
            {position for other in guesses for position in common(sentence, other)}
        ):
            word = sentence[position]
            if all(counts[word] > 0 for counts in left):
                hits += 1
                for counts in left:
                    counts[word] -= 1
    return _f1(hits, sum(map(len, golds)), sum(map(len, guesses)))


def common(a: Sequence[str], b: Sequence[str]) -> list[int]:
    """The positions in `a` of one longest subsequence that `b` has, too; of several, the first one
    of a search from the end, `b` first.
    """
    table = [[0] * (len(b) + 1)]
    for word in a:
        above, row = table[-1], [0]
        for j, other in enumerate(b):
            row.append(above[j] + 1 if word == other else max(above[j + 1], row[j]))
        table.append(row)
    i, j, shared = len(a), len(b), list[int]()
    while i and j:
        if a[i - 1] == b[j - 1]:
            i, j = i - 1, j - 1
            shared.append(i)
        elif table[i][j - 1] > table[i - 1][j]:
            j -= 1
        else:
            i -= 1
    return shared[::-1]


METRICS = {
    "rouge1": lambda gold, guess: rouge_n(gold, guess, n=1),
    "rouge2": lambda gold, guess: rouge_n(gold, guess, n=2),
    "rougeL": rouge_l,
    "rougeLsum": rouge_l_sum,
}


def mean(name: str, golds: Sequence[Sequence[str]], guesses: Sequence[str]) -> float:
    """100 times the mean over examples of the best score that any of an example's references
    gives.
    """
    best = [_best(name, tuple(each), guess) for each, guess in zip(golds, guesses, strict=True)]
    return 100 * math.fsum(best) / len(best) if best else 0.0


@lru_cache(maxsize=1 << 16)  # examples are scored again in every draw of a bootstrap
def _best(name: str, golds: tuple[str, ...], guess: str) -> float:
    return max(METRICS[name](gold, guess) for gold in golds)


def _split(text: str) -> list[list[str]]:
    return [words(sentence) for line in text.splitlines() for sentence in sentences.split(line)]


def _f1(both: int, gold: int, guess: int) -> float:
    """`2 P R / (P + R)` with P = both / guess and R = both / gold."""
    return 2 * both / (gold + guess) if both else 0.0
