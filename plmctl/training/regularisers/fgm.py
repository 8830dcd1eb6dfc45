"""Adversarial training of text by the fast gradient method (Miyato et al., 2017)."""

from __future__ import annotations

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.training.regularisers.around import Around
from plmctl.training.regularisers.base import Regulariser, to_unit


@part_of("regulariser")
class FastGradient(Regulariser):
    """`L(x) + w L(x + r)`, `r = epsilon g / ||g||_2`, `g = dL(x) / dx`, x all word vectors of a
    row.

    (Miyato et al., 2017, arXiv:1605.07725, sec. 3, eq. 4 to 6.) g comes with the gradient of L(x),
    which is learned in any case. L has what the model and its stabilisers add to the loss, too: a
    penalty of weights counts 1 + w times. Differs: word vectors are not normalised, so that
    `epsilon` is a length in a trained model's own space, or with `relative` a share of `||x||_2`.
    """

    def __init__(
        self, *, epsilon: float = 1.0, weight: float = 1.0, every: int = 1, relative: bool = False
    ) -> None:
        super().__init__(every=every, relative=relative)
        if not epsilon > 0:
            allowed, fix = "more than 0", "regulariser.epsilon=1.0"
            raise ConfigError("epsilon", epsilon, allowed, fix=fix)
        self.epsilon, self.weight = epsilon, weight

    def run(self, around: Around) -> None:
        clean = around.read()
        gradients = around.learn(clean.loss, clean)
        shift = [
            self.epsilon * unit * direction
            for unit, direction in zip(self.units(around), to_unit(gradients), strict=True)
        ]
        moved = around.read(shift, whole=True)
        around.learn(self.weight * moved.loss, moved, last=True)
