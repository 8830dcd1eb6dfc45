"""The sentences of a document that match its summary best, and the sentences that repeat others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from plmctl.tasks.scores.rouge import words

Grams = Counter[tuple[str, ...]]
SIZES = (1, 2)  # n-grams that count
BLOCKED = 3  # n-grams that no two sentences of a summary share


def find_oracle(sentences: Sequence[str], golds: Sequence[str], most: int) -> list[int]:
    """The numbers, in order, of at most `most` sentences that have the largest ROUGE-1 + ROUGE-2
    together, chosen one by one; none is added that makes the sum no larger (Nallapati et al., 2017,
    arXiv:1611.04230, sec. 3; Liu and Lapata, 2019, arXiv:1908.08345, sec. 4.2, and their code,
    which takes F1). The first of equal sentences is taken.

    N-grams do not go from one sentence to the next. Differs: each n-gram counts as often as ROUGE
    says, in the released code once.

    Args:
        sentences: The sentences of the document.
        golds: Its summaries; the best match counts.
    """
    of_golds = [[_count(gold, n) for n in SIZES] for gold in golds]
    of_sentences = [[_count(sentence, n) for n in SIZES] for sentence in sentences]
    chosen: list[int] = []
    best, total = 0.0, [Grams() for _ in SIZES]
    while len(chosen) < most:
        scores = {
            number: max(_score(gold, total, own) for gold in of_golds)
            for number, own in enumerate(of_sentences)
            if number not in chosen
        }
        number = max(scores, key=scores.__getitem__, default=-1)
        if number < 0 or scores[number] <= best:
            break
        best = scores[number]
        chosen.append(number)
        total = [a + b for a, b in zip(total, of_sentences[number], strict=True)]
    return sorted(chosen)


def choose_sentences(sentences: Sequence[str], scores: Sequence[float], most: int) -> list[int]:
    """The numbers, in order, of the `most` sentences with the largest scores. Sentences that share
    three words in a row with an earlier choice are left out (Paulus et al., 2018, arXiv:1705.04304,
    sec. 2.5; Liu and Lapata, 2019, sec. 4.2).

    Differs: they stand in the order of the document; the released code writes the best one first.

    Args:
        sentences: all, or those at the beginning that were read.
    """
    chosen: list[int] = []
    seen: set[tuple[str, ...]] = set()
    for number in sorted(range(len(scores)), key=lambda n: -scores[n]):
        if len(chosen) == most:
            break
        own = set(_count(sentences[number], BLOCKED))
        if own.isdisjoint(seen):
            chosen.append(number)
            seen |= own
    return sorted(chosen)


def _count(text: str, n: int) -> Grams:
    found = words(text)
    return Counter(zip(*(found[i:] for i in range(n)), strict=False))


def _score(gold: Sequence[Grams], total: Sequence[Grams], own: Sequence[Grams]) -> float:
    """The sum of F1 over the sizes, of the chosen sentences and one more."""
    found = 0.0
    for want, have, more in zip(gold, total, own, strict=True):
        both = have + more
        size = want.total() + both.total()
        found += 2 * (want & both).total() / size if size else 0.0
    return found
