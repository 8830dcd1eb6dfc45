"""Sentences with their translations: one vector for both, as a teacher has it of the source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import Batch, Rows
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.heads.sentences import SENTENCE, embed_text
from plmctl.models.base import Model
from plmctl.objectives.base import Contrast, Output, Term
from plmctl.objectives.contrast import info_nce, multiply
from plmctl.tasks.facts import TaskFacts
from plmctl.tasks.layouts import encode
from plmctl.tasks.layouts.apart import PLACE, check_pooling, encode_apart
from plmctl.tasks.record import Arrays, Example, Examples, Predictions
from plmctl.tasks.scores.metrics import check_metrics
from plmctl.tasks.scores.translation_matching import METRICS, match, score_matches
from plmctl.tasks.task import Task, TaskSettings

LABEL = "translation"


@dataclass(frozen=True, kw_only=True)
class SentenceTranslationsSettings(TaskSettings):
    """Settings of sentences with their translations.

    Args:
        pooling: The vector of a text (heads/sentences.py).
        temperature: The divisor of cosines in the loss without a teacher.
        causal: no token of the model sees a later one.
    """

    pooling: str = "mean"
    temperature: float = 0.05
    causal: bool = False


@part_of("task")
class SentenceTranslations(Task):
    """With `distill=vectors`: `|S(s) - T(s)|^2 + |S(t) - T(s)|^2`, s a sentence, t its translation,
    S the student and T the teacher (Reimers and Gurevych, 2020, arXiv:2004.09813, eq. 1). Without a
    teacher: `- log softmax_j(cos(S(s_i), S(t_j)) / temperature)_i`, and the same from t to s, over
    the pairs of a batch (Yang et al., 2019, arXiv:1902.08564, sec. 2.2, without a margin).

    Differs: the mean over texts and columns, as in the released code; several translations of a
    sentence are one example.
    """

    fields: Mapping[str, Field] = {
        "values.place": PLACE,
        "values.text": Field("[n]", "int", "number of the text; equal texts have the same"),
        "labels.translation": Field("[N]", "int", "0 at a row whose vector is learnt"),
    }
    embeds = True
    facts = TaskFacts(
        needs=frozenset({"text", "labels.translation", "values.example", "values.place"})
        | {"values.group", "values.text"},
        head=SENTENCE,
        own_label=LABEL,
        chooses=False,
        contrasts=True,
        pipeline="sentence-similarity",
        typed="sentences with their translations, one pair a line, a tab between",
        outputs=1,
    )

    Settings: ClassVar[type[SentenceTranslationsSettings]] = SentenceTranslationsSettings

    def __init__(self, **settings: Any) -> None:
        own = self.Settings(**settings)
        super().__init__(own, metrics=check_metrics(own.metrics, METRICS))
        check_pooling(own.pooling, causal=own.causal)
        if own.temperature <= 0:
            fix = "task.temperature=0.05"
            raise ConfigError("task.temperature", own.temperature, "above 0", fix=fix)
        self.temperature = own.temperature
        allowed = "a task that predicts labels: vectors alone are no predictions"
        error = ConfigError("task", own.name, allowed, fix="stabiliser=[]")
        self.facts = replace(self.facts, incomparable=error)

    def parse(self, line: str, number: int) -> Example:
        source, tab, target = line.partition("\t")
        if not tab:
            raise ValueError(f"no tab between a sentence and its translation: {line[:80]!r}")
        return Example(str(number - 1), {"source": source}, (target,), f"line {number}")

    def texts(self, example: Example) -> list[str]:
        return [self.lesson(example), *(example.label or ())]

    def lesson(self, example: Example) -> str:
        """The text of an example whose vector the teacher gives."""
        return str(example.fields["source"])

    def gold_of(self, example: Example) -> Any:
        return list(example.label or ())

    def fit_labels(self, examples: Iterable[Example]) -> None:
        pass  # translations have no names

    def encode(self, examples: Examples, tokenizer: Any) -> Rows:
        for example in examples:
            if not example.label:
                fix = "task.columns.target=<its column>"
                raise DataError("a sentence without translation", file=example.place, fix=fix)
        texts = [self.texts(example) for example in examples]
        rows = encode_apart(self, texts, tokenizer)
        numbers: dict[str, int] = {}
        text = [numbers.setdefault(each, len(numbers)) for own in texts for each in own]
        rows = encode.add_values(rows, text=np.array(text))
        return replace(rows, labels={**rows.labels, LABEL: np.zeros(len(text), np.int64)})

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        return {LABEL: embed_text(model, batch, self.pooling)}  # [B, W]

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        beside = {name: batch.require(f"values.{name}") for name in ("place", "text")}
        return Contrast(self.compare, dict(logits), beside).output(LABEL)

    def compare(self, vectors: Mapping[str, Tensor], beside: Mapping[str, Tensor]) -> Output:
        """The loss of all pairs of an update, a sentence with its first translation."""
        first, second = (beside["place"] == place for place in (0, 1))
        unit = F.normalize(vectors[LABEL], dim=-1)
        scores = multiply(unit[first], unit[second]) / self.temperature  # [E, E]
        same = [
            text[:, None] == text for text in (beside["text"][side] for side in (first, second))
        ]
        there, back = (info_nce(each, same[0] | same[1]) for each in (scores, scores.T))
        count, right = 2 * len(scores), there[1] + back[1]
        total = torch.stack([there[0], back[0]]).sum()
        return Output({LABEL: Term(total, count=count)}, {f"acc/{LABEL}": (right, count)})

    def predict(self, logits: Arrays, rows: Rows, examples: Examples) -> list[dict[str, Any]]:
        place = rows.values["place"]
        found, back = match(*(logits[LABEL][place == side] for side in (0, 1)))
        return [
            {"id": e.id, "gold": str(n), "guess": str(found[n]), "back": str(back[n])}
            for n, e in enumerate(examples)
        ]

    def score(self, predictions: Predictions) -> dict[str, float]:
        return score_matches(predictions, self.metrics)
