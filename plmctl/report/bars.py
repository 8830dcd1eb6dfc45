"""Histograms, and levels with their spread, as SVG text in the frame of the line charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from plmctl.report.chart import WIDTH, choose_ticks, draw_frame, shorten_number
from plmctl.report.style import style_series

_HEIGHT = 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 16, 16, 44, 46
_ROW = 36


def draw_histogram(edges: Sequence[int], counts: Sequence[int], *, title: str, x: str) -> str:
    """One SVG: a bar for each `counts[i]` between `edges[i]` and `edges[i + 1]`, its share of
    all above it.
    """
    total, most = max(1, sum(counts)), max(1, *counts, 1)
    step = (WIDTH - _LEFT - _RIGHT) / len(counts)
    bottom = _HEIGHT - _BOTTOM
    bars = []
    for place, count in enumerate(counts):
        left, height = _LEFT + place * step, (bottom - _TOP) * count / most
        span = f"{edges[place]:,} to {edges[place + 1] - 1:,}: {count:,}"
        bars.append(
            f'<rect {style_series(0)} x="{left + 1:.1f}" y="{bottom - height:.1f}"'
            f' width="{max(1.0, step - 2):.1f}" height="{height:.1f}"'
            f' fill="currentColor"><title>{span}</title></rect>'
        )
        if count:
            middle, level = left + step / 2, bottom - height - 5
            bars.append(
                f'<text x="{middle:.1f}" y="{level:.1f}"'
                f' text-anchor="middle">{_share(count / total)}</text>'
            )
    marks = [
        f'<text x="{_LEFT + place * step:.1f}" y="{bottom + 16}"'
        f' text-anchor="middle">{_short(edge)}</text>'
        for place, edge in enumerate(edges)
    ]
    axis = (
        f'<line class="axis" x1="{_LEFT}" y1="{bottom}" x2="{WIDTH - _RIGHT}" y2="{bottom}"'
        ' stroke="#333333"/>'
    )
    below = f'<text x="{WIDTH / 2}" y="{_HEIGHT - 10}" text-anchor="middle">{escape(x)}</text>'
    return draw_frame([*bars, axis, *marks, below], title=title, height=_HEIGHT)


@dataclass(frozen=True)
class Level:
    """One number under its name, with what it came from."""

    name: str
    value: float
    spread: float = 0.0  # a standard deviation, to both sides
    points: Sequence[float] = ()


def draw_levels(
    found: Sequence[Level],
    *,
    title: str,
    x: str,
    marks: Mapping[str, float] | None = None,
    start: float | None = None,
) -> str:
    """One SVG: for each level a dot on a line of its own below its name, the spread around it, its
    points as small dots.

    `marks` are upright dashed lines; `start`, where given, is on the axis too, and lines begin
    there.
    """
    marks = marks or {}
    numbers = [
        n
        for each in found
        for n in (each.value - each.spread, each.value + each.spread, *each.points)
    ]
    numbers += [*marks.values(), *([start] if start is not None else [])]
    at = choose_ticks(min(numbers, default=0.0), max(numbers, default=1.0))
    top, bottom = 34 + 16 * bool(marks), 34 + 16 * bool(marks) + _ROW * len(found)

    def place(value: float) -> float:
        return round(_LEFT + (value - at[0]) / (at[-1] - at[0]) * (WIDTH - _LEFT - _RIGHT), 1)

    parts = []
    for value in at:
        parts.append(
            f'<line class="grid" x1="{place(value)}" y1="{top}" x2="{place(value)}" y2="{bottom}"'
            ' stroke="#dddddd"/>'
        )
        parts.append(
            f'<text x="{place(value)}" y="{bottom + 16}" text-anchor="middle">'
            f"{shorten_number(value)}</text>"
        )
    for name, value in marks.items():
        x1 = place(value)
        parts.append(
            f'<line class="axis" x1="{x1}" y1="{top}" x2="{x1}" y2="{bottom}" stroke="#555555"'
            ' stroke-dasharray="5 4"/>'
        )
        side = "end" if x1 > WIDTH / 2 else "start"
        parts.append(f'<text x="{x1}" y="{top - 4}" text-anchor="{side}">{escape(name)}</text>')
    begin = place(at[0] if start is None else start)
    for number, each in enumerate(found):
        parts += _level(each, top + _ROW * number, place, begin)
    parts.append(f'<text x="{WIDTH / 2}" y="{bottom + 36}" text-anchor="middle">{escape(x)}</text>')
    return draw_frame(parts, title=title, height=bottom + 46)


def _level(each: Level, top: float, place: object, begin: float) -> list[str]:
    assert callable(place)
    y, x = top + 26, place(each.value)
    out = [f'<text x="{_LEFT}" y="{top + 14}">{escape(each.name)}: {each.value:.4g}</text>']
    out.append(
        f'<line class="grid" x1="{begin}" y1="{y}" x2="{x}" y2="{y}" stroke="#dddddd"'
        ' stroke-width="4"/>'
    )
    if each.spread:
        low, high = place(each.value - each.spread), place(each.value + each.spread)
        out.append(
            f'<line {style_series(0)} x1="{low}" y1="{y}" x2="{high}" y2="{y}"'
            ' stroke="currentColor" stroke-width="2"/>'
        )
    out += [
        f'<circle {style_series(1)} cx="{place(point)}" cy="{y}" r="2.5" fill="currentColor"/>'
        for point in each.points
    ]
    out.append(
        f'<circle {style_series(0)} cx="{x}" cy="{y}" r="5"'
        f' fill="currentColor"><title>{escape(each.name)}</title></circle>'
    )
    return out


def _share(share: float) -> str:
    return (
        "&lt;0.1%"
        if share < 0.001
        else f"{100 * share:.1f}%"
        if share < 0.1
        else f"{100 * share:.0f}%"
    )


def _short(value: int) -> str:
    for size, letter in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "k")):
        if value >= size:
            return f"{value // size}{letter}"
    return str(value)
