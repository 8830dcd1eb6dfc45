"""Masked next-token prediction (Charpentier and Samuel, 2024): one model with two modes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.core.values import Rate
from plmctl.heads.base import head_of
from plmctl.models.base import Model
from plmctl.objectives.base import Facts, Objective, Output, Term
from plmctl.objectives.clm import find_neighbours


@part_of("objective")
class MaskedNext(Objective):
    """`r mean_masked - log p(x_{t+1} | noised row, state t) + (1 - r) mean_causal - log p(x_{t+1} |
    x_0 .. x_t)`, by one head.

    In rows with masks, the state before a masked token predicts it; in causal rows, each state
    predicts the next token. So both modes ask the same of a state. (Charpentier and Samuel, 2024,
    arXiv:2410.24159, sec. 2; ltgoslo/gpt-bert.) A token without one before it in its document is
    not predicted. Differs: without the penalty of large logits (1e-4 times the squared log of their
    sum).

    Args:
        masked_weight: r, the weight of the rows with masks.
    """

    facts = Facts(
        needs=frozenset({"text", "targets.mlm", "values.causal"}),
        heads=frozenset({"masked_next"}),
        terms=frozenset({"masked", "causal"}),
    )
    fields: Mapping[str, Field] = {
        "targets.masked": Field(
            "[n, T]", "int", "id of the next token where that is masked, or IGNORE", tokens=True
        ),
        "targets.causal": Field(
            "[n, T]", "int", "id of the next token in causal rows, or IGNORE", tokens=True
        ),
    }

    def __init__(self, *, masked_weight: Rate) -> None:
        super().__init__()
        self.weights = {"masked": masked_weight, "causal": 1 - masked_weight}

    def labels(self, rows: Rows) -> dict[str, np.ndarray]:
        if "mlm" not in rows.targets:
            return {}  # a noise that masks is missing, and reported
        text, causal = rows.seqs["text"], rows.values["causal"].astype(bool)[:, None]
        masked = find_neighbours(text, after=True, of=rows.targets["mlm"])
        every = find_neighbours(text, after=True)
        return {
            "masked": np.where(causal, IGNORE, masked),
            "causal": np.where(causal, every, IGNORE),
        }

    def counts(self, batch: Batch) -> dict[str, int]:
        return {name: batch.counts[name] for name in self.weights}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        hidden, head = model(batch, state), head_of(model, "masked_next")
        terms, logs = {}, {}
        for name, weight in self.weights.items():
            targets = batch.require(f"targets.{name}")
            loss, right = head.loss(hidden.gather(targets.index), targets.ids)
            terms[name] = Term(loss, weight)
            if right is not None:
                logs[f"acc/{name}"] = (right, batch.counts[name])
        return Output(terms, logs, hidden.state)
