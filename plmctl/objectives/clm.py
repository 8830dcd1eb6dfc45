"""Causal language modelling (Radford et al., 2018): the next token of the same document is
predicted.
"""

from __future__ import annotations

import numpy as np

from plmctl.core.batch import IGNORE, Batch, Rows, Seq
from plmctl.core.parts import part_of
from plmctl.models.base import Model
from plmctl.objectives.ask import ask
from plmctl.objectives.base import Facts, Objective, Output


@part_of("objective")
class CLM(Objective):
    """`- sum_t log p(token_{t+1} | tokens 0..t)`; there is no target at the end of a document
    or before padding.

    (Radford et al., 2018, sec. 3.1). Needs a causal pattern: otherwise the input holds the
    label. A format whose rows continue in the next batch gives the next tokens itself; otherwise
    they are taken from the row.
    """

    facts = Facts(
        needs=frozenset({"text", "targets.clm"}),
        heads=frozenset({"clm"}),
        terms=frozenset({"clm"}),
        asks_next="text",
        reads_text=True,
    )

    def labels(self, rows: Rows) -> dict[str, np.ndarray]:
        if "clm" in rows.targets:
            return {"clm": rows.targets["clm"]}
        return {"clm": find_neighbours(rows.seqs["text"], after=True)}

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"clm": batch.counts["clm"]}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        return ask(model, batch, "clm", state=state)


def find_neighbours(text: Seq, *, after: bool) -> np.ndarray:
    """[n, T] the token after each one, or before it, in the same document; IGNORE where there is
    none.
    """
    left, right = slice(None, -1), slice(1, None)
    near = text.real[:, left] & text.real[:, right]
    if "document" in text.tracks:
        near = near & (text.tracks["document"][:, left] == text.tracks["document"][:, right])
    neighbours = np.full(text.ids.shape, IGNORE, dtype=np.int64)
    to, of = (left, right) if after else (right, left)
    neighbours[:, to] = np.where(near, text.ids[:, of], IGNORE)
    return neighbours
