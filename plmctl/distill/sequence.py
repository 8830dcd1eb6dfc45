"""Sequence-level distillation (Kim and Rush, 2016, arXiv:1606.07947): of what a teacher writes, what a student learns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from plmctl.tasks import written

Pick = Callable[[Sequence[str], Sequence[str]], str | None]  # (texts, the likeliest first; references) -> one, or none


def likeliest(texts: Sequence[str], references: Sequence[str]) -> str | None:
    """The first text that is not empty: the mode of the teacher, as far as a beam finds it (sec. 3.2, Seq-KD)."""
    return next((text for text in texts if text), None)


class Nearest:
    """The text with the highest sentence BLEU to the references, of equals the likelier one (sec. 3.3, Seq-Inter).

    BLEU is sacrebleu's, smoothed exponentially (Chen and Cherry, 2014, method 3), of n-grams as long as the text has.
    UsageError where sacrebleu is missing.
    """

    def __init__(self, *, tokenize: str, lowercase: bool) -> None:
        written.known(["bleu"], tokenize)
        from sacrebleu.metrics import BLEU

        self.bleu: Any = BLEU(tokenize=tokenize, lowercase=lowercase, effective_order=True)

    def __call__(self, texts: Sequence[str], references: Sequence[str]) -> str | None:
        there = [text for text in texts if text]
        scores = [self.bleu.sentence_score(text, list(references)).score for text in there]
        return there[scores.index(max(scores))] if there else None
