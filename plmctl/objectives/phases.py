"""The phases of a run in which an objective trains some of its losses and some of the layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A share of a run.

    Args:
        name: Its name in the log.
        left_out: The terms of the objective that are not trained.
        frozen: Names of modules and parameters of the model that are not trained.
        rate: The factor of the learning rates.
        rates: {name of a module or a parameter: its factor in addition}.
        schedule: The schedule of its learning rates; None: that of the run, begun anew.
    """

    name: str
    share: float
    left_out: frozenset[str] = frozenset()
    frozen: Sequence[str] = ()
    rate: float = 1.0
    rates: Mapping[str, float] = field(default_factory=dict)
    schedule: Any = None
