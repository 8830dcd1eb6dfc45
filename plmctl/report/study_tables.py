"""The rows of table.json as readable tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plmctl.report.page import TableBlock
from plmctl.report.statistics import ALPHA

READING = (
    "Mean ± standard deviation over seeds. Difference: arm minus baseline, with its {level:.0%}"
    " interval by Student's t over pairs of equal seeds (Welch's where the seeds differ). p: the"
    " paired test, corrected by Holm for all {count} comparisons of this table. Verdict on the"
    " expected direction: held or not held where p < {alpha:g}, else undecided at this scale."
)


def explain_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A paragraph on how to read all tables of a study."""
    return READING.format(
        level=1 - ALPHA, count=sum(row["p"] is not None for row in rows), alpha=ALPHA
    )


def make_metric_table(rows: Sequence[Mapping[str, Any]]) -> TableBlock:
    """The rows of one metric of table.json, as (head, rows) of text."""
    unit = next((row["unit"] for row in rows if row["published"] is not None), None)
    head = ["arm", "n", "mean ± sd", "difference", "interval", "p (Holm)", "expected", "verdict"]
    head += [f"published, {unit}"] if unit is not None else []
    lines = []
    for row in rows:
        line = [
            row["arm"],
            str(row["n"]),
            format_spread(row["mean"], row["sd"]),
            _format_signed(row["difference"]),
        ]
        line += [
            _interval(row["low"], row["high"]),
            _p(row["p_holm"]),
            row["expected"],
            _verdict(row["verdict"]),
        ]
        lines.append([*line, *([format_number(row["published"])] if unit is not None else [])])
    return TableBlock(head, lines)


def make_cost_table(costs: Sequence[Mapping[str, Any]]) -> TableBlock:
    """The cost of each arm in table.json, as (head, rows) of text."""
    head = [
        "arm",
        "parameters",
        "tokens of pretraining",
        "training FLOPs of it",
        "seconds, fine-tuning included",
    ]
    lines = [
        [
            cost["arm"],
            f"{cost['parameters']:,}",
            _format_integer(cost["tokens"]),
            format_number(cost["flops"]),
            _format_integer(cost["seconds"]),
        ]
        for cost in costs
    ]
    return TableBlock(head, lines)


def format_budget(budget: Mapping[str, float | None]) -> str:
    """`2,000 steps`; "none" for a study without a budget."""
    return ", ".join(f"{value:,} {kind}" for kind, value in budget.items() if value) or "none"


def format_number(value: float | None) -> str:
    """A number with four significant digits; "" for None."""
    return "" if value is None else f"{value:.4g}"


def _format_integer(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _figures(value: float, digits: int, sign: str = "-") -> str:
    """A number with `digits` significant digits, and with all digits before the point: 220, not
    2.2e+02.
    """
    large = abs(value) >= 10**digits - 0.5
    return f"{value:{sign},.0f}" if large else f"{value:{sign}.{digits}g}"


def _format_signed(value: float | None) -> str:
    return "" if value is None else _figures(value, 4, "+")


def format_spread(mean: float | None, deviation: float | None) -> str:
    """`0.8123 ± 0.012`."""
    if mean is None:
        return "missing"
    return _figures(mean, 4) + (f" ± {_figures(deviation, 2)}" if deviation is not None else "")


def _interval(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return ""
    return f"{_figures(low, 3, '+')} to {_figures(high, 3, '+')}"


def _p(p: float | None) -> str:
    return "" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _verdict(verdict: str) -> str:
    return "undecided at this scale" if verdict == "undecided" else verdict
