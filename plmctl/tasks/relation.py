"""The relation between two entities that are marked in a text: FewRel, TACRED, SemEval-2010 task 8
and files of their layouts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from plmctl.core.batch import Batch, Rows
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.models.base import Model
from plmctl.tasks.classification import Classification, ClassificationSettings
from plmctl.tasks.layouts import markers
from plmctl.tasks.layouts.marked import MENTIONS, States
from plmctl.tasks.marked import MarkedTask
from plmctl.tasks.readers.entity_tags import read_tags
from plmctl.tasks.readers.relation import make_example
from plmctl.tasks.record import Example
from plmctl.tasks.scores import metrics
from plmctl.tasks.scores import relation as relation_score


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

    marks: markers.Style = "symbols"
    entities: str | None = None
    states: States = "start"
    no_relation: str | None = None
    columns: Mapping[str, Any] | None = None  # type: ignore[assignment]  # its files have none


@part_of("task")
class RelationClassification(MarkedTask, Classification):
    """Predicts the relation of a head and a tail entity, which are marked (Baldini Soares et al.,
    2019, arXiv:1906.03158, sec. 3).

    `loss = -log softmax(head([h_head; h_tail]))[relation]`, averaged over examples. `states`:
    "start", h is the state of the mark before an entity, or of its first token without marks.
    "mean" is the mean from that mark to the last token (Qin et al., 2021, arXiv:2012.15022,
    released code). "row" is one state for the row (Zhang et al., 2019, arXiv:1905.07129, sec. 3.5).
    A text that is too long keeps the part with both entities.
    """

    fields: Mapping[str, Field] = {"values.mentions": MENTIONS}
    count = 2
    facts = replace(
        Classification.facts,
        typed="texts that you type, one a line, with <e1>head</e1> and <e2>tail</e2>",
    )

    Settings = RelationSettings

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        own = RelationSettings(**settings)
        self.mark(own.marks, own.states, own.entities)
        self.none = own.no_relation

    @classmethod
    def known_metrics(cls, settings: ClassificationSettings) -> Iterable[str]:
        return {**metrics.by_name(None), **dict.fromkeys(relation_score.NAMES)}

    def parse(self, line: str, number: int) -> Example:
        text, *spans = read_tags(line, 2)
        place = f"line {number}"
        return make_example(str(number - 1), text, spans, label=None, place=place)

    def encode(self, examples: Sequence[Example], tokenizer: Any) -> Rows:
        return self.add_labels(self.encode_texts(examples, tokenizer), examples)

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        return {"class": model.heads["class"](self.read_states(model, batch))}  # [B, K]

    def score(self, predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        gold, guess = [p["gold"] for p in predictions], [p["guess"] for p in predictions]
        none = self.none or next((name for name in relation_score.NONE if name in gold), None)

        def measure(guesses: Sequence[str]) -> dict[str, float]:
            plain = {name: score(gold, guesses) for name, score in metrics.by_name(None).items()}
            return plain | dict(relation_score.score_all(gold, guesses, none))

        found = measure(guess)
        constant = [measure([name] * len(gold)) for name in metrics.often(gold)]
        floor = metrics.floor(
            self.metrics, gold, lambda name: max((each[name] for each in constant), default=0.0)
        )
        return {name: found[name] for name in self.metrics} | floor
