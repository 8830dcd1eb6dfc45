"""Permutation language modelling (Yang et al., 2019, XLNet): each token is predicted from
those before it in a random order.
"""

from __future__ import annotations

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.heads.base import head_of
from plmctl.models.base import Model
from plmctl.objectives.ask import make_output
from plmctl.objectives.base import Facts, Objective, Output


@part_of("objective")
class PLM(Objective):
    """`- sum_t log p(x_t | x of lower order, position t)` over `targets.plm`, from the query
    stream at that position.

    (arXiv:1906.08237, eq. 3 to 5: the last of the order are predicted.)
    """

    facts = Facts(
        needs=frozenset({"text", "tracks.order", "targets.plm"}),
        heads=frozenset({"plm"}),
        terms=frozenset({"plm"}),
    )

    def __init__(self, *, model: Model) -> None:
        super().__init__()
        if "query" not in model.backbone.streams:
            allowed = (
                "a backbone with a query stream, which does not see the token that it predicts"
            )
            fix = "model=xlnet position=none, or objective=[mlm] noise=[token_mask]"
            raise ConfigError("model.two_streams", type(model.backbone).__name__, allowed, fix=fix)

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"plm": batch.counts["plm"]}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        targets, hidden = batch.require("targets.plm"), model(batch, state)
        loss, right = head_of(model, "plm").loss(hidden.streams["query"], targets.ids)
        return make_output("plm", loss, right, batch.counts["plm"], hidden.state)
