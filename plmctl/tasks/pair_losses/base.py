"""The loss of pairs of texts with scores, from the vectors of the two texts."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.parts import base_of


@base_of("pair_loss")
class PairLoss(ABC):
    """A loss in two steps: likenesses of the two vectors of each pair, and the loss of these.

    `compares`: whether it compares pairs with each other, so that it needs all pairs of an update.
    """

    compares = False

    def rate(self, u: Tensor, v: Tensor) -> Tensor:
        """[E, S] the likenesses of the vectors `u` and `v` [E, W]; by default their cosine."""
        return F.cosine_similarity(u, v, dim=-1)[:, None]

    @abstractmethod
    def sum_up(self, rated: Tensor, gold: Tensor) -> Tensor:
        """[] the sum over E pairs of their losses.

        Args:
            rated: [E, S] the result of `rate`.
            gold: [E] the scores, on [0, 1].
        """


def sum_ranked(rated: Tensor, gold: Tensor, scale: float) -> Tensor:
    """[] `log(1 + sum_{y_i < y_j} exp(scale (s_i - s_j)))` of likenesses s [E] and scores y [E]."""
    wrong = scale * (rated[:, None] - rated)  # [E, E]
    wrong = wrong.masked_fill(gold[:, None] >= gold, -torch.inf)
    return F.pad(wrong.flatten(), (1, 0)).logsumexp(0)
