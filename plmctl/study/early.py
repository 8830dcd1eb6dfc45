"""The rule that ends hopeless runs. It looks at a run's own curve alone, so when and how often
it is asked changes nothing.
"""

from __future__ import annotations

import math
from pathlib import Path

from plmctl.core.errors import DataError
from plmctl.report.runs import RunLog
from plmctl.study.curves import along
from plmctl.study.study import Stop, Study

AXIS = {"steps": "steps", "tokens": "tokens", "flops": "flops", "minutes": "time"}


def hopeless(run: Path, study: Study, flops_per_token: float) -> str:
    """Where the rule ends this pretraining, in words; empty where it does not, or not yet."""
    if study.stop is None or study.budget is None:
        return ""
    try:
        log = RunLog.read(run)
    except DataError:
        return ""  # nothing is logged yet
    kind, amount = study.budget
    for step, x, value in along(log, study.stop.metric, AXIS[kind], flops_per_token):
        if x / (60 * amount if kind == "minutes" else amount) >= study.stop.after and _bad(
            value, study.stop
        ):
            return (
                f"{study.stop.metric} was {value:.4g} after update {step:.0f},"
                f" {_side(study.stop)} {study.stop.bound:g}"
            )
    return ""


def _rises(stop: Stop) -> bool:
    return stop.metric.removeprefix("valid/").startswith("acc")


def _side(stop: Stop) -> str:
    return "below" if _rises(stop) else "above"


def _bad(value: float, stop: Stop) -> bool:
    return not math.isfinite(value) or (value < stop.bound if _rises(stop) else value > stop.bound)
