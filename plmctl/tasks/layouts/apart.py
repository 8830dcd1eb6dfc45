"""Texts of an example that the model reads each by itself: their rows, and the vectors of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from plmctl.core.batch import Rows
from plmctl.core.errors import ConfigError, nearest
from plmctl.core.fields import Field
from plmctl.heads.sentences import TEXT_POOLINGS
from plmctl.tasks.layouts import encode
from plmctl.tasks.layouts.texts import encode_texts
from plmctl.tasks.record import Example
from plmctl.tasks.transform import Transform

PLACE = Field("[n]", "int", "number of the text of this row in its example")
# poolings that need no head of pretraining
POOLINGS = tuple(name for name, how in TEXT_POOLINGS.items() if not how.needed)


def check_pooling(pooling: str, *, causal: bool, known: Sequence[str] = POOLINGS) -> None:
    """ConfigError for a name unknown, and for a token that has seen nothing of the text."""
    if pooling not in known:
        allowed = f"{'one of ' * (len(known) > 1)}{', '.join(known)}{nearest(pooling, known)}"
        raise ConfigError("task.pooling", pooling, allowed, fix=f"task.pooling={known[0]}")
    if causal and pooling == "first":
        allowed = "mean or last: in this model the first token sees no other"
        raise ConfigError("task.pooling", pooling, allowed, fix="task.pooling=last")


class ApartTask(Protocol):
    """A task whose texts are read apart."""

    max_length: int
    pooling: str
    transform: Transform


def encode_apart(task: ApartTask, texts: Sequence[Sequence[str]], tokenizer: Any) -> Rows:
    """A row for each text of each example; those of an example stay in one batch, and
    `values.place` numbers them.
    """
    rows = encode_texts(
        [Example("", {"text": text}) for own in texts for text in own],
        tokenizer,
        max_length=task.max_length,
        pooling=task.pooling,
        transform=task.transform,
        symmetric=False,
    )
    sizes = [len(own) for own in texts]
    example = np.repeat(np.arange(len(texts)), sizes)
    place = np.concatenate([np.arange(size) for size in sizes])
    return encode.group_rows(encode.add_values(rows, example=example, place=place))


def split_pairs(vectors: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    """([E, W], [E, W]) the vectors of the first and of the second text of each example."""
    return vectors[place == 0], vectors[place == 1]


def put_first(values: Tensor, place: Tensor) -> Tensor:
    """[B, ...] `values [E, ...]` of examples at the first row of each, zeros at the others."""
    filled = values.new_zeros(len(place), *values.shape[1:])
    filled[place == 0] = values
    return filled
