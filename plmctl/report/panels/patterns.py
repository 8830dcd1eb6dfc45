"""Patterns of attention: which token may see which, by layer and head where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from plmctl.core.errors import PlmctlError
from plmctl.report.grids import FAINTEST, Grid, draw_grids
from plmctl.report.page import Block, Chart, Heading, Paragraph, TableBlock
from plmctl.report.subject import ReportedRun, Subject
from plmctl.report.text import format_percent

if TYPE_CHECKING:
    from plmctl.report.patterns import Seen

ORDER = 64
READING = (
    "A line for each query and a column for each key, both from the first token of a full row to"
    " the last: a token sees the coloured ones of its line. Layers count from 1, heads from 0."
)
REDUCED = (
    " The row has {length:,} tokens, reduced to {cells} lines and columns: a pale cell is seen in"
    " part."
)
SCALE = ((0.0, "not seen"), (0.25, "a quarter"), (0.5, "half"), (1.0, "seen"))
SEGMENTS = (
    " The segment of a token says what it sees: a picture for each kind of row in which something"
    " is not seen."
)


def panel(subject: Subject) -> list[Block]:
    """Pictures and shares for each run whose attention is restricted; runs with equal ones share
    them.
    """
    found: dict[str, tuple[list[str], list[Block]]] = {}
    for number, run in enumerate(subject.runs):
        try:
            blocks = _blocks(run, number)
        except PlmctlError:  # of a run without a model the panel of layers tells
            continue
        if blocks:
            key = str([block for block in blocks if not isinstance(block, Chart)])
            found.setdefault(key, ([], blocks))[0].append(run.name)
    shown: list[Block] = []
    for names, blocks in found.values():
        shown += [Heading(", ".join(names), 3), *blocks] if len(subject.runs) > 1 else blocks
    return [Heading("Who sees whom"), *shown] if shown else []


def _blocks(run: ReportedRun, number: int) -> list[Block]:
    from plmctl.report.patterns import measure_patterns  # brings torch

    patterns, count = measure_patterns(run.loaded)
    if not patterns:
        return []
    text = READING
    cells = len(patterns[0].shares)
    if patterns[0].length > cells:
        length = patterns[0].length
        text += REDUCED.format(length=length, cells=cells)
    text += SEGMENTS if any(seen.segments for seen in patterns) else ""
    if count > len(patterns):
        text += f" The first {len(patterns)} of {count} different patterns."
    charts: list[Block] = []
    # parts of a model may have rows of other lengths
    for place, size in enumerate(dict.fromkeys(len(seen.shares) for seen in patterns)):
        own = [seen for seen in patterns if len(seen.shares) == size]
        grids = [Grid(_title(seen), _show(seen), below=_describe(seen)) for seen in own]
        svg = draw_grids(
            grids, title="Queries (down) and the keys that they see (across)", scale=SCALE
        )
        charts.append(Chart(f"pattern-{number}-{place}", svg))
    head = ["part", "layers", "heads", "tokens of the row", "pairs seen", "scores computed"]
    rows = [
        [
            seen.part or "model",
            spell(seen.layers) + (f", {_segments(seen)}" if seen.segments else ""),
            spell(seen.heads) or "all",
            f"{seen.length:,}",
            format_percent(seen.seen),
            format_percent(seen.computed),
        ]
        for seen in patterns
    ]
    return [Paragraph(text), *charts, TableBlock(head, rows)]


def _title(seen: Seen) -> str:
    words = [
        seen.part,
        f"layer{'s' * (len(seen.layers) > 1)} {spell(seen.layers)}",
        f"head{'s' * (len(seen.heads) > 1)} {spell(seen.heads)}" if seen.heads else "",
    ]
    return ", ".join(word for word in words if word)


def _show(seen: Seen) -> list[list[float]]:
    """The shares, so that a cell with a single pair is seen, too."""
    return [
        [max(FAINTEST, share) if share else 0.0 for share in line] for line in seen.shares.tolist()
    ]


def _describe(seen: Seen) -> str:
    share = f"{format_percent(seen.seen)} seen"
    return f"{_segments(seen)}: {share}" if seen.segments else share


def _segments(seen: Seen) -> str:
    if not seen.segments:
        return ""
    first, second = seen.segments
    return f"segment {first}" if first == second else f"segments {first} and {second}"


def spell(numbers: Sequence[int]) -> str:
    """`1-3, 7` for 1, 2, 3, 7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{own[0]}-{own[-1]}" if len(own) > 1 else str(own[0]) for own in runs)
