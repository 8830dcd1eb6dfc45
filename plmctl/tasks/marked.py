"""Rows of texts whose entities are marked, and the states that are read from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import Batch, Rows, Seq
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field
from plmctl.core.parts import Opens
from plmctl.heads.features import BEFORE_HEADS
from plmctl.heads.features import read as features_of
from plmctl.knowledge.directory import KnowledgeDirectory, confirm
from plmctl.knowledge.known import describe_known
from plmctl.knowledge.vectors import find_vectors, read_vectors
from plmctl.models.base import Model
from plmctl.tasks import encode, markers
from plmctl.tasks.base import Example, Task
from plmctl.tasks.markers import MarkedText, Style
from plmctl.tasks.transform import Transform

MENTIONS = Field(
    "[n, 2 E]",
    "int",
    "first position of each marked entity with its mark, and the one behind its last token",
)
States = Literal["start", "mean", "row", "entities"]
ASKED = 2  # tokens of entities, so that one model serves tasks of one and of two


def confirm_entities(folder: str | None) -> None:
    """Raise AbsentData for a folder that has neither the vectors nor the names of entities."""
    if folder is not None and not find_vectors(folder):
        confirm(folder)


class MarkedTask(Task):
    """What tasks share whose texts have `count` entities with marks around them.

    `marks`: around each entity (tasks/markers.py); `states`: what the answer is read from: the
    first state of an entity ("start"), their mean, one state of the row, or those of tokens that
    stand for the entities behind the words ("entities": Yamada et al., 2020, arXiv:2010.01057,
    sec. 4.1 and 4.2; Differs: such a token stands from the mark before its entity to the last
    token, in the released code to the mark behind it);
    `entities`: the vectors or knowledge directory in which entities are looked up, by id or name,
    for a model that reads them, None where it is shown none.
    """

    count: int
    marks: Style
    states: States
    entities: str | None = None
    opens: ClassVar[Opens] = {"entities": confirm_entities}

    @cached_property
    def numbers(self) -> Mapping[str, int] | None:
        """Of the entities that the model may be shown, by id and name."""
        return read_numbers(self.entities)

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
        found = [number for example in examples for number in _find_numbers(example, self.numbers)]
        known = sum(number >= 0 for number in found)
        what, fix = "entities of train are in task.entities", "task.entities=null, or what has them"
        return [describe_known(known, len(found), what, file=self.entities, fix=fix)]

    @property
    def vectors(self) -> int | None:
        return None if self.states == "row" else self.count

    @property
    def new_tokens(self) -> int:
        return super().new_tokens + markers.count_new(self.marks, self.count)

    @property
    def reads_ids(self) -> bool:
        return super().reads_ids or self.marks == "tokens"

    @property
    def model_settings(self) -> Mapping[str, Any]:
        return {"entities.asked": ASKED} if self.states == "entities" else {}

    def check_model(self, model: Model) -> None:
        if self.states != "entities":
            return
        if "entities" not in model.backbone.streams:
            raise _lack_entities()
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
            return self.pool_rows(model, batch)
        if self.states == "entities":
            states = model(batch).streams.get("entities")
            if states is None:
                raise _lack_entities()
            return states.flatten(1)
        return read_mentions(features_of(model, batch), batch, self.states).flatten(1)


def encode_marked(
    examples: Sequence[Example],
    tokenizer: Any,
    *,
    style: Style,
    max_length: int,
    pooling: str,
    transform: Transform,
    numbers: Mapping[str, int] | None = None,
) -> Rows:
    """One row an example: its `text` with marks around its `entities`, and values.mentions. Of a
    text that is too long, the part with its entities stays.

    Args:
        numbers: of entities, by their ids and names; then the first token of each entity that is
            known has its number, plus 1, in tracks.entity.
    """
    vocab = transform.vocab(tokenizer.vocab)
    room = max_length - encode.specials(vocab, pair=False)
    first_new = tokenizer.vocab.size + transform.new_tokens
    laid_out: list[encode.Row] = []
    mentions: list[list[int]] = []
    lost: list[int] = []
    entities: list[tuple[int, int, int]] = []  # row, position, number
    for example in examples:
        marked = _mark(example, tokenizer, style, first_new)
        marked = markers.shorten(marked, room)
        row = encode.lay_out(marked.ids, None, vocab, max_length=max_length, pooling=pooling)
        lost.append(marked.lost)
        mentions.append([row.a_start + place for span in marked.spans for place in span])
        if numbers is not None:
            known = _find_numbers(example, numbers)
            entities += [
                (len(laid_out), row.a_start + place, number)
                for place, number in zip(marked.starts, known, strict=True)
            ]
        laid_out.append(encode.Row(row.ids, row.a_start, None, row.anchor, marked.cut))
    rows = encode.pad(laid_out, vocab, example=range(len(laid_out)))
    places, gone = (np.array(numbers, dtype=np.int64) for numbers in (mentions, lost))
    rows = encode.add_values(encode.mark_anchors(rows), mentions=places, lost=gone)
    if numbers is not None:
        text = rows.seqs["text"]
        track = np.zeros(text.ids.shape, np.int32)
        row_of, place_of, number_of = np.array(entities, np.int64).reshape(-1, 3).T
        track[row_of, place_of] = number_of + 1
        rows = rows.with_seq("text", text.with_tracks(entity=track))
    return transform.add_targets(rows)


def ask_entities(rows: Rows) -> Rows:
    """`rows` with the sequence `entities`: one for each marked entity, in their order, at its
    mention (nn/entity_tokens.py).
    """
    first, end = np.moveaxis(rows.values["mentions"].reshape(len(rows.key), -1, 2), 2, 0)  # [n, E]
    ids = np.broadcast_to(-1 - np.arange(first.shape[1], dtype=np.int32), first.shape)
    tracks = {"mention_start": first, "mention_size": end - first}
    length = np.full(len(first), first.shape[1], np.int64)
    return rows.with_seq("entities", Seq(ids, length, tracks, view=True))


def _lack_entities() -> ConfigError:
    allowed = "start, mean or row: this model reads no tokens of entities"
    fix = "task.states=start, or checkpoint=<a run of plmctl pretrain luke>"
    return ConfigError("task.states", "entities", allowed, fix=fix)


def read_numbers(folder: str | None) -> Mapping[str, int] | None:
    """The number of each name in a vectors directory, or in a knowledge directory; None without."""
    if folder is None:
        return None
    path = Path(folder).expanduser()
    if not find_vectors(path):
        return KnowledgeDirectory(path).ids
    return {name: number for number, name in enumerate(read_vectors(path).entities)}


def _find_numbers(example: Example, numbers: Mapping[str, int]) -> list[int]:
    """The number of each entity of an example, by its id or as it stands in the text, else -1."""
    text = example.fields["text"]
    return [
        numbers.get(each["id"], numbers.get(text[each["start"] : each["end"]], -1))
        for each in example.fields["entities"]
    ]


def _mark(example: Example, tokenizer: Any, style: Style, first_new: int) -> MarkedText:
    ids, offsets = tokenizer.encode_offsets(example.fields["text"])
    entities = example.fields["entities"]
    types = [each["type"] for each in entities]
    marks = markers.make_marks(style, tokenizer, types=types, first_new=first_new)
    return markers.mark(ids, offsets, [(each["start"], each["end"]) for each in entities], marks)


def refuse_unread(states: States, sees: bool) -> None:
    """ConfigError for states of entities in a model whose tokens see none behind them."""
    if states != "row":
        why = "the states of entities stand before the end of the text"
        fix = "task.states=row task.marks=symbols, or a checkpoint of an encoder"
        encode.refuse_causal(sees, why, fix=fix)


def read_mentions(features: Tensor, batch: Batch, states: States) -> Tensor:
    """[B, E, W] the vectors of the E entities of each row out of `features [B, T, W]`: the first
    of its states ("start"), or their mean.
    """
    places = batch.require("values.mentions").unflatten(1, (-1, 2))  # [B, E, 2]
    first, end = places.unbind(-1)
    if states == "start":
        return features.gather(1, first[..., None].expand(-1, -1, features.shape[-1]))
    position = torch.arange(features.shape[1], device=first.device)
    inside = (position >= first[..., None]) & (position < end[..., None])  # [B, E, T]
    shares = inside / inside.sum(-1, keepdim=True).clamp(min=1)
    return shares.to(features.dtype) @ features
