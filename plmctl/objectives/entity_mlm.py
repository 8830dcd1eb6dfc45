"""Masked entities (Yamada et al., 2020: LUKE): which entity is hidden here?"""

from __future__ import annotations

from typing import cast

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.heads.base import cross_entropy
from plmctl.heads.entity_lm import EntityLMHead
from plmctl.models.base import Model
from plmctl.models.luke import Luke
from plmctl.nn.entity_tokens import FIRST
from plmctl.objectives.ask import make_output
from plmctl.objectives.base import Facts, Objective, Output


@part_of("objective")
class EntityMLM(Objective):
    """`- sum over hidden entities of log softmax_e(m . b_e + bias_e)[its own]` over all entities
    (Yamada et al., 2020, arXiv:2010.01057, eq. 5).
    """

    facts = Facts(
        needs=frozenset({"text", "entities", "targets.entities"}),
        heads=frozenset({"entities"}),
        terms=frozenset({"entities"}),
    )

    def __init__(self, *, model: Model) -> None:
        super().__init__()
        if not isinstance(model.backbone, Luke):
            kind = type(model.backbone).__name__
            raise ConfigError("model", kind, "Luke, which reads entities", fix="model=luke")
        if not model.backbone.read_entities:
            allowed = "true: objective.entity_mlm asks for entities"
            raise ConfigError("model.read_entities", False, allowed, fix="objective=[mlm]")

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"entities": batch.counts["entities"]}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        targets = batch.require("targets.entities")
        head = cast(EntityLMHead, model.heads["entities"])
        states = model(batch).streams["entities"].flatten(0, 1)[targets.index]
        table = cast(Luke, model.backbone).entities.table.weight[FIRST:]
        loss, right = cross_entropy(head.score(states, table), targets.ids)
        return make_output("entities", loss, right, batch.counts["entities"])
