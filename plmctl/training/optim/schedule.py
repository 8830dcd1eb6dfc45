"""Learning-rate schedules: pure functions `f(t, total)` that multiply each parameter group's own
rate.

`t` counts updates from 1. Warm-up reads `t` (the first update already moves: t/W), decay reads `t -
1`, where the update begins (so that the last update does not have rate 0). `total` may be a
fraction: in runs measured in tokens or minutes it is `t / share done`, so that the schedule follows
the share of the budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import ClassVar

from plmctl.core.errors import ConfigError
from plmctl.core.parts import base_of, part_of
from plmctl.core.values import Count


@base_of("schedule")
@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Warm-up to 1 over W updates, then what the subclass says.

    W = `warmup_steps` or `warmup_share * total`, but never more than `warmup_limit * total`: short
    runs warm up for less. With `from_zero` W is a whole number, and warm-up begins at 0: an update
    has the rate of the one before (the Trainer of `transformers`).
    """

    destroys: ClassVar[bool] = False  # whether the weights may explode in the end

    warmup_steps: int = 0
    warmup_share: float = 0.0
    warmup_limit: float = 1.0
    from_zero: bool = False

    def __post_init__(self) -> None:
        if self.warmup_steps < 0:
            raise ConfigError(
                "schedule.warmup_steps", self.warmup_steps, "a number of updates, 0 or more"
            )
        for name in ("warmup_share", "warmup_limit"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(
                    f"schedule.{name}", getattr(self, name), "a share of the run, 0 to 1"
                )
        if self.warmup_steps and self.warmup_share:
            allowed = "give either warmup_steps or warmup_share, not both"
            fix = "schedule.warmup_share=0"
            raise ConfigError("schedule.warmup_share", self.warmup_share, allowed, fix=fix)

    def warmup(self, total: float) -> float:
        """W, in updates."""
        most = min(self.warmup_share * total or self.warmup_steps, self.warmup_limit * total)
        return math.ceil(most) if self.from_zero else most

    def is_warm(self, t: int, total: float) -> bool:
        """Whether warm-up is over at update `t`."""
        return t >= self.warmup(total)

    def describe_shortening(self, total: float) -> str:
        """One line for the user if `warmup_limit` shortens the warm-up of a run of `total` updates,
        else "".
        """
        if round(self.warmup(total)) >= self.warmup_steps:
            return ""
        share = f"{self.warmup_limit:.0%} of this run's {total:.0f} updates (schedule.warmup_limit)"
        return (
            f"warm-up scaled down from {self.warmup_steps} to {self.warmup(total):.0f} updates:"
            f" {share}"
        )

    def __call__(self, t: int, total: float) -> float:
        warmup, own = self.warmup(total), t - self.from_zero
        warms = own < warmup if self.from_zero else own <= warmup
        return own / warmup if warms else self.after(t - 1, max(total, t), warmup)

    def after(self, s: int, total: float, warmup: float) -> float:
        """The multiplier once warm-up is over, at `s` = updates already done."""
        raise NotImplementedError(type(self).__name__)

    def of(self, name: str) -> Schedule:
        """The schedule of the parameter called `name`."""
        return self

    def conclude(self, points: Iterable[tuple[float, float]]) -> str:
        """A line for the user at the end of a run, by its (learning rate, loss); "": none."""
        return ""

    def find_settings(self, points: Iterable[tuple[float, float]]) -> dict[str, float]:
        """The settings that a run has found for the next one, by its (learning rate, loss)."""
        return {}


def _fraction(s: float, start: float, end: float) -> float:
    """How far `s` is from `start` (0) to `end` (1)."""
    return min(1.0, max(0.0, (s - start) / (end - start))) if end > start else 1.0


@part_of("schedule")
@dataclass(frozen=True, kw_only=True)
class Constant(Schedule):
    """1 after warm-up."""

    def after(self, s: int, total: float, warmup: float) -> float:
        return 1.0


@part_of("schedule")
@dataclass(frozen=True, kw_only=True)
class Polynomial(Schedule):
    """`end + (1 - end)(1 - (s-W)/(T-W))^power`; power 1 and end 0 is the linear decay of RoBERTa
    and of fine-tuning.

    `decay_from_zero`: `1 - s/T` instead, not re-based at the end of warm-up, as in
    google-research/bert `optimization.py`.
    """

    power: float = 1.0
    end: float = 0.0
    decay_from_zero: bool = False

    def after(self, s: int, total: float, warmup: float) -> float:
        left = 1 - _fraction(s, 0 if self.decay_from_zero else warmup, total)
        return self.end + (1 - self.end) * left**self.power


@part_of("schedule")
@dataclass(frozen=True, kw_only=True)
class Cosine(Schedule):
    """`min + (1 - min)/2 (1 + cos(pi x))`, x = (s-W)/(T-W): half a wave, from 1 down to `min`
    (Loshchilov and Hutter, 2017, 1608.03983).

    Several `cycles` of equal length restart at 1: x = cycles (s-W)/(T-W) mod 1.
    """

    min_ratio: float = 0.0
    cycles: Count = 1

    def after(self, s: int, total: float, warmup: float) -> float:
        done = self.cycles * _fraction(s, warmup, total)
        wave = 0.5 * (1 + math.cos(math.pi * (done % 1 if done < self.cycles else 1)))
        return self.min_ratio + (1 - self.min_ratio) * wave


@part_of("schedule")
@dataclass(frozen=True, kw_only=True)
class WarmupStableDecay(Schedule):
    """1 until the last `decay_share` of the run, then down to `min_ratio` by `shape` (Hu et al.,
    2024, arXiv:2404.06395).

    Any checkpoint of the stable phase can be continued with another length.
    """

    decay_share: float = 0.15
    min_ratio: float = 0.0
    shape: str = "linear"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shape not in ("linear", "cosine", "sqrt"):
            raise ConfigError("schedule.shape", self.shape, "one of linear, cosine, sqrt")

    def after(self, s: int, total: float, warmup: float) -> float:
        x = _fraction(s, max(warmup, total * (1 - self.decay_share)), total)
        left = {
            "linear": 1 - x,
            "cosine": 0.5 * (1 + math.cos(math.pi * x)),
            "sqrt": 1 - math.sqrt(x),
        }[self.shape]
        return self.min_ratio + (1 - self.min_ratio) * left


@part_of("schedule")
@dataclass(frozen=True, kw_only=True)
class InverseSqrt(Schedule):
    """`sqrt(timescale / (s - W + timescale))`, with timescale = W sqrt(W/s) (Vaswani et al.,
    2017, sec. 5.3).
    """

    timescale: int | None = None

    def after(self, s: int, total: float, warmup: float) -> float:
        scale = self.timescale or warmup or 1.0
        return math.sqrt(scale / max(scale, s - warmup + scale))


@part_of("schedule")
@dataclass(frozen=True, kw_only=True)
class ReciprocalSqrt(Schedule):
    """`sqrt(flat / max(flat, s))`: 1 for `flat` updates, then down with the root of their number
    (Raffel et al., 2020, arXiv:1910.10683, sec. 3.1.2; mesh-tensorflow counts updates from 0, as
    here).

    With `optim.lr` L it is `1 / sqrt(max(s, flat))` where `L = flat ** -0.5`.
    """

    flat: int = 10_000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.flat < 1:
            raise ConfigError("schedule.flat", self.flat, "a number of updates, 1 or more")

    def after(self, s: int, total: float, warmup: float) -> float:
        return math.sqrt(self.flat / max(self.flat, s))


@part_of("schedule")
@dataclass(frozen=True, kw_only=True)
class SlantedTriangular(Schedule):
    """`(1 + p (ratio - 1)) / ratio`: `p = t / cut` up to `cut`, the end of warm-up, then down, `p =
    1 - (t - cut) / (T - cut)` (Howard and Ruder, 2018, arXiv:1801.06146, eq. 3).

    Their cut_frac is `warmup_share`. Differs: p is 0 in the last update also where `T cut_frac` is
    no whole number.
    """

    ratio: float = 32.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.ratio >= 1:
            allowed = "1 or more: the highest rate over the lowest"
            raise ConfigError("schedule.ratio", self.ratio, allowed, fix="schedule.ratio=32")

    def __call__(self, t: int, total: float) -> float:
        end, warmup = max(total, t), self.warmup(total)
        cut = max(1, math.floor(warmup + 1e-9)) if warmup else 0
        p = t / cut if t < cut else 1 - _fraction(t, cut, end)
        return (1 + p * (self.ratio - 1)) / self.ratio


@part_of("schedule")
@dataclass(frozen=True, kw_only=True)
class ByPart(Schedule):
    """Schedules of their own for some parameters, as if they had an optimizer of their own (Liu
    and Lapata, 2019, arXiv:1908.08345, sec. 3.3).

    Args:
        parts: glob over names of parameters -> their schedule; the last match counts.
        rest: The schedule of all other parameters; the log shows its rate.
    """

    parts: Mapping[str, Schedule]
    rest: Schedule
    warmup_steps: int = field(init=False, default=0)  # each schedule has its own
    warmup_share: float = field(init=False, default=0.0)
    warmup_limit: float = field(init=False, default=1.0)

    def __call__(self, t: int, total: float) -> float:
        return self.rest(t, total)

    def of(self, name: str) -> Schedule:
        fitting = [own for pattern, own in self.parts.items() if fnmatchcase(name, pattern)]
        return fitting[-1] if fitting else self.rest

    def is_warm(self, t: int, total: float) -> bool:
        return all(own.is_warm(t, total) for own in (self.rest, *self.parts.values()))

    def describe_shortening(self, total: float) -> str:
        lines = {"rest": self.rest, **self.parts}
        told = {name: own.describe_shortening(total) for name, own in lines.items()}
        return "; ".join(f"{name}: {line}" for name, line in told.items() if line)
