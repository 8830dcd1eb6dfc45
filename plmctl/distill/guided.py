"""GISTEmbed (Solatorio, 2024): a guide says which texts of a batch are no negatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Amount, Number
from plmctl.distill.base import LOGITS, Logits, Teacher
from plmctl.heads.sentences import SENTENCE, embed_text
from plmctl.models.base import Model
from plmctl.objectives.base import Contrast, Objective, Output, Term
from plmctl.objectives.contrast import multiply
from plmctl.objectives.wrapper import Wrapper
from plmctl.tasks.bi_encoder import NONE, BatchCandidates, BiEncoder

GUIDE = "guide"


@part_of("distill")
class Guided(Wrapper):
    """`- log exp(s(q, p) / t) / (exp(s(q, p) / t) + sum_n exp(s(n) / t))`, s the cosine of two
    texts. The candidates n are the other texts and questions of the batch, compared with q, and the
    other positives, compared with p. A candidate counts only where the teacher, the guide, finds it
    no more alike than q and p less a margin (Solatorio, 2024, arXiv:2402.16829, sec. 3; margins as
    in sentence-transformers, 2024).

    Differs: the guide reads the tokens of the student, so both have one tokenizer; a text equal to
    a positive is no candidate, whatever the guide finds.

    Args:
        objective: The task, a bi-encoder; its own likeness and temperature have no effect.
        teacher: The guide.
        temperature: t.
        margin: A part of the likeness of q and p, or with `relative` a share of it.
        relative: Whether the margin is a share.
        pooling: The guide's vector of a text (heads/sentences.py); None: as the task pools.
    """

    def __init__(
        self,
        *,
        objective: Objective,
        teacher: Teacher,
        temperature: Amount = 0.01,
        margin: Number = 0.0,
        relative: bool = False,
        pooling: str | None = None,
    ) -> None:
        super().__init__(objective)
        if not (objective.facts.contrasts and getattr(objective.facts, "ranks", False)):
            allowed = "a task that compares questions with texts: bi_encoder, simcse_nli"
            raise ConfigError("distill", "guided", allowed, fix="task=bi_encoder")
        self.teacher = teacher
        self.temperature, self.margin, self.relative = temperature, margin, relative
        self.question = _Vectors(pooling or self.task.pooling)
        helpers = tuple((helper, frozenset[str]()) for helper in teacher.models())
        facts = objective.facts
        self.facts = replace(facts, helpers=(*facts.helpers, *helpers))

    @property
    def task(self) -> BiEncoder:
        """The task."""
        return cast(BiEncoder, self.objective)

    def forward(self, model: Model, batch: Batch, state: Any = None) -> Output:
        output = self.objective(model, batch, state)
        logits = self.teacher.predict(batch, self.question, frozenset({LOGITS})).logits
        guide = {GUIDE: logits[SENTENCE].gather(slice(None))}
        own = output.contrasts[SENTENCE]
        guided = Contrast(self.compare, own.vectors, {**own.beside, **guide}, own.numbers)
        found = guided.output(SENTENCE)
        return replace(
            output,
            terms={**output.terms, **found.terms},
            logs={**output.logs, **found.logs},
            contrasts={**output.contrasts, **found.contrasts},
        )

    def compare(self, vectors: Mapping[str, Tensor], beside: Mapping[str, Tensor]) -> Output:
        """The loss of all questions of an update."""
        found = BatchCandidates.of(beside)
        guide = _Likenesses.of(beside[GUIDE], found)
        limit = guide.right - self.margin * (guide.right.abs() if self.relative else 1)
        counted = guide.allowed & (guide.others <= limit[:, None])

        def compute(own: Tensor) -> Output:
            student = _Likenesses.of(own, found)
            scores = student.others / self.temperature
            worst = scores.masked_fill(~counted, NONE)
            right = student.right / self.temperature
            losses = F.softplus(worst.logsumexp(1) - right)
            share = 1 / found.positive.sum(1)[student.row]  # a question has several positives
            total, best = (losses * share).sum(), ((right > worst.amax(1)) * share).sum()
            count = len(found.positive)
            return Output({SENTENCE: Term(total, count=count)}, {"acc/sentence": (best, count)})

        return self.task.nested.add_up(compute, vectors[SENTENCE])


@dataclass(frozen=True)
class _Likenesses:
    """The cosines of P pairs of a question and a positive, and of their C candidates.

    Args:
        row: [P] the question of each pair.
        right: [P] the cosine of each pair.
        others: [P, C] the cosines with texts, with questions, and of the positive with texts.
        allowed: [P, C] which candidates are texts of other pairs.
    """

    row: Tensor
    right: Tensor
    others: Tensor
    allowed: Tensor

    @classmethod
    def of(cls, vectors: Tensor, found: BatchCandidates) -> _Likenesses:
        """The likenesses of vectors [B, W]."""
        unit = F.normalize(vectors, dim=-1)
        q, d = unit[found.is_question], unit[~found.is_question]
        row, text = found.positive.nonzero(as_tuple=True)
        across = multiply(q, d)
        others = [across[row], multiply(q, q)[row], multiply(d, d)[text]]
        apart = ~torch.eye(len(q), dtype=torch.bool, device=q.device)
        wrong = found.negative[row]
        allowed = [wrong, apart[row], wrong & found.positive.any(0)]
        return cls(row, across[row, text], torch.cat(others, 1), torch.cat(allowed, 1))


class _Vectors:
    """The question for the vector of each text."""

    chooses = False

    names = (SENTENCE,)

    def __init__(self, pooling: str) -> None:
        self.pooling, self.heads = pooling, frozenset[str]()

    def counts(self, batch: Batch) -> dict[str, int]:
        """The rows of the batch."""
        return {SENTENCE: len(batch.key)}

    def logits(self, model: Model, batch: Batch) -> dict[str, Logits]:
        """The vectors."""
        vectors = embed_text(model, batch, self.pooling)
        labelled = torch.ones(len(vectors), dtype=torch.bool, device=vectors.device)
        return {SENTENCE: Logits(vectors, labelled)}
