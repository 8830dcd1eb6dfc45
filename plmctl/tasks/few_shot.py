"""Few-shot relations: N relations that training has not seen, K examples of each, and sentences
that ask for theirs (FewRel).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from plmctl.core.batch import Batch, Rows
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.models.base import Model
from plmctl.tasks.episodes import EpisodeSettings, EpisodicTask
from plmctl.tasks.layouts.marked import MENTIONS, States
from plmctl.tasks.layouts.markers import Style, spell
from plmctl.tasks.marked import MarkedTask
from plmctl.tasks.record import Example


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
class FewShot(EpisodicTask, MarkedTask):
    """Which of N relations has a sentence, given K sentences of each (Han et al., 2018,
    arXiv:1810.10147, sec. 4)?

    An example is an episode: N relations of the split, K shots and some queries of each, all
    different sentences, compared as `Episodes` says (Snell et al., 2017, arXiv:1703.05175, sec.
    2.2). A relation is in one split only: of a single file, `dev_share` of the sentences, whole
    relations, are dev. `accuracy` is the mean over episodes, and `interval` half the width of its
    95% interval, 1.96 standard errors.
    """

    facts = replace(EpisodicTask.facts, head="vector")
    fields: Mapping[str, Field] = {**EpisodicTask.fields, "values.mentions": MENTIONS}
    count = 2

    Settings = FewShotSettings

    def __init__(self, **settings: Any) -> None:
        own = FewShotSettings(**settings)
        super().__init__(own, "relations")
        self.mark(own.marks, own.states)
        self.own = own

    def unit(self, example: Example) -> str:
        """All sentences of a relation."""
        return str(example.label)

    def texts(self, example: Example) -> list[str]:
        texts = [each["text"] for each in example.fields["sentences"]]
        return [*texts, *spell(self.marks)]

    def encode(self, examples: Sequence[Example], tokenizer: Any) -> Rows:
        sentences, index = self.episodes.lay_out(examples)
        known = self.encode_texts([Example("", fields) for fields in sentences], tokenizer)
        return self.episodes.encode(known, index)

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        vectors = model.heads["vector"](self.read_states(model, batch))  # [B, C]
        return {"vector": self.episodes.compare(vectors, batch)}
