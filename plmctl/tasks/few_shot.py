"""Few-shot relations: N relations that training has not seen, K examples of each, and sentences
that ask for theirs (FewRel).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from plmctl.core.batch import Batch
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.models.base import Model
from plmctl.tasks.episodes import EpisodeSettings, EpisodicTask
from plmctl.tasks.layouts.marked import States
from plmctl.tasks.layouts.marked_rows import MarkedRows
from plmctl.tasks.layouts.markers import Style, spell
from plmctl.tasks.record import Example
from plmctl.tasks.task import need


@dataclass(frozen=True, kw_only=True)
class FewShotSettings(EpisodeSettings):
    """Settings of few-shot relations.

    Args:
        marks: around head and tail (tasks/layouts/markers.py).
        states: The states that stand for a sentence.
    """

    marks: Style = "symbols"
    states: States = "start"
    columns: Mapping[str, Any] | None = None  # type: ignore[assignment]  # its files have none


@part_of("task")
class FewShot(EpisodicTask):
    """Which of N relations has a sentence, given K sentences of each (Han et al., 2018,
    arXiv:1810.10147, sec. 4)?

    An example is an episode: N relations of the split, K shots and some queries of each, all
    different sentences, compared as `Episodes` says (Snell et al., 2017, arXiv:1703.05175, sec.
    2.2). A relation is in one split only: of a single file, `dev_share` of the sentences, whole
    relations, are dev. `accuracy` is the mean over episodes, and `interval` half the width of its
    95% interval, 1.96 standard errors.
    """

    facts = replace(EpisodicTask.facts, head="vector")
    fields: Mapping[str, Field] = {**EpisodicTask.fields, **MarkedRows.fields}

    Settings = FewShotSettings

    def __init__(self, **settings: Any) -> None:
        own = FewShotSettings(**settings)
        rows = MarkedRows(count=2, marks=own.marks, states=own.states)
        super().__init__(own, "relations", rows)
        self.marks = own.marks

    def unit(self, example: Example) -> str:
        """All sentences of a relation."""
        return str(example.label)

    def texts(self, example: Example) -> list[str]:
        texts = [each["text"] for each in example.fields["sentences"]]
        return [*texts, *spell(self.marks)]

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        states = need(self.layout).read(model, batch, self.rows, together=False)
        vectors = model.heads["vector"](states)  # [B, C]
        return {"vector": self.episodes.compare(vectors, batch)}
