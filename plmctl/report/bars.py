"""Histograms, and levels with their spread, as SVG text in the frame of the line charts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from plmctl.report.chart import WIDTH, choose_ticks, draw_frame, shorten_number
from plmctl.report.style import draw_rule, draw_text, style_series

_HEIGHT = 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 16, 16, 44, 46
_ROW = 36


def draw_histogram(edges: Sequence[int], counts: Sequence[int], *, title: str, x: str) -> str:
    """One SVG with a bar for each `counts[i]` between `edges[i]` and `edges[i + 1]`, labelled with
    its share of all.
    """
    total, most = max(1, sum(counts)), max(1, *counts, 1)
    step = (WIDTH - _LEFT - _RIGHT) / len(counts)
    bottom = _HEIGHT - _BOTTOM
    bars = []
    for number, count in enumerate(counts):
        left, height = _LEFT + number * step, (bottom - _TOP) * count / most
        span = f"{edges[number]:,} to {edges[number + 1] - 1:,}: {count:,}"
        bars.append(
            f'<rect {style_series(0)} x="{left + 1:.1f}" y="{bottom - height:.1f}"'
            f' width="{max(1.0, step - 2):.1f}" height="{height:.1f}"'
            f' fill="currentColor"><title>{span}</title></rect>'
        )
        if count:
            middle, level = f"{left + step / 2:.1f}", f"{bottom - height - 5:.1f}"
            bars.append(draw_text(middle, level, _share(count / total), "middle"))
    marks = [
        draw_text(f"{_LEFT + number * step:.1f}", bottom + 16, _short(edge), "middle")
        for number, edge in enumerate(edges)
    ]
    axis = draw_rule("axis", (_LEFT, bottom), (WIDTH - _RIGHT, bottom))
    below = draw_text(WIDTH / 2, _HEIGHT - 10, escape(x), "middle")
    return draw_frame([*bars, axis, *marks, below], title=title, height=_HEIGHT)


@dataclass(frozen=True)
class Level:
    """One number with its name and the values that it summarises."""

    name: str
    value: float
    spread: float = 0.0  # a standard deviation, to both sides
    points: Sequence[float] = ()


def draw_levels(
    levels: Sequence[Level],
    *,
    title: str,
    x: str,
    marks: Mapping[str, float] | None = None,
    start: float | None = None,
) -> str:
    """One SVG: each level is a dot on a line below its name, with the spread around it and its
    points as small dots. `marks` are dashed vertical lines; with `start`, the axis includes it and
    lines begin there.

    `marks` are upright dashed lines; `start`, where given, is on the axis too, and lines begin
    there.
    """
    marks = marks or {}
    numbers = [
        n
        for level in levels
        for n in (level.value - level.spread, level.value + level.spread, *level.points)
    ]
    numbers += [*marks.values(), *([start] if start is not None else [])]
    at = choose_ticks(min(numbers, default=0.0), max(numbers, default=1.0))
    top, bottom = 34 + 16 * bool(marks), 34 + 16 * bool(marks) + _ROW * len(levels)

    def locate(value: float) -> float:
        return round(_LEFT + (value - at[0]) / (at[-1] - at[0]) * (WIDTH - _LEFT - _RIGHT), 1)

    parts = []
    for value in at:
        x1 = locate(value)
        parts.append(draw_rule("grid", (x1, top), (x1, bottom)))
        parts.append(draw_text(x1, bottom + 16, shorten_number(value), "middle"))
    for name, value in marks.items():
        x1 = locate(value)
        parts.append(draw_rule("mark", (x1, top), (x1, bottom)))
        parts.append(draw_text(x1, top - 4, escape(name), "end" if x1 > WIDTH / 2 else "start"))
    begin = locate(at[0] if start is None else start)
    for number, level in enumerate(levels):
        parts += _draw_level(level, top + _ROW * number, locate, begin)
    parts.append(draw_text(WIDTH / 2, bottom + 36, escape(x), "middle"))
    return draw_frame(parts, title=title, height=bottom + 46)


def _draw_level(
    level: Level, top: float, locate: Callable[[float], float], begin: float
) -> list[str]:
    y, x = top + 26, locate(level.value)
    out = [draw_text(_LEFT, top + 14, f"{escape(level.name)}: {level.value:.4g}")]
    out.append(draw_rule("stem", (begin, y), (x, y)))
    if level.spread:
        low, high = locate(level.value - level.spread), locate(level.value + level.spread)
        out.append(
            f'<line {style_series(0)} x1="{low}" y1="{y}" x2="{high}" y2="{y}"'
            ' stroke="currentColor" stroke-width="2"/>'
        )
    out += [
        f'<circle {style_series(1)} cx="{locate(point)}" cy="{y}" r="2.5" fill="currentColor"/>'
        for point in level.points
    ]
    out.append(
        f'<circle {style_series(0)} cx="{x}" cy="{y}" r="5"'
        f' fill="currentColor"><title>{escape(level.name)}</title></circle>'
    )
    return out


def _share(share: float) -> str:
    return "&lt;0.1%" if share < 0.001 else f"{100 * share:.{1 if share < 0.1 else 0}f}%"


def _short(value: int) -> str:
    for size, letter in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "k")):
        if value >= size:
            return f"{value // size}{letter}"
    return str(value)
