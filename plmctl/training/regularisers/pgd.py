"""Adversarial training by projected gradient descent (Madry et al., 2018), of word vectors."""

from __future__ import annotations

from torch import Generator, Tensor

from plmctl.core.parts import part_of
from plmctl.training.regularisers.around import Around
from plmctl.training.regularisers.base import (
    Regulariser,
    check_steps,
    climb,
    draw_uniform,
    measure_rows,
)


@part_of("regulariser")
class ProjectedGradient(Regulariser):
    """`L(x + r_K)`, `r_k = P(r_(k-1) + a g / ||g||_2)`, `g = dL(x + r_(k-1)) / dr`, P onto
    `||r||_2 <= epsilon`, in each row.

    Only the last pass is learned (Madry et al., 2018, arXiv:1706.06083, sec. 2.1 and 4); the K
    passes before it compute no gradient of a weight. Differs: the steps are of word vectors and in
    l2, as the baseline of Zhu et al. (2020, arXiv:1909.11764, sec. 3.1).

    Args:
        steps: K.
        rate: a.
        radius: epsilon; 0: no bound.
        start: the largest length of r_0, drawn in the ball; 0: r_0 = 0.
    """

    def __init__(
        self,
        *,
        steps: int = 3,
        rate: float = 0.3,
        radius: float = 1.0,
        start: float = 0.0,
        every: int = 1,
        relative: bool = False,
    ) -> None:
        super().__init__(every=every, relative=relative)
        check_steps(steps, rate)
        self.steps, self.rate, self.radius, self.start = steps, rate, radius, start

    def begin(self, vectors: Tensor, real: Tensor, generator: Generator) -> Tensor:
        """r_0 [B, T, W]."""
        drawn = draw_uniform(vectors, real, generator)
        return self.start * self.unit(vectors, real) * drawn / measure_rows(drawn).clamp(min=1.0)

    def run(self, around: Around) -> None:
        here = around.read(self.begin if self.start else None)
        for step in range(self.steps):
            gradients = around.ascend(here.loss, here)
            shift = climb(here.shift, gradients, self.units(around), self.rate, self.radius)
            here = around.read(shift, whole=step == self.steps - 1)
        around.learn(here.loss, here, last=True)
