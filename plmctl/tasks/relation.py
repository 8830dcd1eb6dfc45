"""The relation between two entities that are marked in a text: FewRel, TACRED, SemEval-2010 task 8
and files of their layouts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from plmctl.core.parts import part_of
from plmctl.tasks.classification import Classification, ClassificationSettings
from plmctl.tasks.layouts.marked import States
from plmctl.tasks.layouts.marked_rows import MarkedRows
from plmctl.tasks.layouts.markers import Style
from plmctl.tasks.scores.relation import RelationScores


@dataclass(frozen=True, kw_only=True)
class RelationSettings(ClassificationSettings):
    """Settings of relation classification.

    Args:
        marks: around head and tail (tasks/layouts/markers.py).
        states: The states that the relation is read from.
        entities: the vectors or knowledge directory in which the entities of the texts are looked
            up, by id or name, for a model that reads them; None: the model is shown none.
        no_relation: the label that is no relation, which precision, recall and F1 leave out; None:
            one of the usual names, if the training split has it.
    """

    marks: Style = "symbols"
    entities: str | None = None
    states: States = "start"
    no_relation: str | None = None
    columns: Mapping[str, Any] | None = None  # type: ignore[assignment]  # its files have none


@part_of("task")
class RelationClassification(Classification):
    """Predicts the relation of a head and a tail entity, which are marked (Baldini Soares et al.,
    2019, arXiv:1906.03158, sec. 3).

    `loss = -log softmax(head([h_head; h_tail]))[relation]`, averaged over examples. `states`:
    "start", h is the state of the mark before an entity, or of its first token without marks.
    "mean" is the mean from that mark to the last token (Qin et al., 2021, arXiv:2012.15022,
    released code). "row" is one state for the row (Zhang et al., 2019, arXiv:1905.07129, sec. 3.5).
    A text that is too long keeps the part with both entities.
    """

    fields = MarkedRows.fields
    facts = replace(
        Classification.facts,
        typed="texts that you type, one a line, with <e1>head</e1> and <e2>tail</e2>",
    )
    opens = MarkedRows.opens

    Settings = RelationSettings

    def lay_out(self, own: RelationSettings) -> MarkedRows:
        return MarkedRows(count=2, marks=own.marks, states=own.states, entities=own.entities)

    def judge(self, own: RelationSettings) -> RelationScores:
        return RelationScores(no_relation=own.no_relation)
