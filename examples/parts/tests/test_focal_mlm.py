"""The loss of an objective is its formula, written as a loop over positions."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from own_parts.focal_mlm import FocalMLM
from torch import Tensor

from plmctl.core.batch import IGNORE, Targets


class KnownLogits:
    """A model whose logits are given, whatever it reads."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits
        self.heads = {"mlm": lambda features: features}

    def __call__(self, batch: object, state: object = None) -> SimpleNamespace:
        return SimpleNamespace(gather=lambda index: self.logits[index])


def test_focal_loss_is_the_formula() -> None:
    logits = torch.randn(6, 9, generator=torch.Generator().manual_seed(0))
    ids = torch.tensor([3, 0, 8, IGNORE, 2, IGNORE])  # IGNORE: a spare slot without a label
    targets = {"targets.mlm": Targets(torch.arange(6), ids, 4)}
    batch = SimpleNamespace(require=lambda name: targets[name], counts={"mlm": 4})
    objective, loss = FocalMLM(gamma=1.5), 0.0
    for place, token in enumerate(ids.tolist()):
        if token != IGNORE:
            p = torch.softmax(logits[place].double(), 0)[token]
            loss -= float((1 - p) ** 1.5 * torch.log(p))
    total = objective(KnownLogits(logits), batch).terms["focal_mlm"].total
    assert float(total) == pytest.approx(loss, rel=1e-5)
    assert objective.counts(batch) == {"focal_mlm": 4}
