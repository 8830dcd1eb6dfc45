"""Sequence-level distillation (Kim and Rush, 2016, arXiv:1606.07947): the student learns the texts
that the teacher writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.distill.base import Teacher
from plmctl.generation.decode import find_writing_head
from plmctl.generation.search import Search
from plmctl.objectives.base import Objective
from plmctl.tasks.scores import written

# (texts, the likeliest first; references) -> one, or none
Pick = Callable[[Sequence[str], Sequence[str]], str | None]


@part_of("distill")
def sequence(
    *, objective: Objective, teacher: Teacher, rewrite: Mapping[str, Search | Any] | None
) -> Objective:
    """`- sum_t log p(y_t | y_<t, x)` of the texts y that the teacher wrote for x, instead of the
    references (sec. 3.2).

    This is the task's own loss with other targets, which are written before the first update as
    `rewrite` says (None: they are written already). ConfigError for a task that does not write,
    UsageError for a teacher that cannot.
    """
    if not getattr(objective.facts, "writes", False):
        fix = (
            "task=translation (or another that writes);"
            " in pretraining, data.path=<the text that plmctl data rewrite made>"
        )
        allowed = "a task whose targets are texts, which the teacher writes again"
        raise ConfigError("distill", "sequence", allowed, fix=fix)
    for model in teacher.models():
        find_writing_head(model)
    return objective


def pick_likeliest(texts: Sequence[str], references: Sequence[str]) -> str | None:
    """The first text that is not empty: the approximate mode of the teacher, from a beam search
    (sec. 3.2, Seq-KD).
    """
    return next((text for text in texts if text), None)


class Nearest:
    """The text with the highest sentence BLEU to the references, of equals the likelier one (sec.
    3.3, Seq-Inter).

    BLEU is sacrebleu's, smoothed exponentially (Chen and Cherry, 2014, method 3), of n-grams as
    long as the text has. UsageError where sacrebleu is missing.
    """

    def __init__(self, *, tokenize: str, lowercase: bool) -> None:
        written.check_writing_metrics(["bleu"], tokenize)
        from sacrebleu.metrics import BLEU

        self.bleu: Any = BLEU(tokenize=tokenize, lowercase=lowercase, effective_order=True)

    def __call__(self, texts: Sequence[str], references: Sequence[str]) -> str | None:
        nonempty = [text for text in texts if text]
        scores = [self.bleu.sentence_score(text, list(references)).score for text in nonempty]
        return nonempty[scores.index(max(scores))] if nonempty else None
