"""FreeLB (Zhu et al., 2020): every step uphill is learned from."""

from __future__ import annotations

from torch import Generator, Tensor

from plmctl.core.parts import part_of
from plmctl.training.regularisers.around import Around
from plmctl.training.regularisers.base import Regulariser, check_steps, climb, draw_uniform


@part_of("regulariser")
class FreeLargeBatch(Regulariser):
    """`1/K sum_(k=0..K-1) L(x + r_k)`, `r_0 ~ U(-e, e) / sqrt(N)`, `r_(k+1) = P(r_k + a g_k /
    ||g_k||_2)`, `g_k = dL(x + r_k) / dr`, in each row of N values, P onto `||r||_2 <= radius`.

    (Zhu et al., 2020, arXiv:1909.11764, algorithm 1.) All passes drop the same values (sec. 3.3). A
    step costs K passes with all their gradients, as published.

    Args:
        steps: K.
        rate: a.
        radius: 0: no bound.
        start: e.
    """

    def __init__(
        self,
        *,
        steps: int = 3,
        rate: float = 0.3,
        radius: float = 1.0,
        start: float = 0.3,
        every: int = 1,
        relative: bool = False,
    ) -> None:
        super().__init__(every=every, relative=relative)
        check_steps(steps, rate)
        self.steps, self.rate, self.radius, self.start = steps, rate, radius, start

    def begin(self, vectors: Tensor, real: Tensor, generator: Generator) -> Tensor:
        """r_0 [B, T, W]."""
        drawn = draw_uniform(vectors, real, generator)
        return self.start * self.unit(vectors, real) * drawn

    def run(self, around: Around) -> None:
        last = self.steps - 1
        here = around.read(self.begin, whole=last == 0)
        for step in range(last):
            gradients = around.learn(here.loss / self.steps, here)
            shift = climb(here.shift, gradients, self.units(around), self.rate, self.radius)
            here = around.read(shift, whole=step == last - 1)
        around.learn(here.loss / self.steps, here, last=True)
