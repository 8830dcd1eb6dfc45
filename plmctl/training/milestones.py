"""Milestones: numbers of words, tokens or updates at which the weights of a run are kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from plmctl.core.errors import ConfigError, nearest
from plmctl.training.budget import Budget
from plmctl.training.progress import Progress

SETTING = "train.save_at"
LOG = "log"
COUNTERS = {"words": "words", "tokens": "tokens", "updates": "steps"}  # units, in a budget
# "log" begins at a hundredth of the run, but at no more than this, which is that of public curves
FIRST, MOST = 100, {"words": 10**6, "tokens": 10**6, "updates": 10**3}
LAST = 10**12  # for a run whose length is stated in another unit


@dataclass(frozen=True)
class Milestones:
    """Numbers of a unit, in ascending order; the first update that reaches one saves the weights.

    Args:
        unit: "words", "tokens" or "updates", which the names of the folders begin with.
    """

    unit: str
    numbers: tuple[int, ...]

    @classmethod
    def read(cls, stated: str | Sequence[str], budget: Budget) -> Milestones:
        """The milestones of `train.save_at`: `words:log`, `updates:500` or a list of numbers.

        Args:
            stated: The setting.
            budget: The length of the run; `log` names nine numbers a decade.

        Raises:
            ConfigError: The setting names no number, or numbers of two units.
        """
        items = [stated] if isinstance(stated, str) else list(stated)
        pairs = [_parse(item) for item in items]
        units = list(dict.fromkeys(unit for unit, _ in pairs))
        if len(units) > 1:
            named = " and ".join(units)
            first = ",".join(
                item for item, (unit, _) in zip(items, pairs, strict=True) if unit == units[0]
            )
            allowed = f"numbers of one unit, these are {named}"
            raise ConfigError(SETTING, stated, allowed, fix=f"{SETTING}=[{first}]")
        numbers = set[int]()
        for unit, number in pairs:
            whole = getattr(budget, COUNTERS[unit])
            if number is not None and whole is not None and number > whole:
                allowed = f"at most the length of the run, {whole:,} {unit}"
                fix = f"{SETTING}={unit}:{LOG}"
                raise ConfigError(SETTING, f"{unit}:{number}", allowed, fix=fix)
            numbers.update(space(whole, unit) if number is None else [number])
        return cls(units[0], tuple(sorted(numbers)))

    def reached(self, progress: Progress) -> int:
        """The largest milestone that a run has reached; 0: none."""
        done = {"words": progress.words, "tokens": progress.tokens, "updates": progress.step}
        return max((each for each in self.numbers if each <= done[self.unit]), default=0)


def space(whole: int | None, unit: str = "words") -> list[int]:
    """1, 2, ... 9, 10, 20, ... times a power of ten, up to `whole`, and `whole` itself.

    They begin at the power of ten at or below a hundredth of `whole`, at most a million words. So
    100 M words give 1 M, 2 M, ... 10 M, 20 M, ... 100 M, the checkpoints of BabyLM. Where `whole`
    is not known, they begin at that million and do not end.
    """
    last = LAST if whole is None else whole
    decade = 10 ** max(0, math.floor(math.log10(max(1, min(last // FIRST, MOST[unit])))))
    numbers = []
    while decade < last:
        numbers += [digit * decade for digit in range(1, 10) if digit * decade < last]
        decade *= 10
    return [*numbers, last]


def _parse(item: str) -> tuple[str, int | None]:
    """(unit, number) of `words:1e6`; None: the numbers of `log`."""
    unit, _, number = str(item).partition(":")
    if unit not in COUNTERS:
        allowed = f"<unit>:<number> or <unit>:{LOG}, a unit is {', '.join(COUNTERS)}"
        fix = f"{SETTING}=words:{LOG}"
        raise ConfigError(SETTING, item, allowed + nearest(unit, COUNTERS), fix=fix)
    if number == LOG:
        return unit, None
    try:
        value = float(number)
    except ValueError:
        value = 0.0
    if not value.is_integer() or value < 1:
        allowed = f"a whole number of {unit}, 1 or more, or {LOG}"
        raise ConfigError(SETTING, item, allowed, fix=f"{SETTING}={unit}:{LOG}")
    return unit, int(value)
