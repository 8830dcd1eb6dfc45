"""The target of a compression: a quantity, and how much less of it, or how much at most."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from plmctl.core.errors import ConfigError, find_meant, nearest
from plmctl.core.spelling import spell_word

# {quantity: {unit: its size}}, the quantities of a model of which less is better
UNITS: Mapping[str, Mapping[str, float]] = {
    "latency": {"ms": 1.0, "us": 1e-3, "s": 1e3},  # milliseconds of a row
    "size": {"KB": 1e3, "MB": 1e6, "GB": 1e9, "B": 1.0},  # bytes of the weights
    "flops": {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9},  # multiply-adds of a row
    "memory": {"MB": 1e6, "KB": 1e3, "GB": 1e9, "B": 1.0},  # bytes of the process
}
EXAMPLES = {"latency": "latency:8x", "size": "size:5MB", "flops": "flops:4x", "memory": "memory:4x"}
SURE = 1.05  # times a target that is predicted: two timings differ by a few percent
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)([A-Za-z]*)")


@dataclass(frozen=True)
class Target:
    """How far a quantity goes down.

    Args:
        quantity: latency, size, flops or memory.
        times: The least ratio between the run and the small model; None: `most` counts.
        most: The largest amount, in the unit of `UNITS` that is 1.
    """

    quantity: str
    times: float | None = None
    most: float | None = None

    def reach(self, amount: float, times: float) -> float:
        """How much of the target is reached: 1 or more where it is met.

        Args:
            amount: The quantity of a model.
            times: The quantity of the run, divided by it.
        """
        if self.times is not None:
            return times / self.times
        assert self.most is not None
        return self.most / amount if amount > 0 else float("inf")


def parse(word: str) -> Target:
    """The target that a user types: `latency:8x`, `latency:5ms`, `size:4x`, `size:5MB`.

    Raises:
        ConfigError: It is none; the message says what is allowed.
    """
    quantity, colon, amount = word.partition(":")
    if quantity not in UNITS or not colon:
        allowed = f"one of {', '.join(EXAMPLES.values())}{nearest(quantity, UNITS)}"
        near = find_meant(quantity, UNITS) or "latency"
        fix = spell_word(f"target={f'{near}:{amount}' if colon else EXAMPLES[near]}")
        raise ConfigError("target", word, allowed, fix=fix)
    units = UNITS[quantity]
    match = _AMOUNT.fullmatch(amount.strip())
    by_name = {unit.lower(): size for unit, size in units.items()}
    if match and match[2].lower() == "x" and float(match[1]) > 1:
        return Target(quantity, times=float(match[1]))
    if match and match[2].lower() in by_name and float(match[1]) > 0:
        return Target(quantity, most=float(match[1]) * by_name[match[2].lower()])
    spelled = ", ".join(unit for unit in units if unit)
    allowed = f"{quantity}:<times>x, more than 1, or {quantity}:<number> with {spelled} behind it"
    raise ConfigError("target", word, allowed, fix=spell_word(f"target={EXAMPLES[quantity]}"))


def spell_amount(quantity: str, amount: float) -> str:
    """An amount with the largest unit that leaves 1 or more in front: "5.20 MB"."""
    units = sorted(UNITS[quantity].items(), key=lambda unit: -unit[1])
    fitting = [unit for unit in units if amount >= unit[1]] or units[-1:]
    name, size = fitting[0]
    return f"{amount / size:.3g} {name}".rstrip()
