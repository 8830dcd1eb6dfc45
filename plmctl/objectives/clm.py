"""Causal language modelling (Radford et al., 2018): the next token of the same document is
predicted.
"""

from __future__ import annotations

import numpy as np

from plmctl.core.batch import IGNORE, Batch, Rows, Seq
from plmctl.core.parts import part_of
from plmctl.core.values import Share
from plmctl.models.base import Model
from plmctl.objectives.ask import ask
from plmctl.objectives.base import Facts, Objective, Output


@part_of("objective")
class CLM(Objective):
    """`- sum_t log p(token_{t+1} | tokens 0..t)`; there is no target at the end of a document
    or before padding.

    (Radford et al., 2018, sec. 3.1). Needs a causal pattern: otherwise the input holds the label. A
    format whose rows continue in the next batch gives the next tokens itself; otherwise they are
    taken from the row. Only the last `asked` of each row is predicted: with 0.5 every prediction
    has at least half a row before it (Dai et al., 2019, arXiv:1901.02860, sec. 4.2: half loss).
    """

    facts = Facts(
        needs=frozenset({"text", "targets.clm"}),
        heads=frozenset({"clm"}),
        terms=frozenset({"clm"}),
        asks_next="text",
        reads_text=True,
    )

    def __init__(self, *, asked: Share = 1.0) -> None:
        super().__init__()
        self.asked = asked

    def labels(self, rows: Rows) -> dict[str, np.ndarray]:
        text = rows.seqs["text"]
        labels = rows.targets["clm"] if "clm" in rows.targets else find_neighbours(text, after=True)
        if self.asked == 1:
            return {"clm": labels}
        first = np.ceil(text.length * (1 - self.asked))  # [n] the first token that is predicted
        early = np.arange(labels.shape[1]) < first[:, None]
        return {"clm": np.where(early, IGNORE, labels).astype(labels.dtype)}

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"clm": batch.counts["clm"]}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        return ask(model, batch, "clm", state=state)


def find_neighbours(text: Seq, *, after: bool, of: np.ndarray | None = None) -> np.ndarray:
    """[n, T] the token after each one, or before it, in the same document; IGNORE if the document
    has no such token.

    Args:
        text: The sequence.
        after: The later neighbour, else the earlier one.
        of: [n, T] values of tokens, which are taken instead of their ids.
    """
    values = text.ids if of is None else of
    left, right = slice(None, -1), slice(1, None)
    near = text.real[:, left] & text.real[:, right]
    if "document" in text.tracks:
        near = near & (text.tracks["document"][:, left] == text.tracks["document"][:, right])
    neighbours = np.full(text.ids.shape, IGNORE, dtype=np.int64)
    to, origin = (left, right) if after else (right, left)
    neighbours[:, to] = np.where(near, values[:, origin], IGNORE)
    return neighbours
