"""The sentences that support an answer, chosen together: those of HotpotQA come from exactly two
paragraphs.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping

PARAGRAPHS = 2

Sentence = tuple[int, int]  # numbers of its paragraph, and of the sentence in it


def choose_evidence(
    paragraphs: Mapping[int, float], sentences: Mapping[int, Mapping[int, float]]
) -> list[Sentence]:
    """The most probable set of sentences from exactly two paragraphs, in order.

    Each paragraph p and each sentence s is taken to be relevant independently, with the log-odds z.
    Then a choice is more probable than the empty one by `sum_p z_p + sum_s z_s`. So a paragraph is
    worth z_p and the positive z_s in it, or its largest z_s where none is positive; the two that
    are worth most are chosen. Differs: the paper only states that the published decoding takes
    sentences from exactly two paragraphs (Beltagy et al., 2020, arXiv:2004.05150, app. D).

    Args:
        paragraphs: z of each paragraph that was read.
        sentences: z of each of its sentences; a paragraph without any is not chosen.
    """
    chosen = {
        number: [s for s, z in scores.items() if z > 0] or [max(scores, key=scores.__getitem__)]
        for number, scores in sentences.items()
        if scores
    }
    worth = {
        number: paragraphs[number] + sum(sentences[number][s] for s in own)
        for number, own in chosen.items()
    }
    best = heapq.nlargest(PARAGRAPHS, worth, key=worth.__getitem__)
    return sorted((number, s) for number in best for s in chosen[number])
