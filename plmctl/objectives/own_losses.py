"""The losses that a model computes itself in each pass, in addition to those of any objective."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from plmctl.core.batch import Batch
from plmctl.models.base import Backbone, Once
from plmctl.models.capabilities import find_own_losses
from plmctl.objectives.base import ModelCost, Output, Term


@dataclass(frozen=True)
class OwnLosses(ModelCost):
    """`Hidden.losses`: the mean over rows, and over the passes over a batch; a pass without one,
    such as one without memory, counts as 0.
    """

    weights: Mapping[str, float]  # by term

    @classmethod
    def of(cls, backbone: Backbone) -> OwnLosses | None:
        """Those of a backbone; None if it has none."""
        losses = find_own_losses(backbone)
        return cls(losses) if losses else None

    @property
    def terms(self) -> frozenset[str]:
        return frozenset(self.weights)

    @property
    def measures(self) -> frozenset[str]:
        return frozenset()

    def counts(self, batch: Batch) -> dict[str, int]:
        """{term: rows}."""
        return dict.fromkeys(self.weights, len(batch.key))

    def add(self, out: Output, once: Once, batch: Batch) -> Output:
        terms = dict(out.terms)
        for name, weight in self.weights.items():
            passes = [hidden.losses[name].sum() for hidden in once.passes if name in hidden.losses]
            total = torch.stack(passes).mean() if passes else batch.key.new_zeros(()).float()
            terms[name] = Term(total, weight)
        return replace(out, terms=terms)
