"""Entity discrimination (ERICA; Qin et al., 2021): a document predicts the tail of a fact from the
name of the relation and the head before it.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.models.base import Model
from plmctl.objectives.ask import make_output
from plmctl.objectives.base import Facts, Objective, Output
from plmctl.objectives.contrast import multiply
from plmctl.objectives.mentions import Mentions


@part_of("objective")
class EntityContrast(Objective):
    """`- log [exp(s_ht / t) / sum_l exp(s_hl / t)]`, s the cosine of two entities of a document.
    The fact in `spans.query` has head h and tail t; l are all other entities of the document (Qin
    et al., 2021, arXiv:2012.15022, eq. 3; thunlp/ERICA, NTXentLoss_wiki).

    Entities are means over their mentions in the document (objectives/mentions.py); the query
    before it is no mention. `twice`: the denominator has the tail twice, as in the released code.
    The mean over documents with a query. Other true tails stay among the l.
    """

    holds_cells = True
    facts = Facts(
        needs=frozenset({"text", "spans.entity", "spans.query"}),
        terms=frozenset({"entity_contrast"}),
    )

    def __init__(self, *, temperature: float, twice: bool = False) -> None:
        super().__init__()
        if temperature <= 0:
            raise ConfigError("temperature", temperature, "above 0", fix="temperature=0.05")
        self.temperature, self.twice = temperature, twice

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"entity_contrast": len(batch.spans.get("query", ()))}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        count = self.counts(batch)["entity_contrast"]
        if not count:
            return Output({})
        hidden, mentions = model(batch, state), Mentions.of(batch)
        query = batch.require("spans.query").cpu().numpy()
        track = batch.text.tracks.get("document")
        number = np.zeros(count, np.int64)
        if track is not None:
            number = track.cpu().numpy()[query[:, 0], query[:, 1]]
        home = query[:, 0] * batch.text.ids.shape[1] + number
        head, tail = (
            [_find(mentions, *pair) for pair in zip(home, query[:, column], strict=True)]
            for column in (3, 5)
        )
        vectors = F.normalize(mentions.pool(hidden.last), dim=-1)  # [e, W]
        scores = multiply(vectors[head], vectors) / self.temperature  # [q, e]
        others = home[:, None] == mentions.document
        others[np.arange(count), head] = False
        label = torch.tensor(tail, device=scores.device)
        scores = scores.masked_fill(~torch.from_numpy(others).to(scores.device), -torch.inf)
        loss = self._loss(scores, label)
        right = (scores.argmax(1) == label).sum()
        return make_output("entity_contrast", loss, right, count, hidden.state)

    def _loss(self, scores: Tensor, label: Tensor) -> Tensor:
        own = scores.gather(1, label[:, None])
        if self.twice:
            scores = torch.cat([scores, own], 1)
        return (scores.logsumexp(1) - own[:, 0]).sum()


def _find(mentions: Mentions, document: int, identity: int) -> int:
    """The number of an entity of a document."""
    return int(np.flatnonzero((mentions.document == document) & (mentions.ids == identity))[0])
