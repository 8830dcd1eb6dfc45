"""Texts of which a model says something else once some words change (`plmctl attack`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plmctl.attack.word_text import WordText
from plmctl.report.page import Block, Heading, Paragraph, TableBlock
from plmctl.report.panel import panel_of
from plmctl.report.subject import Subject
from plmctl.report.text import clip, format_percent
from plmctl.storage.lines import read_lines

MOST = 8  # examples of a file
LONG = 300  # characters of a marked text


@panel_of(Subject, order=15, title="Under attack")
def panel(subject: Subject) -> list[Block]:
    """For each file of attacks in a run what is left of its accuracy, and some fooling texts."""
    blocks: list[Block] = []
    for run in subject.detailed:
        for file in sorted((run.folder / "attack").glob("*.jsonl")):
            blocks += [Heading(f"{run.name}, {file.stem}", 3), *_blocks(read_lines(file)[0])]
    return blocks


def _blocks(rows: Sequence[Mapping[str, Any]]) -> list[Block]:
    attacked = [row for row in rows if "attacked" in row]
    fooled = [row for row in attacked if row["result"] == "fooled"]
    about = (
        f"{len(rows):,} examples: {format_percent(len(attacked) / max(len(rows), 1))} are right,"
        f" and {format_percent((len(attacked) - len(fooled)) / max(len(rows), 1))} under attack."
        f" Words stand as ⟦before → after⟧ where they were changed."
    )
    fewest = sorted(fooled, key=lambda row: len(row["changes"]) / max(row["words"], 1))[:MOST]
    lines = [
        [
            str(row["id"]),
            str(row["gold"]),
            f"{row['after']['guess']} ({format_percent(row['after']['probability'])})",
            clip(mark(row), LONG),
        ]
        for row in fewest
    ]
    table = TableBlock(["id", "gold", "guess under attack", "text"], lines)
    return [Paragraph(about), *([table] if lines else [])]


def mark(row: Mapping[str, Any]) -> str:
    """The text, in which each changed word stands with its replacement."""
    text: str = row["text"]
    words = WordText.of(text)
    for number, before, after, *place in reversed(row["changes"]):
        start = place[0] if place else words.start(number)  # older files say the number alone
        text = f"{text[:start]}⟦{before} → {after}⟧{text[start + len(before) :]}"
    return text
