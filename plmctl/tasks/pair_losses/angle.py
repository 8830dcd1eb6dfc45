"""Angles of complex vectors in the order of the scores."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Amount, Number
from plmctl.tasks.pair_losses.base import PairLoss, sum_ranked


@part_of("pair_loss")
class AnglE(PairLoss):
    """`c(angle) + cosine * c(cos)`, c the loss of CoSENT over a likeness. For the angle, the two
    halves of a vector are the real and the imaginary parts of complex numbers z and w. The likeness
    is `|sum_k Re(z_k / w_k) + Im(z_k / w_k)|`, where one |w|^2 = sum_k |w_k|^2 stands for each
    |w_k|^2, times |w| / |z| (Li and Li, 2024, arXiv:2309.12871; released code).

    Differs: no term of in-batch negatives; task=bi_encoder is that loss.

    Args:
        scale: The factor of both likenesses.
        cosine: The weight of the cosines; 0: the angles alone.
    """

    compares = True

    def __init__(self, *, scale: Amount = 20.0, cosine: Number = 1.0) -> None:
        self.scale, self.cosine = scale, cosine

    def rate(self, u: Tensor, v: Tensor) -> Tensor:
        if (width := u.shape[-1]) % 2:
            allowed = f"for vectors of an even width: half of the {width} columns are imaginary"
            raise ConfigError("task.loss", "AnglE", allowed, fix="pair_loss@task.loss=cosent")
        return torch.cat([super().rate(u, v), find_angles(u, v)[:, None]], 1)

    def sum_up(self, rated: Tensor, gold: Tensor) -> Tensor:
        angle = sum_ranked(rated[:, 1], gold, self.scale)
        return len(gold) * (angle + self.cosine * sum_ranked(rated[:, 0], gold, self.scale))


def find_angles(u: Tensor, v: Tensor) -> Tensor:
    """[E] the likeness by the angle of complex vectors [E, W].

    With both brought to length 1, z / w is `z conj(w)`: `sum_k Re` is their product, and `sum_k Im`
    is `sum_k (Im z_k Re w_k - Re z_k Im w_k)`.
    """
    z, w = F.normalize(u, dim=-1), F.normalize(v, dim=-1)
    (a, b), (c, d) = z.chunk(2, -1), w.chunk(2, -1)
    return (a * c + b * d + b * c - a * d).sum(-1).abs()
