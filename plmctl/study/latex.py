"""The table of a study for a paper: for each metric its arms below each other, with booktabs."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from plmctl.analysis.statistics import ALPHA
from plmctl.report.latex import escape, format_table, join_cells, list_needs
from plmctl.report.study_tables import (
    ALONE,
    LISTED,
    count_seeds,
    count_tested,
    describe_cut,
    format_equal,
    format_figures,
    format_number,
    format_p,
    format_pair,
    list_marks,
    name_family,
    name_level,
    name_metric,
    spell_floors,
)

MEANS = r"Mean $\pm$ standard deviation over {seeds}."
BOLD = (
    " Bold: the best mean of all arms, where its difference from {baseline} (of {baseline} from all"
    r" others) has $p < {alpha:g}$."
)
DIFFERENCES = (
    " Difference from {baseline}, with its {level} interval by Student's $t$ over pairs of equal"
    " seeds{welch}; $p$: the same $t$-test, corrected by Holm for {count}.{alone}"
)
NEXT = 50  # letters next to a metric: a longer text makes the columns of its table wider
NAMED = 4  # cells that the caption names where a study is not complete


def format_latex(record: Mapping[str, Any], lower: Collection[str]) -> str:
    """The rows of table.json as a `table` environment; `lower`: the metrics of which less is
    better.
    """
    rows: Sequence[Mapping[str, Any]] = record["rows"]
    metrics = {row["metric"]: [each for each in rows if _same(each, row)] for row in rows}
    best = {
        name: _find_best(arms, name in lower, str(record["baseline"]), not record["missing"])
        for name, arms in metrics.items()
    }
    counted = len({row["n"] for row in rows}) > 1  # then a column says how many seeds an arm has
    difference = f"difference [{escape(name_level(record))} interval]"
    head = ["arm", *(["$n$"] if counted else []), r"mean $\pm$ sd", difference, "$p$"]
    floors = {name: spell_floors(own) for name, own in (record.get("floors") or {}).items()}
    body: list[str] = []
    for name, arms in metrics.items():
        arrow = r"$\downarrow$" if name in lower else r"$\uparrow$"
        own = floors.get(name, "")
        below = f" ({escape(own)})" if own and len(own) <= NEXT else ""
        title = rf"\emph{{{escape(name_metric(arms))}}} {arrow}{below}"
        title = rf"\multicolumn{{{len(head)}}}{{l}}{{{title}}}"
        cells = _list_cells(arms, best[name], counted)
        lines = [[escape(row["arm"]), *own] for row, own in zip(arms, cells, strict=True)]
        body += [r"\midrule", title + r" \\", *map(join_cells, lines)]
    caption = f"{escape(str(record['title']))}. {_explain(record, any(best.values()))}"
    columns = f"l{'r' * (len(head) - 1)}"
    long = {name: own for name, own in floors.items() if len(own) > NEXT}
    notes = [f"{name}, without pretraining: {own}" for name, own in long.items()]
    notes += record.get("notes") or ()
    text = format_table(caption, columns, join_cells(head), body, notes)
    return "\n".join([*list_needs(text, "plmctl ablate"), *_comment_missing(record), text])


def _same(row: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return bool(row["metric"] == other["metric"])


def _find_best(
    rows: Sequence[Mapping[str, Any]], lower: bool, baseline: str, whole: bool
) -> str | None:
    """The best mean as it is shown; None where arms have different numbers of seeds, or no test
    says that it is the best.

    Args:
        rows: the arms of a metric.
        lower: less is better.
        baseline: The arm that others are compared with.
        whole: the study is complete, so that an arm without a mean is one that has none.
    """
    known = [row for row in rows if row["mean"] is not None]
    if not known or len({row["n"] for row in (known if whole else rows)}) != 1:
        return None
    best = (min if lower else max)(known, key=lambda row: row["mean"])
    others = [row for row in known if row["arm"] != baseline]
    tested = others if best["arm"] == baseline else [best]
    return format_number(best["mean"]) if tested and all(map(_is_decided, tested)) else None


def _is_decided(row: Mapping[str, Any]) -> bool:
    """Whether the difference of an arm from the baseline has a small p, and is one of models that
    have learned something.
    """
    return row["p_holm"] is not None and row["p_holm"] < ALPHA and not row.get("mark")


def _list_cells(
    rows: Sequence[Mapping[str, Any]], best: str | None, counted: bool
) -> list[list[str]]:
    """The cells of the arms of a metric behind their names; `best`: the mean that is bold."""
    cells = []
    for row in rows:
        number = [f"${row['n']}$"] if counted else []
        if row["mean"] is None:
            cells.append([*number, "--", "", ""])
            continue
        pair = map(_spell, format_pair(row["mean"], row["sd"]))
        spread = r" \pm ".join(filter(None, pair))
        spread = rf"\mathbf{{{spread}}}" if format_number(row["mean"]) == best else spread
        difference = _spell_difference(row["difference"], row["low"], row["high"])
        mark = escape(list_marks(row))
        p = {"": mark, "-": f"--{mark}"}.get(shown := format_p(row), f"${shown}${mark}")
        cells.append([*number, f"${spread}$", difference, p])
    return cells


def _spell_difference(difference: float | None, low: float | None, high: float | None) -> str:
    """A difference and its interval in equal digits; "" without a difference."""
    if difference is None:
        return ""
    if low is None or high is None:
        return f"${_spell(format_figures(difference, 3, '+'))}$"
    first, *ends = map(_spell, format_equal([difference, low, high]))
    return rf"${first}\ [{', '.join(ends)}]$"


def _spell(number: str) -> str:
    """A number as LaTeX sets it in formulas."""
    return re.sub(r"e(-?)\+?0*(\d+)", r" \\cdot 10^{\1\2}", number.replace(",", "{,}"))


def _explain(record: Mapping[str, Any], bold: bool) -> str:
    """The caption behind the title: what the columns are, and what is not there yet."""
    baseline, level = escape(str(record["baseline"])), escape(name_level(record))
    text = MEANS.format(seeds=count_seeds(record))
    noises: Mapping[str, str] = record.get("validated_under") or {}
    for noise in dict.fromkeys(noises.values()):
        names = ", ".join(name for name, own in noises.items() if own == noise)
        text += f" {escape(names)}: validated under {escape(noise)}."
    text += BOLD.format(baseline=baseline, alpha=ALPHA) if bold else ""
    if any(row["difference"] is not None for row in record["rows"]):
        number = count_tested(record)
        none = "no comparison, since none has a spread over two seeds yet"
        count = name_family(number) if number else none
        alone = ALONE if number > 1 else ""
        welch = " (Welch's where the seeds differ)" if _is_unpaired(record) else ""
        text += DIFFERENCES.format(
            baseline=baseline, level=level, welch=welch, count=count, alone=alone
        )
    cells = list(dict.fromkeys(c for job in record["missing"] for c in job["cells"].split("; ")))
    if not cells:
        return text
    more = [f"and {len(cells) - NAMED} more"] if len(cells) > NAMED else []
    return rf"{text} \textbf{{Not complete}}: {escape('; '.join([*cells[:NAMED], *more]))}."


def _is_unpaired(record: Mapping[str, Any]) -> bool:
    return any(row["test"] == "Welch t" for row in record["rows"])


def _comment_missing(record: Mapping[str, Any]) -> list[str]:
    """Comments on the jobs that have left no result: their number, the first ones."""
    jobs = [
        f"%   {job['state']}: {' '.join(job['label'].split())} (for {job['cells']})"
        for job in record["missing"]
    ]
    cut = describe_cut(jobs, "without a result", record.get("again"))
    return [f"% NOT COMPLETE: {cut}", *jobs[:LISTED]] if jobs else []
