"""The rows of table.json as readable tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Any

from plmctl.analysis.statistics import ALPHA, POWER
from plmctl.core.rounding import spell_p
from plmctl.core.terminal import counted
from plmctl.report.page import TableBlock
from plmctl.tasks.scores.metrics import spell_metric

READING = (
    "Mean ± standard deviation over seeds. Difference: arm minus baseline, with its {level}"
    " interval by Student's t over pairs of equal seeds (Welch's where the seeds differ). {tested}"
    " Verdict on the expected direction: held or not held where p < {alpha:g}, else undecided at"
    " this scale."
)
TESTED = "p: the same t-test over seeds, corrected by Holm for {family} of this study."
ALONE = " Intervals are not corrected for the number of comparisons: each has its level alone."
SHARED = " {name} has the p of {same}: its numbers are the same in another unit."
UNTESTED = "There is no p here: it needs two seeds of an arm and of the baseline, and a spread."
DETECTABLE = (
    " Detectable: the smallest true difference that so many seeds with this spread show with"
    " {power:.0%} probability (noncentral t), at one level in all rows: {level}."
)
NO_SPREAD = (
    " No p (-) and no verdict where every seed gave exactly the same difference: a t-test needs a"
    " spread, and so few equal numbers are none. Often the metric has few values, or nothing"
    " depends on the seed."
)
SEQUENCE = (
    " Seeds were spent in rounds, {seeds} of at most {most}, with a look at the results after each."
    " The p-value is corrected for the number of looks too; the interval and the detectable"
    " difference are at the level of the newest look. So it costs no error rate to stop as soon as"
    " all is decided."
)

LISTED = 5  # jobs without a result that a table names


def describe_cut(jobs: Sized, what: str, again: str | None) -> str:
    """`54 jobs <what>, the first 5 below. To run them: plmctl ablate ...`."""
    first = f", the first {LISTED} below" if len(jobs) > LISTED else ""
    run = f" To run them: {again}" if again else ""  # tables of older versions have no command
    return f"{counted(len(jobs), 'job')} {what}{first}.{run}"


def explain_table(table: Mapping[str, Any], metric: str | None = None) -> str:
    """A paragraph on how to read all tables of a study, by its table.json, or that of a metric."""
    rows = [row for row in table["rows"] if metric in (None, row["metric"])]
    looks, count = table.get("looks") or [], count_tested(table)
    tested = TESTED.format(family=name_family(count)) if count else UNTESTED
    tested += ALONE if count > 1 else ""
    text = READING.format(level=name_level(table), tested=tested, alpha=ALPHA)
    if any(row.get("detectable") is not None for row in rows):
        text += DETECTABLE.format(power=POWER, level=spell_level(count, bool(looks)))
    if any(row.get("test") == "no spread" for row in rows):
        text += NO_SPREAD
    for name, same in {row["metric"]: row["p_of"] for row in rows if row.get("p_of")}.items():
        text += SHARED.format(name=name, same=same)
    for line in list_equal({**table, "rows": rows}):
        text += f" {line}."
    if looks:
        seeds = ", ".join(str(look["seeds"]) for look in looks)
        text += SEQUENCE.format(seeds=seeds, most=table["most_seeds"])
    return text


def list_equal(table: Mapping[str, Any]) -> list[str]:
    """The arms whose results are those of the baseline in every seed."""
    return [
        f"{row['metric']}: {row['arm']} is equal to {table['baseline']} in every seed"
        for row in table["rows"]
        if row.get("test") == "no spread" and not row["difference"]
    ]


def name_level(table: Mapping[str, Any]) -> str:
    """`95%`, the level of all intervals; `corrected` where results were looked at in rounds."""
    return "corrected" if table.get("looks") else f"{1 - ALPHA:.0%}"


def count_tested(table: Mapping[str, Any]) -> int:
    """How many comparisons have a p of their own, for which Holm's correction is."""
    return sum(row["p"] is not None and not row.get("p_of") for row in table["rows"])


