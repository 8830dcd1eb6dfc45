"""Sequence to sequence (Sutskever et al., 2014): the target is predicted, token by token,
from the source.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.heads.lm import LMHead
from plmctl.models.base import Model
from plmctl.objectives.ask import ask
from plmctl.objectives.base import Facts, Objective, Output, Term


@part_of("objective")
class ConditionalLM(Objective):
    """`- sum_t log p(y_t | y_1 .. y_{t-1}, source)` over all tokens of the target, those around the
    text included.

    With `smoothing` e each loss is `(1 - e) (- log p(y_t)) + e mean_v (- log p(v))` (Szegedy et
    al., 2016, arXiv:1512.00567, sec. 7). `loss/seq2seq` is then the smoothed loss. `nll/seq2seq` is
    the plain one, and perplexities are computed from it. (arXiv:1409.3215, eq. 1; Vaswani et al.,
    2017, arXiv:1706.03762, sec. 5.4: 0.1.)
    """

    facts = Facts(
        needs=frozenset({"source", "target", "targets.seq2seq"}),
        heads=frozenset({"seq2seq"}),
        terms=frozenset({"seq2seq"}),
        asks_next="target",
    )

    def __init__(self, *, smoothing: float = 0.0) -> None:
        super().__init__()
        if not 0 <= smoothing < 1:
            raise ConfigError("smoothing", smoothing, "0 (none) up to 1, which is not allowed")
        self.smoothing = smoothing

    def labels(self, rows: Rows) -> dict[str, np.ndarray]:
        """All of the target, unless the noise has set its own targets."""
        if "seq2seq" in rows.targets:
            return {"seq2seq": rows.targets["seq2seq"]}
        target = rows.seqs["target"]
        return {"seq2seq": np.where(target.real, target.ids, IGNORE)}

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"seq2seq": batch.counts["seq2seq"]}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        return ask_smoothed(model, batch, "seq2seq", smoothing=self.smoothing, state=state)


def ask_smoothed(
    model: Model,
    batch: Batch,
    name: str,
    *,
    smoothing: float,
    spared: int | None = None,
    state: object = None,
) -> Output:
    """As `ask`; with smoothing, which a language-model head knows, the plain loss is logged, too.

    `spared`: as in `LMHead.smoothed_loss`.
    """
    if not smoothing:
        return ask(model, batch, name, state=state)
    targets, hidden = batch.require(f"targets.{name}"), model(batch, state)
    head, count = cast(LMHead, model.heads[name]), batch.counts[name]
    features = hidden.gather(targets.index)
    loss, right, plain = head.smoothed_loss(features, targets.ids, smoothing, spared=spared)
    logs = {f"acc/{name}": (right, count), f"nll/{name}": (plain, count)}
    return Output({name: Term(loss)}, logs, hidden.state)
