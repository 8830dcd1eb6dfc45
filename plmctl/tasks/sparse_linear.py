"""Linear models of words: rows of weighted counts, and weights that are fitted to labels to the
end, as the loss is convex.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

MOST = 50_000  # features, the most frequent ones
ROOM = 32_000_000  # numbers that the search for the least loss holds at once
LEAST = 1000  # features that a model of words has at least
PENALTY = 0.1  # factor of half the squared weights, against the summed loss
STEPS = 100  # steps of the search for the least loss
KEPT = 10  # steps that are remembered
HALVINGS = 30  # halvings of a step
FLAT = 1e-5  # the largest slope at which the search ends

Loss = Callable[[Tensor], Tensor]  # [N, K] scores to the mean loss


@dataclass(frozen=True)
class SparseRows:
    """Rows of a matrix of which few numbers are not 0.

    Args:
        columns: [Z] the columns of these numbers, row by row.
        values: [Z] the numbers.
        starts: [N] where each row begins in them.
        width: V, the number of columns.
    """

    columns: Tensor
    values: Tensor
    starts: Tensor
    width: int

    def times(self, weights: Tensor) -> Tensor:
        """[N, K] the product with [V, K] weights."""
        found: Tensor = _Product.apply(weights, *self._matrices)
        return found

    @cached_property
    def _matrices(self) -> tuple[Tensor, Tensor]:
        """The matrix [N, V] and its transpose: a gradient is a product with it."""
        ends = torch.cat([self.starts, torch.tensor([len(self.columns)])])
        size = (len(self.starts), self.width)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch calls sparse matrices new
            own = torch.sparse_csr_tensor(ends, self.columns, self.values, size)
            turned = own.to_sparse_csc()
            parts = turned.ccol_indices(), turned.row_indices(), turned.values()
            return own, torch.sparse_csr_tensor(*parts, size[::-1])


class _Product(torch.autograd.Function):
    """The product of a sparse matrix; torch's own gradient of it is a sum in single steps."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, own: Tensor, turned: Tensor) -> Tensor:
        ctx.turned = turned
        return own @ weights

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None]:
        return ctx.turned @ slope, None, None


class WeightedCounts:
    """`x_w = tf_w (1 + ln((1 + N) / (1 + df_w)))`, divided by the length of x. It is the count of a
    feature in a text, weighted by how few of the N texts of training have it (Salton and Buckley,
    1988; the smoothed form of scikit-learn).
    """

    def __init__(self, texts: Sequence[Sequence[str]], most: int = MOST) -> None:
        found = Counter(feature for text in texts for feature in set(text))
        kept = sorted(found, key=lambda feature: (-found[feature], feature))[:most]
        self.number = {feature: index for index, feature in enumerate(kept)}
        rare = [1 + math.log((1 + len(texts)) / (1 + found[feature])) for feature in kept]
        self.weights = rare

    def rows(self, texts: Sequence[Sequence[str]]) -> SparseRows:
        """Texts as rows, each of length 1; features that training has not are left out."""
        columns: list[int] = []
        values: list[float] = []
        starts: list[int] = []
        for text in texts:
            starts.append(len(columns))
            counts = Counter(self.number[feature] for feature in text if feature in self.number)
            own = [count * self.weights[column] for column, count in counts.items()]
            length = math.sqrt(math.fsum(value * value for value in own))
            columns += counts
            values += [value / length for value in own]
        return SparseRows(
            torch.tensor(columns, dtype=torch.long),
            torch.tensor(values, dtype=torch.float64),
            torch.tensor(starts, dtype=torch.long),
            len(self.number),
        )


def count_features(examples: int, outputs: int) -> int:
    """The number of features that there is room for: the search holds `2 KEPT + 6` tables of
    weights, and 4 of the scores of all examples.
    """
    return min(MOST, (ROOM // max(1, outputs) - 4 * examples) // (2 * KEPT + 6))


def fit_linear(rows: SparseRows, width: int, outputs: int, loss: Loss) -> tuple[Tensor, Tensor]:
    """The weights [V, K] and constants [K] of the least `N loss(x W + b) + PENALTY |W|^2 / 2`, from
    0 by L-BFGS (Liu and Nocedal, 1989).

    Args:
        width: V, the number of features.
        loss: The loss of the N rows' scores; convex.
    """
    count, size = len(rows.starts), width * outputs

    def measure(point: Tensor) -> tuple[float, Tensor]:
        """The value and its gradient."""
        point = point.detach().requires_grad_()
        with torch.enable_grad():
            weights, constant = point[:size].view(width, outputs), point[size:]
            mean = loss(rows.times(weights) + constant)
            value = mean + PENALTY / 2 / count * weights.square().sum()
        (slope,) = torch.autograd.grad(value, point)
        return float(value), slope

    with torch.no_grad():
        found = find_least(measure, torch.zeros(size + outputs, dtype=torch.float64))
    return found[:size].view(width, outputs), found[size:]


def find_least(measure: Callable[[Tensor], tuple[float, Tensor]], point: Tensor) -> Tensor:
    """The point of the least value of a smooth convex function, by L-BFGS (Nocedal and Wright,
    2006, algorithms 7.4 and 7.5) with steps that are halved until the value falls (ibid., 3.1).

    torch has it, too, but imports its compiler for it, which takes longer than the work here.

    Args:
        measure: the value and the gradient at a point.
        point: [n], where the search begins.
    """
    value, slope = measure(point)
    past: deque[tuple[Tensor, Tensor, float]] = deque(maxlen=KEPT)
    for _ in range(STEPS):
        if float(slope.abs().max()) < FLAT:
            break
        direction = _turn(slope, past)
        fall, size = float(slope @ direction), 1.0 if past else min(1.0, 1 / float(slope.norm()))
        for _ in range(HALVINGS):
            other = point + size * direction
            new, steep = measure(other)
            if new <= value + 1e-4 * size * fall:
                break
            size /= 2
        else:
            break  # nothing is left but rounding
        moved, changed = other - point, steep - slope
        if float(moved @ changed) > 1e-300:
            past.append((moved, changed, 1 / float(moved @ changed)))
        point, value, slope = other, new, steep
    return point


def _turn(slope: Tensor, past: Sequence[tuple[Tensor, Tensor, float]]) -> Tensor:
    """Minus the gradient times an estimate of the inverse curvature from the last steps."""
    direction, shares = -slope, []
    for moved, changed, inverse in reversed(past):
        shares.append(inverse * float(moved @ direction))
        direction = direction - shares[-1] * changed
    if past:
        moved, changed, _ = past[-1]
        direction = direction * float(moved @ changed) / float(changed @ changed)
    for (moved, changed, inverse), share in zip(past, reversed(shares), strict=True):
        direction = direction + (share - inverse * float(changed @ direction)) * moved
    return direction
