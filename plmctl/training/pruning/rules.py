"""Rules that turn scores of weights into masks: the largest, those above a threshold, gates at
random.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Generator, Tensor

from plmctl.training.pruning.base import Scope, keep_largest
from plmctl.training.stabilisers.base import KeptTensors

Masks = dict[str, Tensor]
LEAST = 0.005  # share of a matrix that a threshold leaves, as in the released code


class MaskRule:
    """From scores to masks.

    Args:
        start: The first score.
        weight: The weight of the price of scores in the loss, in the end; 0: they have none.
    """

    random = False  # whether the masks of training are drawn

    def __init__(self, *, start: float = 0.0, weight: float = 0.0) -> None:
        self.start, self.weight = start, weight

    def masks(self, scores: Mapping[str, Tensor], reached: float) -> Masks:
        """{name: mask} of {name: scores}, one value for each.

        Args:
            scores: The scores of each matrix.
            reached: The part of the way to the last share or threshold, 0 to 1.
        """
        raise NotImplementedError(type(self).__name__)

    def draw(self, scores: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        """A mask of training where it is `random`, and its derivative by the scores."""
        raise NotImplementedError(type(self).__name__)

    def draw_into(
        self,
        masks: KeptTensors,
        slopes: KeptTensors,
        scores: Mapping[str, Tensor],
        seed: Sequence[int],
    ) -> None:
        """Draw the masks of an update, and their derivatives: the same in all processes."""
        words = np.random.SeedSequence([*seed]).generate_state(1, np.uint64)
        generator = Generator().manual_seed(int(words[0]))
        for name, own in scores.items():
            mask, slope = self.draw(own, generator)
            masks.of(name).copy_(mask)
            slopes.of(name).copy_(slope)

    def price(self, scores: Tensor) -> Tensor:
        """The price of each score."""
        return torch.sigmoid(scores)


class Largest(MaskRule):
    """M = 1 for the share `1 - sparsity` with the largest scores."""

    def __init__(self, *, sparsity: float, scope: Scope) -> None:
        super().__init__()
        self.sparsity, self.scope = sparsity, scope

    def masks(self, scores: Mapping[str, Tensor], reached: float) -> Masks:
        return keep_largest(scores, self.sparsity * reached, self.scope)


class Threshold(MaskRule):
    """M = 1 where `sigmoid(S) > threshold`, and for 0.5% of a matrix in any case."""

    def __init__(self, *, threshold: float, weight: float) -> None:
        super().__init__(weight=weight)
        self.threshold = threshold

    def masks(self, scores: Mapping[str, Tensor], reached: float) -> Masks:
        least = keep_largest(scores, 1 - LEAST, "matrix")
        above = {n: torch.sigmoid(s) > self.threshold * reached for n, s in scores.items()}
        return {name: mask | least[name] for name, mask in above.items()}


class HardConcrete(MaskRule):
    """`M = clamp(sigmoid((log u - log(1 - u) + S) / b) (r - l) + l, 0, 1)`, u ~ U(0, 1) in
    training, and `clamp(sigmoid(S) (r - l) + l, 0, 1)` in evaluation, b = 2 / 3, l = -0.1, r = 1.1
    (Louizos et al., 2018, arXiv:1712.01312, sec. 2.2).

    The price is the probability that M is not 0, `sigmoid(S - b log(-l / r))`.
    """

    random = True
    sharpness, low, high = 2 / 3, -0.1, 1.1

    def masks(self, scores: Mapping[str, Tensor], reached: float) -> Masks:
        return {name: self._stretch(torch.sigmoid(own)) for name, own in scores.items()}

    def draw(self, scores: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        u = torch.rand(scores.shape, generator=generator).clamp(1e-4, 1 - 1e-4).to(scores)
        s = torch.sigmoid((u.log() - (1 - u).log() + scores) / self.sharpness)
        mask, inside = self._stretch(s), s * (self.high - self.low) + self.low
        slope = (self.high - self.low) * s * (1 - s) / self.sharpness
        return mask, slope * ((inside > 0) & (inside < 1))

    def price(self, scores: Tensor) -> Tensor:
        return torch.sigmoid(scores - self.sharpness * math.log(-self.low / self.high))

    def _stretch(self, s: Tensor) -> Tensor:
        return (s * (self.high - self.low) + self.low).clamp(0, 1)
