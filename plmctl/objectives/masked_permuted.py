"""Masked and permuted prediction (Song et al., 2020, MPNet): hidden tokens are predicted one by one
in a random order, and the positions of all of them are known.
"""

from __future__ import annotations

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.heads.base import head_of
from plmctl.models.base import Model
from plmctl.models.mpnet import PREDICTED
from plmctl.objectives.ask import make_output
from plmctl.objectives.base import Facts, Objective, Output


@part_of("objective")
class MaskedPermuted(Objective):
    """`- sum_t log p(x_t | plain tokens, x of lower order, masks at all other positions)` over
    `targets.mlm`, in the order `tracks.order`.

    (arXiv:2004.09297, eq. 5.)
    """

    facts = Facts(
        needs=frozenset({"text", "tracks.order", "targets.mlm"}),
        heads=frozenset({"mlm"}),
        terms=frozenset({"masked_permuted"}),
    )

    def __init__(self, *, model: Model) -> None:
        super().__init__()
        if PREDICTED not in model.backbone.streams:
            allowed = "a backbone that reads hidden tokens in an order"
            fix = "model=mpnet, or objective=[mlm] noise=[token_mask]"
            raise ConfigError("model", type(model.backbone).__name__, allowed, fix=fix)

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"masked_permuted": batch.counts["mlm"]}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        targets, hidden = batch.require("targets.mlm"), model(batch, state)
        loss, right = head_of(model, "mlm").loss(hidden.streams[PREDICTED], targets.ids)
        return make_output("masked_permuted", loss, right, batch.counts["mlm"], hidden.state)
