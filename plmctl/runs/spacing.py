"""The updates between the validations of a run, and the number of these."""

from __future__ import annotations

import math

from plmctl.config.groups import Train

SHORT = 50  # updates of a run


def space_validations(steps: int) -> int:
    """The updates between two validations where nobody says it: ten times a run, five times a
    short one, whose single updates say little.
    """
    return steps // 10 if steps >= SHORT else math.ceil(steps / 5)


def space_scorings(epoch: int, steps: int | None, *, stable: bool) -> int | None:
    """The updates between two scorings of dev where nobody says it: an epoch; ten times a run where
    `train.least_steps` is set, since an epoch may be a few updates of it, or half of it.
    """
    if not stable:
        return epoch
    return None if steps is None else max(1, steps // 10)


def count_validations(train: Train, steps: int, every: int | None = None) -> int:
    """The validations of a run of so many updates; the last one is at its end.

    Args:
        train: The settings, of which `eval_every` counts first.
        steps: The updates of the whole run.
        every: The updates between two where nobody says it; None: a tenth of the run.
    """
    if train.eval_every is None:
        return math.ceil(steps / (every or space_validations(steps)))
    return math.ceil(steps / (train.eval_every or steps))
