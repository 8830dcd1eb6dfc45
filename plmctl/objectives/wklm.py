"""Replaced entities (Xiong et al., 2020, WKLM): which mentions are those of the original text?"""

from __future__ import annotations

from typing import cast

from torch import Tensor

from plmctl.core.batch import Batch
from plmctl.core.parts import part_of
from plmctl.heads.lm import LMHead
from plmctl.heads.mention import MentionHead
from plmctl.models.base import Hidden, Model
from plmctl.objectives.base import Facts, Objective, Output, Term


@part_of("objective")
class WKLM(Objective):
    """`- sum over mentions of log p(original)` for original mentions, and of `log (1 -
    p(original))` for mentions that noise has replaced by another entity.

    The mentions are `spans.judged`, replaced or not; the mean is over those of an update. (Xiong et
    al., 2020, arXiv:1912.09637, sec. 2.2; criterions/kdn_loss.py of the released code.) Logged:
    accuracy, the share that is replaced, and how many of either kind are recognised.
    """

    facts = Facts(
        needs=frozenset({"text", "spans.judged"}),
        heads=frozenset({"mention"}),
        terms=frozenset({"wklm"}),
        measures=frozenset({"replaced", "recall/replaced", "recall/original"}),
    )

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"wklm": len(batch.spans.get("judged", ()))}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        count, hidden = self.counts(batch)["wklm"], model(batch, state)
        if not count:
            return Output({}, state=hidden.state)
        spans = batch.spans["judged"]
        head = cast(MentionHead, model.heads["mention"])
        label = spans[:, 3]
        total, given = head.loss(take_states(model, head, hidden, spans), label)
        right, replaced = given == label, label == 0
        fakes = replaced.sum()
        logs: dict[str, tuple[Tensor, int | Tensor]] = {
            "acc/wklm": (right.sum(), count),
            "replaced": (fakes, count),
            "recall/replaced": ((right & replaced).sum(), fakes),
            "recall/original": ((right & ~replaced).sum(), count - fakes),
        }
        return Output({"wklm": Term(total)}, logs, hidden.state, answers={"wklm": label})


def take_states(model: Model, head: MentionHead, hidden: Hidden, spans: Tensor) -> Tensor:
    """[m, P, W] the states that speak for mentions, as the head wants them."""
    index = head.places(spans, hidden.last.shape[1])
    states = hidden.gather(index.flatten())
    if head.states == "mlm_transform":
        states = cast(LMHead, model.heads["mlm"]).transform_states(states)
    return states.view(*index.shape, -1)
