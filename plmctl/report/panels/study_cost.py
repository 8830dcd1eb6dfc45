"""The cost of each arm of a study."""

from __future__ import annotations

from plmctl.report.page import Block, Heading, Paragraph
from plmctl.report.study_tables import make_cost_table
from plmctl.report.subject import Subject

ORDER = 3


def panel(subject: Subject) -> list[Block]:
    """A row for each arm."""
    table = subject.study.table if subject.study else None
    if not table or not table.get("costs"):
        return []
    seconds = [row["seconds"] for row in table["costs"] if row["seconds"] is not None]
    total = len(table["seeds"]) * sum(seconds) / 3600
    hours = Paragraph(f"Means over seeds; about {total:.2f} hours of training in all.")
    return [Heading("Cost of an arm"), hours, make_cost_table(table["costs"])]
