"""The most confident wrong predictions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plmctl.report.examples import has_class_probabilities, join_texts, load_texts
from plmctl.report.page import Block, Paragraph, TableBlock
from plmctl.report.panel import panel_of
from plmctl.report.subject import SplitPredictions
from plmctl.report.text import clip, format_percent

MOST = 10
FAR = "Scores that are furthest from the gold ones."
SURE = "Wrong answers by the probability that the model gives them."


@panel_of(SplitPredictions, order=55, title="Most confidently wrong")
def panel(found: SplitPredictions) -> list[Block]:
    """A table of the worst examples."""
    rows = found.rows
    numbers = isinstance(rows[0].get("guess"), float)
    if rows[0].get("gold") is None or not (numbers or has_class_probabilities(rows[0])):
        return []
    wrong = [index for index, row in enumerate(rows) if row["gold"] != row["guess"]]
    worst = sorted(wrong, key=lambda index: -_weight(rows[index]))[:MOST]
    fields, note = load_texts(found)
    head = ["id", "gold", "guess", "distance" if numbers else "probability"]
    lines = []
    for index in worst:
        row, weight = rows[index], _weight(rows[index])
        probability = f"{weight:.2f}" if numbers else format_percent(weight)
        text = [clip(join_texts(fields[index]))] if fields else []
        lines.append(
            [str(row["id"]), _label(row, "gold"), _label(row, "guess"), probability, *text]
        )
    about = f"{FAR if numbers else SURE} {len(wrong):,} of {len(rows):,} are wrong. {note}".strip()
    table: list[Block] = [TableBlock([*head, *(["text"] if fields else [])], lines)]
    return [Paragraph(about), *(table if lines else [])]


def _weight(row: Mapping[str, Any]) -> float:
    if isinstance(row["guess"], float):
        return abs(row["gold"] - row["guess"])
    return float(row["probabilities"][row["guess"]])


def _label(row: Mapping[str, Any], name: str) -> str:
    return f"{row[name]:.2f}" if isinstance(row[name], float) else str(row[name])
