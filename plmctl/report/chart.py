"""Line charts as SVG text, written without a plotting library."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import TypeVar

from plmctl.report.style import INK, LIGHT, draw_rule, draw_text, style_series
from plmctl.report.text import SPELLED

Curve = Sequence[tuple[float, float]]  # (x, y), x ascending
Band = Sequence[tuple[float, float, float]]  # (x, lowest, highest), x ascending

Point = TypeVar("Point")

WIDTH = 560  # of all pictures: on a phone the letters are still as large as a footnote's
_HEIGHT, _LEGEND = 300, 18
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 16, 34, 46


def draw_lines(
    curves: Mapping[str, Curve],
    *,
    title: str,
    x: str,
    y: str,
    marks: Mapping[str, float] | None = None,
    bands: Mapping[str, Band] | None = None,
    guides: Mapping[str, Curve] | None = None,
) -> str:
    """One SVG with a line for each curve, a shaded area for each of `bands` (by the names of
    curves) and a dashed line for each level of `marks` and each curve of `guides`.

    Points that are not finite are left out, and of long curves as many as keep the picture small.
    """
    most = max(12, min(600, 3000 // max(1, len(curves))))
    drawn, dashed = _prepare(curves, most), _prepare(guides or {}, most)
    marks = {name: level for name, level in (marks or {}).items() if math.isfinite(level)}
    shades = {
        name: [p for p in band if all(map(math.isfinite, p))]
        for name, band in (bands or {}).items()
        if name in drawn
    }
    shades = {name: thin(band, most) for name, band in shades.items() if len(band) > 1}
    points = [point for curve in (*drawn.values(), *dashed.values()) for point in curve]
    xs = [px for px, _ in points] or [0.0]
    ys = [py for _, py in points] + list(marks.values())
    ys = ys + [py for band in shades.values() for _, *ends in band for py in ends] or [0.0]
    # there is no layer 1.2
    x_ticks = choose_ticks(min(xs), max(xs), least=1.0 if all(px == int(px) for px in xs) else 0.0)
    y_ticks = choose_ticks(min(ys), max(ys))
    frame = _Frame(x_ticks[0], x_ticks[-1], y_ticks[0], y_ticks[-1])
    lines = [
        _line(name, curve, frame, number) for number, (name, curve) in enumerate(drawn.items())
    ]
    below = [
        _shade(shades[name], frame, number) for number, name in enumerate(drawn) if name in shades
    ]
    levels = [_level(name, level, frame) for name, level in marks.items()]
    levels += [_guide(name, curve, frame) for name, curve in dashed.items()]
    legend, rows = _legend(list(drawn))
    parts = [*_axes(x_ticks, y_ticks, frame, x, y), *below, *levels, *lines, *legend]
    return draw_frame(parts, title=title, height=_HEIGHT + _LEGEND * rows)


def _prepare(curves: Mapping[str, Curve], most: int) -> dict[str, list[tuple[float, float]]]:
    """The finite points of each curve that has any, thinned."""
    finite = {
        name: [p for p in curve if math.isfinite(p[0]) and math.isfinite(p[1])]
        for name, curve in curves.items()
    }
    return {name: thin(curve, most) for name, curve in finite.items() if curve}


def draw_frame(parts: Sequence[str], *, title: str, height: float, kind: str = "") -> str:
    """The frame of a picture: background, title, content."""
    named = f' class="{kind}"' if kind else ""
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg"{named} viewBox="0 0 {WIDTH} {height:g}" '
                f'width="{WIDTH}" height="{height:g}" font-family="sans-serif" '
                f'font-size="13" fill="{INK}" role="img" aria-label="{escape(title)}">'
            ),
            f'<rect class="paper" width="{WIDTH}" height="{height:g}" fill="{LIGHT}"/>',
            f'<text x="8" y="20" font-size="15">{escape(title)}</text>',
            *parts,
            "</svg>",
        ]
    )


def choose_ticks(low: float, high: float, count: int = 6, least: float = 0.0) -> list[float]:
    """Round numbers that enclose `low` and `high`, with a constant step of 1, 2 or 5 times a power
    of ten. `least`: the smallest step.

    `least`: the smallest step.
    """
    if high - low <= 1e-12 * max(abs(low), abs(high), 1.0):
        low, high = low - 0.5, high + 0.5
    rough = (high - low) / (count - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = max(
        least, next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    )
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def thin(curve: Sequence[Point], most: int = 600) -> list[Point]:
    """At most about `most` points: every k-th and the last one."""
    every = max(1, math.ceil(len(curve) / most))
    kept = list(curve[::every])
    return kept if kept[-1] == curve[-1] else [*kept, curve[-1]]


def shorten_number(value: float) -> str:
    """A number as axis label: 20k, 1.5M, 2e+295."""
    if abs(value) >= SPELLED:
        return f"{value:g}"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * 10 or (
            abs(value) >= size and value % (size / 10) == 0 and size > 1e3
        ):
            return f"{value / size:g}{letter}"
    return f"{value:g}"


class _Frame:
    """Maps numbers to pixels."""

    def __init__(self, x0: float, x1: float, y0: float, y1: float) -> None:
        self.x0, self.x1, self.y0, self.y1 = x0, x1, y0, y1

    def x(self, value: float) -> float:
        """The pixel of a value, from the left."""
        width = WIDTH - _LEFT - _RIGHT
        return round(_LEFT + (value - self.x0) / (self.x1 - self.x0) * width, 1)

    def y(self, value: float) -> float:
        """The pixel of a value, from the top."""
        height = _HEIGHT - _TOP - _BOTTOM
        return round(_HEIGHT - _BOTTOM - (value - self.y0) / (self.y1 - self.y0) * height, 1)


def _axes(x_ticks: list[float], y_ticks: list[float], frame: _Frame, x: str, y: str) -> list[str]:
    bottom, right = _HEIGHT - _BOTTOM, WIDTH - _RIGHT
    out = []
    for value in y_ticks:
        level = frame.y(value)
        out.append(draw_rule("grid", (_LEFT, level), (right, level)))
        out.append(draw_text(_LEFT - 6, level + 4, shorten_number(value), "end"))
    out += [draw_text(frame.x(v), bottom + 16, shorten_number(v), "middle") for v in x_ticks]
    out.append(draw_rule("axis", (_LEFT, bottom), (right, bottom)))
    out.append(draw_text((_LEFT + right) / 2, _HEIGHT - 10, escape(x), "middle"))
    middle = (_TOP + bottom) / 2
    out.append(
        f'<text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14'
        f' {middle})">{escape(y)}</text>'
    )
    return out


def _line(name: str, curve: Curve, frame: _Frame, number: int) -> str:
    title = f"<title>{escape(name)}</title>"
    if len(curve) == 1:
        x, y = frame.x(curve[0][0]), frame.y(curve[0][1])
        style = style_series(number)
        return f'<circle {style} cx="{x}" cy="{y}" r="3" fill="currentColor">{title}</circle>'
    points = " ".join(f"{frame.x(px):g},{frame.y(py):g}" for px, py in curve)
    return (
        f'<polyline {style_series(number)} fill="none" stroke="currentColor" stroke-width="1.6"'
        f' points="{points}">{title}</polyline>'
    )


def _shade(band: Band, frame: _Frame, number: int) -> str:
    edge = [(px, high) for px, _, high in band] + [(px, low) for px, low, _ in reversed(band)]
    points = " ".join(f"{frame.x(px):g},{frame.y(py):g}" for px, py in edge)
    return (
        f'<polygon {style_series(number)} fill="currentColor" fill-opacity="0.18" stroke="none"'
        f' points="{points}"/>'
    )


def _level(name: str, level: float, frame: _Frame) -> str:
    at = frame.y(level)
    label = draw_text(_LEFT + 4, at - 4, escape(name))
    return draw_rule("mark", (_LEFT, at), (WIDTH - _RIGHT, at)) + label


def _guide(name: str, curve: Curve, frame: _Frame) -> str:
    ends = [(frame.x(px), frame.y(py)) for px, py in curve]
    parts = [draw_rule("mark", start, end) for start, end in pairwise(ends)]
    x, y = ends[-1]
    return "".join(parts) + draw_text(f"{x:g}", f"{y + 14:g}", escape(name), "end")


def _legend(names: Sequence[str]) -> tuple[list[str], int]:
    """Draw the names below the picture, as many on a line as fit; the number of lines."""
    out, left, row = [], 8.0, 0
    for number, name in enumerate(names):
        label = name if len(name) <= 70 else f"{name[:69]}…"
        width = 34 + 6.8 * len(label)  # of sans-serif letters of 13 pixels, on average
        if left > 8 and left + width > WIDTH - 8:
            left, row = 8.0, row + 1
        y = _HEIGHT + _LEGEND * row + 8
        out.append(
            f'<line {style_series(number)} x1="{left:g}" y1="{y - 4}" x2="{left + 20:g}"'
            f' y2="{y - 4}" stroke="currentColor" stroke-width="3"/>'
        )
        out.append(draw_text(f"{left + 24:g}", y, escape(label)))
        left += width
    return out, (row + 1 if names else 0)
