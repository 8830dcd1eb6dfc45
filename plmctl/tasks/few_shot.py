"""Few-shot relations: N relations that training has not seen, K examples of each, and sentences
that ask for theirs (FewRel).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from plmctl.core.batch import Batch, Rows
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.models.base import Model
from plmctl.objectives.base import Facts, Output
from plmctl.tasks.base import Example
from plmctl.tasks.episodes import LABEL, METRICS, NONE, SHOT, Episodes, EpisodeSettings
from plmctl.tasks.marked import MENTIONS, MarkedTask, States, refuse_unread
from plmctl.tasks.markers import Style, spell
from plmctl.tasks.metrics import check_metrics


@dataclass(frozen=True, kw_only=True)
class FewShotSettings(EpisodeSettings):
    """Settings of few-shot relations.

    Args:
        marks: around head and tail (tasks/markers.py).
        states: what stands for a sentence.
    """

    marks: Style = "symbols"
    states: States = "start"
    columns: Mapping[str, Any] | None = None  # type: ignore[assignment]  # its files have none


@part_of("task")
class FewShot(MarkedTask):
    """Which of N relations has a sentence, given K sentences of each (Han et al., 2018,
    arXiv:1810.10147, sec. 4)?

    An example is an episode: N relations of the split, K shots and some queries of each, all
    different sentences, compared as `Episodes` says (Snell et al., 2017, arXiv:1703.05175, sec.
    2.2). A relation is in one split only: of a single file, `dev_share` of the sentences, whole
    relations, are dev. `accuracy` is the mean over episodes, and `interval` half the width of its
    95% interval, 1.96 standard errors.
    """

    head = "vector"
    fields: Mapping[str, Field] = {
        "values.shot": SHOT,
        "labels.vector": LABEL,
        "values.mentions": MENTIONS,
    }
    facts = Facts(needs=frozenset({"text", "labels.vector", "values.shot", "values.group"}))
    chooses = False
    count = 2
    typed = ""  # episodes are drawn from files alone

    Settings = FewShotSettings

    def __init__(self, **settings: Any) -> None:
        own = FewShotSettings(**settings)
        self.episodes = Episodes(own, "relations")
        super().__init__(own, metrics=check_metrics(own.metrics, METRICS))
        refuse_unread(own.states, own.sees_later)
        self.own, self.marks, self.states = own, own.marks, own.states

    @property
    def outputs(self) -> int:
        return self.own.ways

    def unit(self, example: Example) -> str:
        """All sentences of a relation."""
        return str(example.label)

    def texts(self, example: Example) -> list[str]:
        texts = [each["text"] for each in example.fields["sentences"]]
        return [*texts, *spell(self.marks)]

    def parse(self, line: str, number: int) -> Example:
        raise ValueError(NONE)

    def fit_labels(self, examples: Iterable[Example]) -> None:
        pass  # every split has relations of its own

    def read(self, split: str) -> list[Example]:
        """The episodes of a split."""
        return self.draw(super().read(split), split)

    def draw(self, sentences: Sequence[Example], split: str) -> list[Example]:
        """Episodes of relations and sentences that are drawn without repetition in each."""
        return self.episodes.draw(sentences, split)

    def encode(self, examples: Sequence[Example], tokenizer: Any) -> Rows:
        sentences, index = self.episodes.lay_out(examples)
        known = self.encode_texts([Example("", fields) for fields in sentences], tokenizer)
        return self.episodes.encode(known, index)

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        vectors = model.heads["vector"](self.read_states(model, batch))  # [B, C]
        return {"vector": self.episodes.compare(vectors, batch)}

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        return self.episodes.loss(logits["vector"], batch, self.counts(batch)["vector"])

    def predict(
        self, logits: Mapping[str, np.ndarray], rows: Rows, examples: Sequence[Example]
    ) -> list[dict[str, Any]]:
        return self.episodes.predict(logits["vector"], rows, examples)

    def score(self, predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        return self.episodes.score(predictions)
