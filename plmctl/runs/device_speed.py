"""How fast a machine trains, before anything is measured but the product of two matrices."""

from __future__ import annotations

from dataclasses import dataclass

from plmctl.training.device.peak import is_doubtful, peak_flops, usual_share
from plmctl.training.device.precision import choose
from plmctl.training.processes.world import device_of

# seconds that an update takes however small its model: two to four layers, on a processor alone
UPDATE = 0.01
FLOOR = f" and {1000 * UPDATE:.0f} ms an update"


@dataclass(frozen=True)
class Speed:
    """The peak of a device in FLOP/s, None where it is not known, and the share of it that
    training reaches.
    """

    peak: float | None
    share: float
    doubtful: bool = False  # measured while other programs computed

    @classmethod
    def find(cls, device: str, precision: str) -> Speed:
        """The speed of this machine, by `train.device` and `train.precision`."""
        place = device_of(device)
        kind = choose(precision, place)
        return cls(peak_flops(kind), usual_share(place), is_doubtful(kind))

    def describe(self) -> str:
        """`50% of this device's 4.20 GFLOP/s and 10 ms an update`."""
        doubt = ", its rate measured while others compute" if self.doubtful else ""
        return f"{self.share:.0%} of this device's {spell_rate(self.peak or 0.0)}{FLOOR}{doubt}"

    def count_seconds(self, flops: float, updates: float, processes: int = 1) -> float | None:
        """The time that so many operations take in so many updates; None where it is unknown."""
        if not self.peak:
            return None
        return flops / (self.share * self.peak * processes) + UPDATE * updates


def spell_rate(flops: float) -> str:
    """`312.00 TFLOP/s`, or `4.20 GFLOP/s` of a slow device."""
    return f"{flops / 1e12:.2f} TFLOP/s" if flops >= 1e11 else f"{flops / 1e9:.2f} GFLOP/s"
