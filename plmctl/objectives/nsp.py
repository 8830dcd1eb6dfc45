"""Next-sentence prediction (Devlin et al., 2019): asks whether the second segment follows the first."""

from __future__ import annotations

from torch.nn import functional as F

from plmctl.batch import IGNORE, Batch
from plmctl.models.base import Model
from plmctl.objectives.base import Objective, Output, Term


class NSP(Objective):
    """`- sum over anchors of log p(labels.pair | pooled state)`, label 0 = B follows A, 1 = B is from elsewhere.

    (Devlin et al., 2019, arXiv:1810.04805, sec. 3.1, task 2).
    """

    needs = frozenset({"text", "labels.pair"})
    heads = frozenset({"pooler", "nsp"})

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"nsp": batch.counts["pair"]}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        labels = batch.require("labels.pair")
        assert batch.anchors is not None  # the loader sets them together with labels
        pooled = model.heads["pooler"](model(batch, state).at_anchors(batch.anchors))
        logits = model.heads["nsp"](pooled).float()
        total = F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="sum")
        return Output({"nsp": Term(total)}, {"acc/nsp": ((logits.argmax(-1) == labels).sum(), batch.counts["pair"])})
