"""Entity linking (KnowBERT; Peters et al., 2019): which of the candidates does a mention mean?"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, cast

import torch
from torch import Tensor

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.heads.base import cross_entropy, widen
from plmctl.models.base import Model
from plmctl.models.knowbert import KnowBert
from plmctl.objectives.ask import make_output
from plmctl.objectives.base import Facts, Objective, Output


@part_of("objective")
class EntityLinking(Objective):
    """`- log softmax(psi_m)[gold]`, or `max(0, margin - psi_gold) + sum over others of max(0,
    margin + psi_k)`, over their number, for every mention whose candidates have the gold one
    (Peters et al., 2019, arXiv:1909.04164, eq. 4 and 5; allenai/kb).

    psi are the scores of the model's linkers of one base of knowledge, whose losses are added.

    Args:
        model: one with knowledge attention.
        loss: The loss of each mention.
        margin: The margin of the loss `margin`.
        base: The base whose linkers are trained. "" is the first base; a name is one of its
            `further` ones, which adds a term of its own.
    """

    holds_cells = True
    facts = Facts(
        needs=frozenset({"text", "tracks.entity", "targets.entity"}),
        terms=frozenset({"entity_linking"}),
    )

    def __init__(
        self,
        *,
        model: Model,
        loss: Literal["softmax", "margin"] = "margin",
        margin: float = 0.2,
        base: str = "",
    ) -> None:
        super().__init__()
        backbone, track = model.backbone, base or "entity"
        if not isinstance(backbone, KnowBert) or not backbone.linkers:
            kind, fix = type(backbone).__name__, "model=knowbert"
            raise ConfigError("model", kind, "a model with knowledge attention", fix=fix)
        if base not in (bases := {cell.base for cell in backbone.linkers}):
            known = (
                f"a base that a cell reads: {', '.join(sorted(filter(None, bases)) or ['none'])}"
            )
            raise ConfigError("objective.base", base, known, fix="model=knowbert_two")
        self.kind, self.margin, self.base, self.term = loss, margin, base, f"{track}_linking"
        self.facts = replace(
            self.facts,
            needs=frozenset({"text", f"tracks.{track}", f"targets.{track}"}),
            terms=frozenset({self.term}),
        )
        self._model = [backbone]  # not a part of the objective

    def _find_gold(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(int64 [g] mentions that can be right, int64 [g] the index of the right candidate)."""
        backbone = self._model[0]
        choices = backbone.find_choices(batch.text, self.base)
        rows = backbone.find_base(self.base).find_rows(choices)
        right = (choices.ids == choices.gold[:, None]) & (rows > 0)
        asked, place = right.nonzero(as_tuple=True)
        return asked, place

    def counts(self, batch: Batch) -> dict[str, int]:
        return {self.term: len(self._find_gold(batch)[0])}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        asked, gold = self._find_gold(batch)
        if not len(asked):
            return Output({})
        hidden = model(batch, state)
        losses, rights = [], []
        linkers = cast(KnowBert, model.backbone).linkers
        for linker in (cell for cell in linkers if cell.base == self.base):
            scores = widen(hidden.noted[linker][0])[asked]  # [g, K]
            if self.kind == "softmax":
                loss, right = cross_entropy(scores, gold)
            else:
                loss, right = self._measure(scores, gold), (scores.argmax(1) == gold).sum()
            losses.append(loss)
            rights.append(right)
        total = torch.stack(losses).sum()
        right = torch.stack(rights).sum() / len(rights)
        return make_output(self.term, total, right, len(asked), hidden.state)

    def _measure(self, scores: Tensor, gold: Tensor) -> Tensor:
        """The summed margins of each mention over the number of its candidates."""
        possible = scores > -1e3
        sign = torch.ones_like(scores)
        sign[torch.arange(len(gold), device=gold.device), gold] = -1
        each = (self.margin + sign * scores).clamp(min=0) * possible
        return (each.sum(1) / possible.sum(1)).sum()
