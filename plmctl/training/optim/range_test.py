"""The range test of learning rates (Smith, 2017, arXiv:1506.01186, sec. 3.3): one short run whose
rate rises from very small to too large.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.training.optim.schedule import Schedule

SMOOTHING = 0.98  # for a run that logs each of about 100 to 200 updates
DIVERGED = 4.0  # the loss over the best one before, at which the test is over
LEAST = 10  # points that a suggestion needs


@dataclass(frozen=True)
class Suggestion:
    """Two rates that a range test suggests, as the centre of a grid.

    Args:
        steepest: the rate at which the smoothed loss falls fastest in the logarithm of the rate.
        minimum: a tenth of the rate with the smallest smoothed loss.
        diverged: the rate at which the loss was four times the best one; None: at none.
    """

    steepest: float
    minimum: float
    diverged: float | None


def smooth(losses: Sequence[float], smoothing: float = SMOOTHING) -> list[float]:
    """`m_i / (1 - b^i)` with `m_i = b m_(i-1) + (1 - b) loss_i`: a moving mean without the bias of
    its start.
    """
    mean, smoothed = 0.0, []
    for number, loss in enumerate(losses, 1):
        mean = smoothing * mean + (1 - smoothing) * loss
        smoothed.append(mean / (1 - smoothing**number))
    return smoothed


def suggest(
    rates: Sequence[float], losses: Sequence[float], smoothing: float = SMOOTHING
) -> Suggestion | None:
    """The rates that a curve of losses suggests; None of fewer than ten points.

    Args:
        rates: rising learning rates.
        smoothing: b of the moving mean.
    """
    smoothed: list[float] = []
    diverged = None
    for rate, loss in zip(rates, smooth(losses, smoothing), strict=True):
        if not math.isfinite(loss) or (smoothed and loss > DIVERGED * min(smoothed)):
            diverged = rate
            break
        smoothed.append(loss)
    if len(smoothed) < LEAST:
        return None
    logs = [math.log(rate) for rate in rates]
    slopes = [
        (smoothed[i + 1] - smoothed[i - 1]) / (logs[i + 1] - logs[i - 1])
        for i in range(1, len(smoothed) - 1)
    ]
    steepest = 1 + min(range(len(slopes)), key=slopes.__getitem__)
    lowest = min(range(len(smoothed)), key=smoothed.__getitem__)
    return Suggestion(rates[steepest], rates[lowest] / 10, diverged)


@part_of("schedule")
@dataclass(frozen=True, kw_only=True)
class RangeTest(Schedule):
    """`first^(1 - (t - 1)/(T - 1))`: from the share `first` of `optim.lr` to all of it, by equal
    factors (Smith, 2017, arXiv:1506.01186, sec. 3.3, there by equal steps).

    A run of 100 to 200 updates that logs each of them ends with a suggestion. The run has a folder
    of its own, so that no other run knows of it. Its model is of no use.
    """

    destroys: ClassVar[bool] = True

    first: float = 1e-7

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.first < 1:
            raise ConfigError("schedule.first", self.first, "more than 0 and less than 1")

    def __call__(self, t: int, total: float) -> float:
        return self.first ** (1 - min(1.0, (t - 1) / max(1.0, total - 1)))

    def find_settings(self, points: Iterable[tuple[float, float]]) -> dict[str, float]:
        """The rate at which the loss fell fastest."""
        found = _suggest(points)
        return {"optim.lr": float(f"{found.steepest:.2g}")} if found else {}

    def conclude(self, points: Iterable[tuple[float, float]]) -> str:
        """The suggestion, as settings."""
        found = _suggest(points)
        if found is None:
            return f"a range test needs {LEAST} points: train.log_every=1, more train.steps"
        end = f"; it diverged at {found.diverged:.2g}" if found.diverged else ""
        return (
            f"range test: the loss fell fastest at optim.lr={found.steepest:.2g}, and a tenth of"
            f" the rate with the lowest loss is optim.lr={found.minimum:.2g}{end}"
        )


def _suggest(points: Iterable[tuple[float, float]]) -> Suggestion | None:
    curve = list(points)
    return suggest([rate for rate, _ in curve], [loss for _, loss in curve])