def spell_level(count: int, looks: bool = False) -> str:
    """`0.05 / 9 = 0.0056, the first step of Holm`, of so many comparisons."""
    level = f"{ALPHA:g} / {count} = {ALPHA / count:.2g}" if count > 1 else f"{ALPHA:g}"
    step = ", the first step of Holm's correction" if count > 1 else ""
    return f"{level}{step}{', times the share of the newest look' if looks else ''}"


def name_family(count: int) -> str:
    """`all 6 comparisons`, `the one comparison`."""
    return "the one comparison" if count == 1 else f"all {counted(count, 'comparison')}"


def count_seeds(table: Mapping[str, Any]) -> str:
    """`3 seeds`, or `3 to 7 seeds` where arms have different numbers, as rounds leave them and
    studies that are not complete.
    """
    counts = [row["n"] for row in table["rows"] if row["n"]] or [0]
    least, most = min(counts), max(counts)
    return counted(most, "seed") if least == most else f"{least} to {most} seeds"


def name_metric(rows: Sequence[Mapping[str, Any]]) -> str:
    """`f1, %` for rows of a metric from 0 to 100, else its name; tables of older versions do not
    say it.
    """
    name = str(rows[0]["metric"])
    return spell_metric(name, [name] if rows[0].get("percent") else ())


def spell_floors(floors: Mapping[str, float]) -> str:
    """`chance: 0.5000; words: 0.7317`: what is reached without pretraining."""
    return "; ".join(f"{name}: {format_figures(value, 4)}" for name, value in floors.items())


def make_metric_table(rows: Sequence[Mapping[str, Any]]) -> TableBlock:
    """The rows of one metric of table.json, as (head, rows) of text."""
    unit = next((row["unit"] for row in rows if row["published"] is not None), None)
    head = ["arm", "n", "mean ± sd", "difference", "interval"]
    # tables of older versions say nothing of it
    power = any("detectable" in row for row in rows)
    head += [*(["detectable"] if power else []), "p (Holm)", "expected", "verdict"]
    head += [f"published, {unit}"] if unit is not None else []
    lines = []
    for row in rows:
        line = [row["arm"], str(row["n"]), format_spread(row["mean"], row["sd"])]
        line += [
            *_spell_difference(row["difference"], row["low"], row["high"]),
            *([format_detectable(row)] if power else []),
            format_p(row),
            row["expected"],
            mark_verdict(row),
        ]
        lines.append([*line, *([format_number(row["published"])] if unit is not None else [])])
    return TableBlock(head, lines)


def make_cost_table(costs: Sequence[Mapping[str, Any]]) -> TableBlock:
    """The cost of each arm in table.json, as (head, rows) of text."""
    tuned = any(cost.get("trained") is not None for cost in costs)
    seconds = "seconds, fine-tuning included" if tuned else "seconds"
    columns: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "arm": lambda cost: cost["arm"],
        "parameters": lambda cost: f"{cost['parameters']:,}",
        "tokens of pretraining": lambda cost: _format_integer(cost["tokens"]),
        "training FLOPs of it": lambda cost: format_number(cost["flops"]),
        seconds: lambda cost: _format_integer(cost["seconds"]),
    }
    if tuned:
        columns |= {
            "weights fine-tuned": lambda cost: _format_integer(cost.get("trained")),
            "MB saved": lambda cost: _format_megabytes(cost.get("saved")),
            "MB of memory, at most": lambda cost: _format_megabytes(cost.get("memory")),
        }
    return TableBlock(list(columns), [[f(cost) for f in columns.values()] for cost in costs])


def format_budget(budget: Mapping[str, float | None]) -> str:
    """`2,000 steps`, of each pretraining; "none" for a study without a budget."""
    given = {kind: value for kind, value in budget.items() if value and kind != "hours"}
    amounts = [
        f"{value:,} {kind.removesuffix('s' * (value == 1))}" for kind, value in given.items()
    ]
    return ", ".join(amounts) or "none"


def format_number(value: float | None) -> str:
    """A number with four significant digits; "" for None."""
    return "" if value is None else f"{value:.4g}"


