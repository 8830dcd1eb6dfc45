"""The examples that a model gets wrong with most confidence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plmctl.report.examples import join_texts, load_texts
from plmctl.report.page import Block, Heading, Paragraph, TableBlock
from plmctl.report.subject import ReportedRun, Subject
from plmctl.report.text import clip, format_percent

ORDER = 55
MOST = 10
FAR = "Scores that are furthest from the gold ones."
SURE = "Wrong answers by the probability that the model gives them."


def panel(subject: Subject) -> list[Block]:
    blocks: list[Block] = []
    for run in subject.runs:
        for split in run.predictions:
            blocks += _blocks(run, split)
    return [Heading("Most confidently wrong"), *blocks] if blocks else []


def _blocks(run: ReportedRun, split: str) -> list[Block]:
    rows = run.predictions[split]
    numbers = isinstance(rows[0].get("guess"), float)
    if rows[0].get("gold") is None or not (numbers or "probabilities" in rows[0]):
        return []
    wrong = [place for place, row in enumerate(rows) if row["gold"] != row["guess"]]
    worst = sorted(wrong, key=lambda place: -_weight(rows[place]))[:MOST]
    fields, note = load_texts(run, split)
    head = [
        "id",
        "gold",
        "guess",
        "distance" if numbers else "probability",
        *(["text"] if fields else []),
    ]
    lines = [
        [
            str(rows[place]["id"]),
            _label(rows[place], "gold"),
            _label(rows[place], "guess"),
            f"{_weight(rows[place]):.2f}" if numbers else format_percent(_weight(rows[place])),
            *([clip(join_texts(fields[place]))] if fields else []),
        ]
        for place in worst
    ]
    found = f"{FAR if numbers else SURE} {len(wrong):,} of {len(rows):,} are wrong. {note}".strip()
    return [
        Heading(f"{run.name}, {split}", 3),
        Paragraph(found),
        *([TableBlock(head, lines)] if lines else []),
    ]


def _weight(row: Mapping[str, Any]) -> float:
    if isinstance(row["guess"], float):
        return abs(row["gold"] - row["guess"])
    return float(row["probabilities"][row["guess"]])


def _label(row: Mapping[str, Any], name: str) -> str:
    return f"{row[name]:.2f}" if isinstance(row[name], float) else str(row[name])
