"""How fast a machine trains, before anything is measured but the product of two matrices."""

from __future__ import annotations

from dataclasses import dataclass

from plmctl.training.device.peak import peak_flops, usual_share
from plmctl.training.device.precision import choose
from plmctl.training.processes.world import device_of


@dataclass(frozen=True)
class Speed:
    """The peak of a device in FLOP/s, None where it is not known, and the share of it that
    training reaches.
    """

    peak: float | None
    share: float

    @classmethod
    def find(cls, device: str, precision: str) -> Speed:
        """That of this machine, by `train.device` and `train.precision`."""
        place = device_of(device)
        return cls(peak_flops(choose(precision, place)), usual_share(place))

    def describe(self) -> str:
        """`50% of this device's 4.20 GFLOP/s`."""
        return f"{self.share:.0%} of this device's {spell_rate(self.peak or 0.0)}"

    def count_seconds(self, flops: float, processes: int = 1) -> float | None:
        """The time that so many operations take; None where it cannot be told."""
        return flops / (self.share * self.peak * processes) if self.peak else None


def spell_rate(flops: float) -> str:
    """`312.00 TFLOP/s`, or `4.20 GFLOP/s` of a slow device."""
    return f"{flops / 1e12:.2f} TFLOP/s" if flops >= 1e11 else f"{flops / 1e9:.2f} GFLOP/s"
