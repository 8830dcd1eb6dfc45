"""Rows of texts whose entities are marked, and the states that are read from them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import Batch, Rows, Seq
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field
from plmctl.knowledge.directory import KnowledgeDirectory, confirm
from plmctl.knowledge.vectors import find_vectors, read_vectors
from plmctl.tasks.layouts import encode, markers
from plmctl.tasks.layouts.markers import MarkedText, Style
from plmctl.tasks.record import Example, Examples
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


def encode_marked(
    examples: Examples,
    tokenizer: Any,
    *,
    style: Style,
    max_length: int,
    pooling: str,
    transform: Transform,
    numbers: Mapping[str, int] | None = None,
) -> Rows:
    """One row an example: its `text` with marks around its `entities`, and values.mentions. A text
    that is too long keeps the part with its entities.

    Args:
        numbers: The numbers of entities, by their ids and names; then the first token of each known
            entity has its number, plus 1, in tracks.entity.
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
            known = find_numbers(example, numbers)
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


def lack_entities() -> ConfigError:
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


def find_numbers(example: Example, numbers: Mapping[str, int]) -> list[int]:
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
