"""The common base of SMART and ALUM: predictions must not change where word vectors change a
little.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Generator, Tensor

from plmctl.core.batch import Batch
from plmctl.distill.base import Logits, Predictions, Question
from plmctl.distill.logits import sum_over_positions
from plmctl.training.regularisers.around import Around, Pass
from plmctl.training.regularisers.base import TINY, Regulariser, check_steps

NAME = "smoothness"


class Smoothness(Regulariser):
    """`L(x) + w / n sum D(x, x + r_K)`, `r_k = P(r_(k-1) + a g / max |g|)`, `r_0 ~ N(0, sigma^2)`,
    `g = dD / dr`, P onto `max |r| <= epsilon`.

    D compares the predictions at each of the n positions with a label; `max |g|` is that of a
    token, as in the published code of both systems (namisan/mt-dnn). The passes that find r compute
    no gradient of a weight. With `relative`, a, epsilon and sigma are shares of the root of the
    mean square of a row's values.
    """

    def __init__(
        self,
        *,
        question: Question,
        weight: float = 1.0,
        steps: int = 1,
        rate: float = 1e-3,
        radius: float = 1e-5,
        sigma: float = 1e-5,
        every: int = 1,
        relative: bool = False,
    ) -> None:
        super().__init__(every=every, relative=relative)
        check_steps(steps, rate)
        self.question, self.weight, self.chooses = question, weight, question.chooses
        self.steps, self.rate, self.radius, self.sigma = steps, rate, radius, sigma

    def counts(self, batch: Batch) -> dict[str, int]:
        names = self.question.counts(batch) if self.question else {}
        return {f"{NAME}/{name}": count for name, count in names.items()}

    def begin(self, vectors: Tensor, real: Tensor, generator: Generator) -> Tensor:
        """r_0 [B, T, W]."""
        drawn = torch.empty_like(vectors).normal_(generator=generator)
        return self.sigma * self.unit(vectors, real) * drawn

    def unit(self, vectors: Tensor, real: Tensor) -> Tensor:
        """[B, 1, 1] of each value: 1, or the root of the mean square of those of the row."""
        length = super().unit(vectors, real)
        if not self.relative:
            return length
        values = (real.sum(1) * vectors.shape[-1]).clamp(min=1)  # [B]
        return length / values.sqrt()[:, None, None]

    @abstractmethod
    def distance(self, moved: Logits, clean: Logits, positions: Tensor) -> Tensor:
        """[p] D at each position."""

    def run(self, around: Around) -> None:
        clean = around.read(whole=True, predict=True)
        here = around.read(self.begin, predict=True)
        for step in range(self.steps):
            gradients = around.ascend(
                torch.stack([*self._compare(here, clean).values()]).sum(), here
            )
            shift = [
                (own + self.rate * unit * g / g.abs().amax(-1, keepdim=True).clamp(min=TINY)).clamp(
                    -self.radius * unit, self.radius * unit
                )
                for own, unit, g in zip(here.shift, self.units(around), gradients, strict=True)
            ]
            here = around.read(shift, whole=step == self.steps - 1, predict=True)
        value = clean.loss
        for name, total in self._compare(here, clean).items():
            around.losses[f"{NAME}/{name}"] = total.detach()
            value = value + self.weight * total / max(around.counts[f"term/{NAME}/{name}"], 1)
        around.learn(value, clean, here, last=True)

    def _compare(self, moved: Pass, clean: Pass) -> dict[str, Tensor]:
        """The sum of D by the name of logits."""
        own, other = moved.predictions, clean.predictions
        assert isinstance(own, Predictions)
        assert isinstance(other, Predictions)
        return sum_over_positions(own, other, self.distance)


def diverge(p: Tensor, q: Tensor) -> Tensor:
    """[p, K] logits of P and Q -> [p] KL(P || Q)."""
    log_p, log_q = p.log_softmax(-1), q.log_softmax(-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1)
