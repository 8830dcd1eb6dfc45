"""Patterns of attention: which token may see which, by layer and head where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from plmctl.analysis.patterns import BEGIN, Seen, SeenPatterns
from plmctl.report.grids import FAINTEST, Grid, draw_grids
from plmctl.report.page import Block, Chart, Folded, Paragraph, TableBlock
from plmctl.report.panel import panel_of
from plmctl.report.text import format_percent

READING = (
    "A line for each query and a column for each key, both from the first token of a full row to"
    " the last. A token sees the coloured ones of its line. Layers count from 1, heads from 0."
)
BEGINNING = "The first {tokens} tokens, larger"
REDUCED = (
    " The row has {length:,} tokens, reduced to {cells} lines and columns: a pale cell is seen in"
    " part."
)
POWER = 1 / 3  # the power of a share that is its shade: 1% is visible, too
SCALE = ((0.0, "none"), (0.01, "1% seen"), (0.1, "10%"), (0.5, "half"), (1.0, "all"))
SEGMENTS = (
    " The segment of a token says what it sees: a picture for each kind of row in which something"
    " is not seen."
)


@panel_of(SeenPatterns, order=64, title="Who sees whom")
def panel(found: SeenPatterns) -> list[Block]:
    """Pictures of the patterns, and their shares."""
    patterns, count = found.shown, found.count
    text, length, cells = READING, patterns[0].length, len(patterns[0].shares)
    text += REDUCED.format(length=length, cells=cells) if length > cells else ""
    text += SEGMENTS if any(seen.segments for seen in patterns) else ""
    if count > len(patterns):
        text += f" The first {len(patterns)} of {count} different patterns."
    charts = _draw(patterns, "pattern")
    longer = [(seen, seen.begin) for seen in patterns if seen.begin is not None]
    if longer:
        beginnings = [replace(seen, shares=begin) for seen, begin in longer]
        larger = _draw(beginnings, "pattern-begin", share=False)
        charts.append(Folded(BEGINNING.format(tokens=BEGIN), larger))
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


def _draw(patterns: Sequence[Seen], name: str, *, share: bool = True) -> list[Block]:
    """A picture of all that are of one size: parts of a model may have rows of other lengths."""
    charts: list[Block] = []
    for place, size in enumerate(dict.fromkeys(len(seen.shares) for seen in patterns)):
        grids = [
            Grid(
                _title(seen),
                _shade(seen),
                below=_describe(seen, share=share),
                values=seen.shares.tolist(),
            )
            for seen in patterns
            if len(seen.shares) == size
        ]
        scale = [(value**POWER, text) for value, text in SCALE]
        title = "Queries (down), keys (across)"
        charts.append(Chart(f"{name}-{place}", draw_grids(grids, title=title, scale=scale)))
    return charts


def _title(seen: Seen) -> str:
    words = [
        seen.part,
        f"layer{'s' * (len(seen.layers) > 1)} {spell(seen.layers)}",
        f"head{'s' * (len(seen.heads) > 1)} {spell(seen.heads)}" if seen.heads else "",
    ]
    return ", ".join(word for word in words if word)


def _shade(seen: Seen) -> list[list[float]]:
    """How dark the cells are, so that one with a single pair is seen, too."""
    return [
        [max(FAINTEST, share**POWER) if share else 0.0 for share in line]
        for line in seen.shares.tolist()
    ]


def _describe(seen: Seen, *, share: bool) -> str:
    words = [_segments(seen), f"{format_percent(seen.seen)} seen" if share else ""]
    return ": ".join(word for word in words if word)


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
