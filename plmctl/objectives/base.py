"""What every objective is: totals by name, whose counts are known before the first backward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor, nn

from plmctl.core.batch import Batch, Rows
from plmctl.core.fields import Field
from plmctl.core.parts import base_of
from plmctl.models.base import Model


@dataclass(frozen=True)
class Term:
    """A summed loss. The trainer divides `total` by the term's count over the whole update, then
    multiplies by `weight`.
    """

    total: Tensor  # [] sum over this micro-batch, fp32
    weight: float = 1.0


@dataclass(frozen=True)
class Output:
    terms: Mapping[str, Term]
    # name -> (total, count), e.g. "acc/mlm"
    logs: Mapping[str, tuple[Tensor, int | Tensor]] = field(default_factory=dict)
    state: Any = None


@base_of("objective")
class Objective(nn.Module):
    """One published question to the model. Owns what only training needs (a generator, a
    projection); heads live in Model.

    `needs`: fields of the batch. `uses`: fields that it reads where they are
    there. `fields`: those that it introduces. `heads`: names it looks up in `model.heads`.
    `answers`: for each label that the format numbers (`Format.meanings`), the head that has one
    output for each number.
    `at_every_token`: heads that are given every position of a row, for the count of FLOPs.
    `asks_next`: the sequence whose every state is asked for the token behind it, so that none may
    have seen it. `asks_row`: one token is asked about all of
    its row. `plain`: `labels` reads answers off the text, which no noise may have changed.
    `heads_learn`: what it teaches shows in their answers, so that they say which checkpoint is
    best.
    """

    needs: frozenset[str] = frozenset()
    uses: frozenset[str] = frozenset()
    fields: Mapping[str, Field] = {}
    heads: frozenset[str] = frozenset()
    answers: Mapping[str, str] = {}
    least_rows: int = 1
    at_every_token: frozenset[str] = frozenset()
    asks_next: str | None = None
    asks_row: bool = False
    plain: bool = False
    heads_learn: bool = True

    def helpers(self) -> list[tuple[Model, frozenset[str]]]:
        """Models that answer every batch without learning of it, each with its heads that are
        asked: for the count of FLOPs.
        """
        return []

    def labels(self, rows: Rows) -> dict[str, np.ndarray]:
        """Targets `{name: [n, T]}` that follow from the row alone (next tokens, say); runs in
        the loader, numpy only.
        """
        return {}

    def counts(self, batch: Batch) -> dict[str, int]:
        """{term name: how many summands its total has}: a function of the batch alone."""
        raise NotImplementedError(type(self).__name__)

    def forward(self, model: Model, batch: Batch, state: Any = None) -> Output:
        raise NotImplementedError(type(self).__name__)

    def after_step(self, model: Model, step: int) -> None:
        """Called after every optimizer step (clamping of spans, moving averages)."""
