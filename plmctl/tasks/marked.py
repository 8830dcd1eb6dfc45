"""Rows of texts whose entities are marked, and the states that are read from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

from torch import Tensor

from plmctl.core.batch import Batch, Rows
from plmctl.core.errors import ConfigError
from plmctl.core.parts import Opens
from plmctl.heads.features import BEFORE_HEADS
from plmctl.heads.features import read as features_of
from plmctl.knowledge.known import describe_known
from plmctl.models.base import Model
from plmctl.tasks.layouts import markers
from plmctl.tasks.layouts.marked import (
    ASKED,
    States,
    ask_entities,
    confirm_entities,
    encode_marked,
    find_numbers,
    lack_entities,
    read_mentions,
    read_numbers,
    refuse_unread,
)
from plmctl.tasks.layouts.markers import Style
from plmctl.tasks.record import Example
from plmctl.tasks.task import Task
from plmctl.tasks.transform import pool_rows


class MarkedTask(Task):
    """The common part of tasks whose texts have `count` entities with marks around them.

    `marks`: around each entity (tasks/layouts/markers.py). `states`: the states that the answer is
    read from. They are the first state of an entity ("start"), their mean, or one state of the row.
    "entities" are the states of tokens that stand for the entities behind the words (Yamada et al.,
    2020, arXiv:2010.01057, sec. 4.1 and 4.2). Differs: such a token stands from the mark before its
    entity to the last token, in the released code to the mark behind it. `entities`: the vectors or
    knowledge directory in which entities are looked up, by id or name, for a model that reads them;
    None: it sees none.
    """

    count: int
    marks: Style
    states: States
    entities: str | None = None
    opens: ClassVar[Opens] = {"entities": confirm_entities}

    @cached_property
    def numbers(self) -> Mapping[str, int] | None:
        """The numbers of the entities that the model may see, by id and name."""
        return read_numbers(self.entities)

    def mark(self, style: Style, states: States, entities: str | None = None) -> None:
        """Set the marks, what the answer is read from, and what both need of a model."""
        refuse_unread(states, self.settings.sees_later)
        self.marks, self.states, self.entities = style, states, entities
        self.requires = replace(
            markers.add_needs(self.requires, style, self.count),
            vectors=None if states == "row" else self.count,
            settings={"entities.asked": ASKED} if states == "entities" else {},
        )

    def check_tokenizer(self, tokenizer: Any) -> None:
        markers.make_marks(self.marks, tokenizer, types=[""] * self.count, first_new=0)

    def describe_known(self, examples: Sequence[Example]) -> list[str]:
        return [*self._describe_types(examples), *self._describe_numbers(examples)]

    def _describe_types(self, examples: Sequence[Example]) -> list[str]:
        """Marks of types are symbols where a type is not known."""
        if self.marks != "types":
            return []
        types = [each["type"] for example in examples for each in example.fields["entities"]]
        what, fix = "entities of train have a type for their marks", "task.marks=symbols"
        return [describe_known(sum(map(bool, types)), len(types), what, file=self.path, fix=fix)]

    def _describe_numbers(self, examples: Sequence[Example]) -> list[str]:
        if self.numbers is None:
            return []
        found = [number for example in examples for number in find_numbers(example, self.numbers)]
        known = sum(number >= 0 for number in found)
        what, fix = "entities of train are in task.entities", "task.entities=null, or what has them"
        return [describe_known(known, len(found), what, file=self.entities, fix=fix)]

    def check_model(self, model: Model, vocab_size: int = 0) -> None:
        if self.states != "entities":
            return
        if "entities" not in model.backbone.streams:
            raise lack_entities()
        for name in BEFORE_HEADS:
            if name in model.heads:
                allowed = "null: task.states=entities reads the last states of entities"
                raise ConfigError(f"heads.{name}", ..., allowed, fix="task.states=start")

    def texts(self, example: Example) -> list[str]:
        return [example.fields["text"], *markers.spell(self.marks)]

    def unit(self, example: Example) -> str:
        return str(example.fields["text"])

    def encode_texts(self, examples: Sequence[Example], tokenizer: Any) -> Rows:
        """One row an example, as `encode_marked` makes them, and the tokens of its entities."""
        rows = encode_marked(
            examples,
            tokenizer,
            style=self.marks,
            max_length=self.max_length,
            pooling=self.pooling,
            transform=self.transform,
            numbers=self.numbers,
        )
        return ask_entities(rows) if self.states == "entities" else rows

    def read_states(self, model: Model, batch: Batch) -> Tensor:
        """[B, W], or [B, count W] side by side: the states that the answer is read from."""
        if self.states == "row":
            return pool_rows(self, model, batch)
        if self.states == "entities":
            states = model(batch).streams.get("entities")
            if states is None:
                raise lack_entities()
            return states.flatten(1)
        return read_mentions(features_of(model, batch), batch, self.states).flatten(1)
