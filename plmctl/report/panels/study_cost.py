"""The cost of each arm of a study."""

from __future__ import annotations

from plmctl.core.progress import clock
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
    text = "Means over seeds."
    if "looks" not in table:  # all arms have as many seeds
        total = len(table["seeds"]) * sum(seconds) / 3600
        text = f"Means over seeds; about {total:.2f} hours of training in all."
    if table.get("seconds"):
        text += f" The study has taken {clock(table['seconds'])} of wall-clock time."
    return [Heading("Cost of an arm"), Paragraph(text), make_cost_table(table["costs"])]
