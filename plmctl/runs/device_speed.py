"""How fast a machine trains, before anything is measured but the product of two matrices."""

from __future__ import annotations

import math
from dataclasses import dataclass

from plmctl.core.progress import clock
from plmctl.training.device.peak import find_own_share, find_peak, usual_share
from plmctl.training.device.precision import choose
from plmctl.training.processes.world import device_of

# seconds that an update takes however small its model: two to four layers, on a processor alone
UPDATE = 0.01
FLOOR = f" and {1000 * UPDATE:.0f} ms an update"


@dataclass(frozen=True)
class Speed:
    """The peak of a device in FLOP/s, and the share of it that training reaches."""

    peak: float
    share: float
    own: float = 1.0  # the share of the processors that others leave to this process now

    @classmethod
    def find(cls, device: str, precision: str, width: float = math.inf) -> Speed:
        """The speed of this machine, by `train.device`, `train.precision` and the width of the
        model.
        """
        place = device_of(device)
        kind = choose(precision, place)
        return cls(find_peak(kind), usual_share(kind, width), find_own_share(place))

    def describe(self) -> str:
        """`50% of this device's 4.20 GFLOP/s and 10 ms an update`."""
        busy = f", alone; {others} now" if (others := self.describe_others()) else ""
        return f"{self.share:.0%} of this device's {spell_rate(self.peak)}{FLOOR}{busy}"

    def describe_others(self) -> str:
        """`others take 72% of the processor`, or "" where they take next to none."""
        return f"others take {1 - self.own:.0%} of the processor" if self.own < 1 else ""

    def count_seconds(self, flops: float, updates: float, processes: int = 1) -> float:
        """The time that so many operations take in so many updates, on a processor alone."""
        return flops / (self.share * self.peak * processes) + UPDATE * updates

    def spell_time(self, seconds: float) -> str:
        """`1:40`, or `1:40 alone, about 6:40 now`, of seconds on a processor alone."""
        if self.own == 1:
            return clock(seconds)
        return f"{clock(seconds)} alone, about {clock(seconds / self.own)} now"


def spell_rate(flops: float) -> str:
    """`312.00 TFLOP/s`, or `4.20 GFLOP/s` of a slow device."""
    return f"{flops / 1e12:.2f} TFLOP/s" if flops >= 1e11 else f"{flops / 1e9:.2f} GFLOP/s"
