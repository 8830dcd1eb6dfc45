"""The rule that ends hopeless runs. It looks at a run's own curve alone, so the times of its checks
change nothing.
"""

from __future__ import annotations

import math
from pathlib import Path

from plmctl.analysis.runs import AXIS, RunLog, read_curve
from plmctl.core.errors import DataError
from plmctl.study.study import Study


def reason_to_stop(run: Path, study: Study, flops_per_token: float) -> str:
    """Where the rule of a study ends this pretraining, in words; empty where it does not, or not
    yet.
    """
    if study.stop is None or study.budget is None:
        return ""
    try:
        log = RunLog.read(run, most=None)
    except DataError:
        return ""  # nothing is logged yet
    stop, (kind, amount) = study.stop, study.budget
    whole = 60 * amount if kind == "minutes" else amount
    # an accuracy is to rise, everything else to fall
    rises = stop.metric.removeprefix("valid/").startswith("acc")
    for step, x, value in read_curve(log, stop.metric, AXIS[kind], flops_per_token):
        worse = value < stop.bound if rises else value > stop.bound
        if x / whole >= stop.after and (worse or not math.isfinite(value)):
            side = "below" if rises else "above"
            measured = f"{stop.metric} was {value:.4g} after update {step:.0f}"
            return f"{measured}, {side} {stop.bound:g}"
    return ""