def _format_integer(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _format_megabytes(value: float | None) -> str:
    return "" if value is None else format_figures(value / 1e6, 3)


def format_figures(value: float, digits: int, sign: str = "-") -> str:
    """A number with `digits` significant digits, and with all digits before the point: 220, not
    2.2e+02; `sign`: "+" where a sign is always shown.
    """
    large = abs(value) >= 10**digits - 0.5
    return f"{value:{sign},.0f}" if large else f"{value:{sign}.{digits}g}"


def format_pair(mean: float, deviation: float | None) -> tuple[str, str]:
    """A mean and its deviation, both rounded at the second significant digit of the deviation or
    the point; without a deviation, four digits and "".
    """
    if deviation is None:
        return format_figures(mean, 4), ""
    if deviation <= 0 or not math.isfinite(deviation):
        return format_figures(mean, 4), f"{deviation:g}"
    places = max(0, 1 - int(f"{deviation:.1e}".partition("e")[2]))
    if places > 8:
        return format_figures(mean, 4), format_figures(deviation, 2)
    return f"{mean:,.{places}f}", f"{deviation:,.{places}f}"


def format_equal(values: Sequence[float]) -> list[str]:
    """A number and its interval, with signs and equally many digits behind the point.

    The length of the interval has three significant digits; a length of 10 or more has none
    behind the point.

    Args:
        values: The number, the low and the high end of its interval.
    """
    _, low, high = values
    length = high - low
    places = (2 - math.floor(math.log10(length)) if length < 10 else 0) if length > 0 else 3
    if places > 8:
        return [format_figures(value, 3, "+") for value in values]
    return [f"{value:+,.{places}f}" for value in values]


def format_spread(mean: float | None, deviation: float | None) -> str:
    """`0.812 ± 0.012`."""
    if mean is None:
        return "missing"
    return " ± ".join(filter(None, format_pair(mean, deviation)))


def _spell_difference(
    difference: float | None, low: float | None, high: float | None
) -> tuple[str, str]:
    """(a difference, its interval) in equal digits; "" where one is not known."""
    if difference is None:
        return "", ""
    if low is None or high is None:
        return format_figures(difference, 3, "+"), ""
    first, *ends = format_equal([difference, low, high])
    return first, " to ".join(ends)


def format_p(row: Mapping[str, Any]) -> str:
    """`0.0123`; "-" where a difference without a spread has no p, "" where nothing was compared."""
    p = row["p_holm"]
    if p is None:
        return "-" if row.get("test") == "no spread" else ""
    return spell_p(p)


def format_detectable(row: Mapping[str, Any]) -> str:
    """`0.021`; "none" where only more than the metric can differ would have been seen; "" where
    nothing is known.
    """
    value = row.get("detectable")
    return "" if value is None else "none" if _sees_nothing(row) else format_figures(value, 2)


def _sees_nothing(row: Mapping[str, Any]) -> bool:
    span = row.get("span")  # tables of older versions say nothing of it
    return span is not None and row["detectable"] > span


def mark_verdict(row: Mapping[str, Any]) -> str:
    """The verdict with its marks, which notes explain."""
    return f"{describe_verdict(row)} {list_marks(row)}".strip()


def list_marks(row: Mapping[str, Any]) -> str:
    """`†‡§`: models of little worth, other noise, and a direction that came after the results;
    tables of older versions have none.
    """
    return "".join(row.get(name) or "" for name in ("mark", "noise_mark", "late_mark"))


def describe_verdict(row: Mapping[str, Any]) -> str:
    """The verdict on the expected difference; undecided ones come with the difference that could
    have been seen, and an arm without a value with the reason.
    """
    verdict: str = row["verdict"]
    if absent := row.get("absent"):  # tables of older versions say nothing of it
        return str(absent)
    if row["expected"] and not verdict:
        if row["difference"] is not None:
            return "no spread"
        return "not run" if row.get("mean") is None else "no baseline"
    if verdict != "undecided":
        return verdict
    if row.get("detectable") is None:
        return "undecided at this scale"
    if _sees_nothing(row):
        return "undecided (no difference could have been seen)"
    return f"undecided (could have seen {format_detectable(row)})"
