"""The table of a study for a paper: arms below each other, metrics side by side, with booktabs."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from plmctl.report.statistics import ALPHA
from plmctl.report.study_tables import count_seeds, format_spread

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}
NOTE = "Mean $\\pm$ standard deviation over {seeds}; best means in bold{star}."
STAR = "; $^{{*}}$: differs from {baseline}, $p < {alpha:g}$ (paired $t$, Holm)"


def format_latex(record: Mapping[str, Any], lower: Collection[str]) -> str:
    """The rows of table.json as a `table` environment; `lower`: the metrics of which less is
    better.
    """
    rows: Sequence[Mapping[str, Any]] = record["rows"]
    cells = {(row["arm"], row["metric"]): row for row in rows}
    arms, metrics = (list(dict.fromkeys(row[name] for row in rows)) for name in ("arm", "metric"))
    best = {
        metric: _best([row["mean"] for row in rows if row["metric"] == metric], metric in lower)
        for metric in metrics
    }
    arrows = {metric: r"$\downarrow$" if metric in lower else r"$\uparrow$" for metric in metrics}
    lines = [["arm", *(f"{escape(metric)} {arrow}" for metric, arrow in arrows.items())]]
    for arm in arms:
        known = [(cells.get((arm, metric)), best[metric]) for metric in metrics]
        lines.append([escape(arm), *(_cell(row, mean) for row, mean in known)])
    head, *body = (" & ".join(line) + r" \\" for line in lines)
    starred = any(_differs(row) for row in rows)
    star = STAR.format(baseline=escape(str(record["baseline"])), alpha=ALPHA) if starred else ""
    note = NOTE.format(seeds=count_seeds(record), star=star)
    return "\n".join(
        [
            "% needs \\usepackage{booktabs}; written by plmctl ablate",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escape(str(record['title']))}. {note}}}",
            rf"\begin{{tabular}}{{l{'r' * len(metrics)}}}",
            r"\toprule",
            head,
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def escape(text: str) -> str:
    """`text` in one line, its letters as LaTeX prints them."""
    return "".join(_SPECIAL.get(letter, letter) for letter in " ".join(text.split()))


def _best(means: Sequence[float | None], lower: bool) -> float | None:
    known = [mean for mean in means if mean is not None]
    return (min if lower else max)(known) if len(known) > 1 else None


def _cell(row: Mapping[str, Any] | None, best: float | None) -> str:
    if row is None or row["mean"] is None:
        return "--"
    spread = format_spread(row["mean"], row["sd"]).replace(",", "{,}").replace("±", r"\pm")
    number = re.sub(r"e(-?)\+?0*(\d+)", r" \\cdot 10^{\1\2}", spread)
    number = rf"\mathbf{{{number}}}" if row["mean"] == best else number
    return f"${number}{'^{*}' if _differs(row) else ''}$"


def _differs(row: Mapping[str, Any]) -> bool:
    return row["p_holm"] is not None and row["p_holm"] < ALPHA
