"""The denoising entity objective (ERNIE; Zhang et al., 2019): which entity is meant here?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.heads.base import cross_entropy
from plmctl.models.base import Model
from plmctl.models.entity_encoder import EntityEncoder
from plmctl.objectives.ask import make_output
from plmctl.objectives.base import Facts, Objective, Output
from plmctl.objectives.contrast import multiply


@part_of("objective")
class EntityDenoise(Objective):
    """`- sum over tokens with an entity of log softmax_j(head(h) . v_j)[its own]`, v_j the frozen
    vectors of the candidates (Zhang et al., 2019, arXiv:1905.07129, eq. 6).

    Candidates are the entities of the update, or of the token's own row (`candidates: sequence`);
    with `none`, the zero vector is one of them, whose logit is 0. The label is the true entity,
    whatever the model was shown; entities without a vector are not predicted (thunlp/ERNIE,
    run_pretrain.py).
    """

    facts = Facts(
        needs=frozenset({"text", "targets.entity"}),
        heads=frozenset({"entity_denoise"}),
        terms=frozenset({"entity_denoise"}),
        shares=True,
        asked_at={"entity_denoise": frozenset({"entity_denoise"})},
    )
    fields: Mapping[str, Field] = {
        "targets.entity_denoise": Field(
            "[n, T]", "int", "id of the entity of a token, if it has a vector, else IGNORE"
        )
    }

    def __init__(
        self, *, model: Model, candidates: Literal["batch", "sequence"] = "batch", none: bool = True
    ) -> None:
        super().__init__()
        if not isinstance(model.backbone, EntityEncoder):
            kind = type(model.backbone).__name__
            raise ConfigError("model", kind, "a model with entities", fix="model=entity_encoder")
        self.candidates, self.none = candidates, none
        self._known = model.backbone.entities.known.cpu().numpy()  # [1 + ids] bool

    def labels(self, rows: Rows) -> dict[str, np.ndarray]:
        ids = rows.targets["entity"]
        row = np.where((ids == IGNORE) | (ids + 1 >= len(self._known)), 0, ids + 1)
        return {"entity_denoise": np.where(self._known[row], ids, IGNORE)}

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"entity_denoise": batch.counts["entity_denoise"]}

    def share(self, batch: Batch) -> dict[str, Tensor]:
        targets = batch.targets.get("entity_denoise")
        return {} if targets is None else {"entity_denoise": targets.ids[: targets.count]}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        targets, hidden = batch.require("targets.entity_denoise"), model(batch, state)
        index, ids = targets.index[: targets.count], targets.ids[: targets.count]
        if not targets.count:
            return make_output("entity_denoise", hidden.last.sum() * 0, None, 0, hidden.state)
        table = cast(EntityEncoder, model.backbone).entities.vectors
        chosen = batch.shared.get("entity_denoise", ids).unique()  # sorted
        label = torch.searchsorted(chosen, ids)
        projected = model.heads["entity_denoise"](hidden.gather(index))  # [P, E]
        logits = multiply(projected, table[chosen + 1])  # [P, C]
        if self.candidates == "sequence":
            row = index // batch.text.ids.shape[1]
            there = torch.zeros(len(batch.text.ids), len(chosen), dtype=torch.bool).to(row.device)
            there[row, label] = True
            logits = logits.masked_fill(~there[row], -torch.inf)
        if self.none:
            logits = torch.cat([logits, logits.new_zeros(len(logits), 1)], 1)
        loss, right = cross_entropy(logits, label)
        return make_output("entity_denoise", loss, right, targets.count, hidden.state)
