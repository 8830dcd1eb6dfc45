"""The table of a study: for each metric the means, differences and verdicts, and a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from plmctl.report.bars import Level, draw_levels
from plmctl.report.page import Block, Chart, Heading, Paragraph, TableBlock
from plmctl.report.study_tables import describe_verdict, explain_table, make_metric_table
from plmctl.report.subject import Subject

ORDER = 1


def panel(subject: Subject) -> list[Block]:
    """A table and a picture for each metric."""
    table = subject.study.table if subject.study else None
    if not table or not table.get("rows"):
        return []
    rows: Sequence[Mapping[str, Any]] = table["rows"]
    blocks: list[Block] = [Heading("Findings"), *_verdicts(rows)]
    for number, metric in enumerate(dict.fromkeys(row["metric"] for row in rows)):
        own = [row for row in rows if row["metric"] == metric]
        about = (table.get("about") or {}).get(metric)  # tables of older versions say nothing of it
        blocks += [
            Heading(metric, 3),
            *([Paragraph(about)] if about else []),
            make_metric_table(own),
        ]
        measured = [row for row in own if row["mean"] is not None]
        known = [
            Level(row["arm"], row["mean"], row["sd"] or 0.0, list(row["values"].values()))
            for row in measured
        ]
        if known:
            base = next((row["mean"] for row in own if row["arm"] == table["baseline"]), None)
            marks = {} if base is None else {table["baseline"]: base}
            blocks.append(
                Chart(
                    f"levels-{number}",
                    draw_levels(known, title=metric, x="mean, deviation, seeds", marks=marks),
                )
            )
    notes = [Paragraph(note) for note in table.get("notes") or []]
    return [*blocks, Paragraph(explain_table(table)), *notes]


def _verdicts(rows: Sequence[Mapping[str, Any]]) -> list[Block]:
    expected = [row for row in rows if row["expected"]]
    counts = Counter(row["verdict"] or describe_verdict(row) for row in expected)
    if not counts:
        return []
    always = {"held": "held", "not held": "not held", "undecided": "undecided at this scale"}
    names = {**always, "no spread": "without a spread", "not run": "not run"}
    return [
        TableBlock(
            ["expected direction", "comparisons"],
            [
                [word, str(counts[name])]
                for name, word in names.items()
                if name in always or counts[name]
            ],
        )
    ]
