"""One row for a text with marks around its entities, and the states of these entities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

from torch import Tensor

from plmctl.core.batch import Batch, Rows
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field
from plmctl.core.parts import Opens, part_of
from plmctl.heads.features import BEFORE_HEADS
from plmctl.heads.features import read as features_of
from plmctl.knowledge.known import describe_known
from plmctl.models.base import Model
from plmctl.tasks.facts import ModelNeeds
from plmctl.tasks.layouts import markers
from plmctl.tasks.layouts.base import RowLayout, RowSettings
from plmctl.tasks.layouts.marked import (
    ASKED,
    MENTIONS,
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
from plmctl.tasks.readers.entity_tags import read_tags
from plmctl.tasks.readers.relation import make_example
from plmctl.tasks.record import Example, Examples


@part_of("layout")
class MarkedRows(RowLayout):
    """One row for a text, with marks around its `count` entities.

    `marks`: around each entity (tasks/layouts/markers.py). `states`: the states that the answer is
    read from. They are the first state of an entity ("start"), their mean, or one state of the row.
    "entities" are the states of tokens that stand for the entities behind the words (Yamada et al.,
    2020, arXiv:2010.01057, sec. 4.1 and 4.2). Differs: such a token stands from the mark before its
    entity to the last token, in the released code to the mark behind it. `entities`: the vectors or
    knowledge directory in which entities are looked up, by id or name, for a model that reads them;
    None: it sees none.
    """

    fields: Mapping[str, Field] = {"values.mentions": MENTIONS}
    opens: ClassVar[Opens] = {"entities": confirm_entities}

    def __init__(
        self,
        *,
        count: int,
        marks: Style = "symbols",
        states: States = "start",
        entities: str | None = None,
    ) -> None:
        names = ["mention"] if count == 1 else ["head", "tail"]
        tags = " and ".join(f"<e{n}>{name}</e{n}>" for n, name in enumerate(names, 1))
        self.typed = f"texts that you type, one a line, with {tags}"
        self.count, self.marks, self.states, self.entities = count, marks, states, entities

    @cached_property
    def numbers(self) -> Mapping[str, int] | None:
        """The numbers of the entities that the model may see, by id and name."""
        return read_numbers(self.entities)

    def requires(self, rows: RowSettings) -> ModelNeeds:
        refuse_unread(self.states, rows.sees_later)
        return replace(
            markers.add_needs(ModelNeeds(), self.marks, self.count),
            vectors=None if self.states == "row" else self.count,
            settings={"entities.asked": ASKED} if self.states == "entities" else {},
        )

    def check_tokenizer(self, tokenizer: Any) -> None:
        markers.make_marks(self.marks, tokenizer, types=[""] * self.count, first_new=0)

    def describe_known(self, examples: Examples, path: Any) -> list[str]:
        return [*self._describe_types(examples, path), *self._describe_numbers(examples)]

    def _describe_types(self, examples: Examples, path: Any) -> list[str]:
        """Marks of types are symbols where a type is not known."""
        if self.marks != "types":
            return []
        types = [each["type"] for example in examples for each in example.fields["entities"]]
        what, fix = "entities of train have a type for their marks", "task.marks=symbols"
        return [describe_known(sum(map(bool, types)), len(types), what, file=path, fix=fix)]

    def _describe_numbers(self, examples: Examples) -> list[str]:
        if self.numbers is None:
            return []
        found = [number for example in examples for number in find_numbers(example, self.numbers)]
        known = sum(number >= 0 for number in found)
        what, fix = "entities of train are in task.entities", "task.entities=null, or what has them"
        return [describe_known(known, len(found), what, file=self.entities, fix=fix)]

    def check_model(self, model: Model) -> None:
        if self.states != "entities":
            return
        if "entities" not in model.backbone.streams:
            raise lack_entities()
        for name in BEFORE_HEADS:
            if name in model.heads:
                allowed = "null: task.states=entities reads the last states of entities"
                raise ConfigError(f"heads.{name}", ..., allowed, fix="task.states=start")

    def parse(self, line: str, number: int, columns: Mapping[str, Any]) -> Example:
        text, *spans = read_tags(line, self.count)
        none, place = [""] * self.count, f"line {number}"
        return make_example(
            str(number - 1), text, spans, ids=none, types=none, label=None, place=place
        )

    def texts(self, example: Example) -> list[str]:
        return [example.fields["text"], *markers.spell(self.marks)]

    def unit(self, example: Example) -> str:
        return str(example.fields["text"])

    def encode(self, examples: Examples, tokenizer: Any, rows: RowSettings) -> Rows:
        """One row an example, as `encode_marked` makes them, and the tokens of its entities."""
        made = encode_marked(
            examples,
            tokenizer,
            style=self.marks,
            max_length=rows.max_length,
            pooling=rows.pooling,
            transform=rows.transform,
            numbers=self.numbers,
        )
        return ask_entities(made) if self.states == "entities" else made

    def read(self, model: Model, batch: Batch, rows: RowSettings, *, together: bool) -> Tensor:
        """`[B, W]`, or `[B, count W]` side by side."""
        if self.states == "row":
            return super().read(model, batch, rows, together=together)
        if self.states == "entities":
            states = model(batch).streams.get("entities")
            if states is None:
                raise lack_entities()
            return states.flatten(1)
        return read_mentions(features_of(model, batch), batch, self.states).flatten(1)
