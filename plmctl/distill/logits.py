"""Soft targets (Hinton et al., 2015): what the teacher holds likely, and its logits themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.distill.base import LOGITS, Answers, Logits, Signal
from plmctl.objectives.base import Output, Term

# logits alive at once, of student and teacher each: 128 MiB in fp32; beyond, they are made twice
CHUNK = 1 << 25

PerPlace = Callable[[Logits, Logits, Tensor], Tensor]  # (student, teacher, places [p]) -> [p]


@part_of("signals")
class SoftTargets(Signal):
    """`tau^2 sum_c - p_T(c) log p_S(c)`, p = softmax(z / tau); the mean over places.

    tau^2 keeps the gradient, which goes as 1 / tau^2, at the size of that of the labels.
    `form="kl"` takes the teacher's
    entropy away: another number, the same gradient, and 0 where both agree. (Hinton et al., 2015,
    arXiv:1503.02531, sec. 2 and
    2.1.)
    """

    record = frozenset({LOGITS})
    of_choices = True

    def __init__(
        self, *, weight: float, temperature: float, form: Literal["ce", "kl"] = "kl"
    ) -> None:
        super().__init__(weight=weight)
        if not temperature > 0:
            raise ConfigError("temperature", temperature, "more than 0")
        self.temperature, self.form = temperature, form

    def counts(self, batch: Batch, asked: Mapping[str, int], real: int) -> dict[str, int]:
        return dict(asked)

    def forward(self, student: Answers, teacher: Answers, batch: Batch) -> Output:
        return Output(
            {
                name: Term(total, self.weight)
                for name, total in sum_over_positions(student, teacher, self.apart).items()
            }
        )

    def apart(self, student: Logits, teacher: Logits, places: Tensor) -> Tensor:
        """[p] the loss of each place: `- sum_c p_c log q_c = logsumexp(z / tau) - sum_c p_c z_c
        / tau`.
        """
        z, tau = student.gather(places), self.temperature
        p = teacher.probabilities(places, tau)
        # bf16 rounds 5 by 0.01, and models differ by less
        with torch.autocast(z.device.type, enabled=False):
            agreed = torch.linalg.vecdot(p, z)
        cross = (z / tau).logsumexp(-1) - agreed / tau
        entropy = torch.special.entr(p).sum(-1) if self.form == "kl" else 0.0
        return tau**2 * (cross - entropy)


@part_of("signals")
class LogitMSE(Signal):
    """`mean_c (z_S(c) - z_T(c))^2`; the mean over places. Padding of a row, which is no answer,
    does not count.

    What soft targets become at a high temperature, where logits have a mean of zero (Hinton et al.,
    2015, sec. 2.1; Ba and Caruana, 2014, arXiv:1312.6184, sec. 2).
    """

    record = frozenset({LOGITS})

    def counts(self, batch: Batch, asked: Mapping[str, int], real: int) -> dict[str, int]:
        return dict(asked)

    def forward(self, student: Answers, teacher: Answers, batch: Batch) -> Output:
        return Output(
            {
                name: Term(total, self.weight)
                for name, total in sum_over_positions(student, teacher, self.apart).items()
            }
        )

    def apart(self, student: Logits, teacher: Logits, places: Tensor) -> Tensor:
        """[p] the loss of each place."""
        z, t = student.gather(places), teacher.gather(places)
        there = t > torch.finfo(t.dtype).min / 2
        return (z - t).where(there, 0.0).square().sum(-1) / there.sum(-1).clamp(min=1)


def sum_over_positions(student: Answers, teacher: Answers, apart: PerPlace) -> dict[str, Tensor]:
    """By the name of logits, the sum of `apart` over the places that count; at most `CHUNK`
    logits are alive at once.
    """
    return {name: _sum(own, teacher.logits[name], apart) for name, own in student.logits.items()}


def _sum(student: Logits, teacher: Logits, apart: PerPlace) -> Tensor:
    places = torch.arange(len(student), device=student.asked.device)
    # which need not keep its shapes from batch to batch: spare slots cost nothing
    if places.device.type == "cpu":
        places = places[student.asked]
    if not len(places):
        return student.features.sum() * 0.0
    rows = max(1, CHUNK // teacher.gather(places[:1]).shape[-1])

    def some(part: Tensor) -> Tensor:
        return apart(student, teacher, part).where(student.asked[part], 0.0).sum()

    if len(places) <= rows:
        return some(places)
    pieces = places.split(rows)
    return torch.stack(
        [checkpoint(some, part, use_reentrant=False, preserve_rng_state=False) for part in pieces]
    ).sum()  # type: ignore[misc]
