"""Soft labels (Hinton et al., 2015): the probabilities of the teacher, and its logits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.distill.base import LOGITS, Logits, Predictions, Signal
from plmctl.objectives.base import Output, Term

# logits in memory, of student and teacher each: 128 MiB in fp32; more are computed in pieces, twice
CHUNK = 1 << 25

PerPosition = Callable[[Logits, Logits, Tensor], Tensor]  # (student, teacher, positions [p]) -> [p]


class LogitSignal(Signal):
    """A distance of logits; the mean over positions."""

    record = frozenset({LOGITS})

    def counts(self, batch: Batch, positions: Mapping[str, int], real: int) -> dict[str, int]:
        return dict(positions)

    def terms(self, logits: Collection[str]) -> Collection[str]:
        return logits

    def forward(self, student: Predictions, teacher: Predictions, batch: Batch) -> Output:
        return Output(
            {
                name: Term(total, self.weight)
                for name, total in sum_over_positions(student, teacher, self.distance).items()
            }
        )

    def distance(self, student: Logits, teacher: Logits, positions: Tensor) -> Tensor:
        """[p] the loss at each position."""
        raise NotImplementedError(type(self).__name__)


@part_of("signals")
class SoftTargets(LogitSignal):
    """`tau^2 sum_c - p_T(c) log p_S(c)`, p = softmax(z / tau); the mean over positions.

    tau^2 keeps the gradient, which goes as 1 / tau^2, at the size of that of the labels.
    `form="kl"` subtracts the teacher's entropy: another number, the same gradient, and 0 where both
    agree. (Hinton et al., 2015, arXiv:1503.02531, sec. 2 and 2.1.)
    """

    of_choices = True

    def __init__(
        self, *, weight: float, temperature: float, form: Literal["ce", "kl"] = "kl"
    ) -> None:
        super().__init__(weight=weight)
        if not temperature > 0:
            raise ConfigError("temperature", temperature, "more than 0")
        self.temperature, self.form = temperature, form

    def distance(self, student: Logits, teacher: Logits, positions: Tensor) -> Tensor:
        """[p] the loss at each position: `- sum_c p_c log q_c = logsumexp(z / tau) - sum_c p_c z_c
        / tau`.
        """
        z, tau = student.gather(positions), self.temperature
        p = teacher.probabilities(positions, tau)
        # bf16 rounds 5 by 0.01, and models differ by less
        with torch.autocast(z.device.type, enabled=False):
            agreed = torch.linalg.vecdot(p, z)
        cross = (z / tau).logsumexp(-1) - agreed / tau
        entropy = torch.special.entr(p).sum(-1) if self.form == "kl" else 0.0
        return tau**2 * (cross - entropy)


@part_of("signals")
class LogitMSE(LogitSignal):
    """`mean_c (z_S(c) - z_T(c))^2`; the mean over positions. Padding does not count.

    The limit of soft targets at a high temperature, if logits have a mean of zero (Hinton et al.,
    2015, sec. 2.1; Ba and Caruana, 2014, arXiv:1312.6184, sec. 2).
    """

    def distance(self, student: Logits, teacher: Logits, positions: Tensor) -> Tensor:
        z, t = student.gather(positions), teacher.gather(positions)
        real = t > torch.finfo(t.dtype).min / 2
        return (z - t).where(real, 0.0).square().sum(-1) / real.sum(-1).clamp(min=1)


def sum_over_positions(
    student: Predictions, teacher: Predictions, distance: PerPosition
) -> dict[str, Tensor]:
    """By the name of logits, the sum of `distance` over the positions that count, with at most
    `CHUNK` logits in memory.
    """
    return {name: _sum(own, teacher.logits[name], distance) for name, own in student.logits.items()}


def _sum(student: Logits, teacher: Logits, distance: PerPosition) -> Tensor:
    positions = torch.arange(len(student), device=student.labelled.device)
    # the CPU needs no fixed shapes, so spare slots are left out
    if positions.device.type == "cpu":
        positions = positions[student.labelled]
    if not len(positions):
        return student.features.sum() * 0.0
    rows = max(1, CHUNK // teacher.gather(positions[:1]).shape[-1])

    def some(part: Tensor) -> Tensor:
        return distance(student, teacher, part).where(student.labelled[part], 0.0).sum()

    if len(positions) <= rows:
        return some(positions)
    pieces = positions.split(rows)
    return torch.stack(
        [checkpoint(some, part, use_reentrant=False, preserve_rng_state=False) for part in pieces]
    ).sum()  # type: ignore[misc]
