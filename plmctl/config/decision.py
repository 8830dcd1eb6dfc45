"""The decision on a run that follows from its time, `train.minutes`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Decision:
    """The settings that follow from a budget of minutes; `plmctl.config.budgets` decides them.

    Args:
        rate: FLOP/s that training reaches on this machine, as expected.
        words: the settings that were decided, as overrides.
        sources: {setting of the row: (its value in the run, what it comes from)}.
    """

    minutes: float
    rate: float
    words: tuple[str, ...]
    sources: Mapping[str, tuple[Any, str]]

    @property
    def flops(self) -> float:
        """The operations of this machine in the time of the run, about."""
        return 60 * self.minutes * self.rate

    def __str__(self) -> str:
        time = f"{self.minutes:g} minute{'s' * (self.minutes != 1)} on this machine"
        are = "are" if self.minutes != 1 else "is"
        settings = " ".join(self.words) or "all that follows from it is given"
        own = " (set any of them to choose it yourself)" if self.words else ""
        return f"{time} {are} about {shorten(self.flops)} FLOPs: {settings}{own}"

    def describe(self) -> dict[str, Any]:
        """The same for tables and programs: what was decided, and where each value comes from."""
        return {
            "FLOPs in this time, about": shorten(self.flops),
            "FLOP/s": shorten(self.rate),
            **{key: f"{value} ({source})" for key, (value, source) in self.sources.items()},
        }


def shorten(number: float) -> str:
    """`number` with one digit, or two where the second says something: 9e13, 4.5e13."""
    mantissa, _, exponent = f"{number:.1e}".partition("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"
