"""Line charts, levels and histograms as SVG text, written without a plotting library."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import TypeVar

from plmctl.analysis.runs import Curve, Run, average_curves, list_common_steps
from plmctl.report.style import WIDTH, draw_frame, draw_rule, draw_shape, draw_text, style_series
from plmctl.report.text import SPELLED

Band = Sequence[tuple[float, float, float]]  # (x, lowest, highest), x ascending

Point = TypeVar("Point", bound=tuple[float, ...])

_HEIGHT, _LEGEND = 300, 18
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 16, 34, 46
_EDGE, _ROW = 16, 36  # histograms and levels have no axis on the left


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
    """One SVG with a line for each curve. It has a shaded area for each of `bands` (by the names of
    curves) and a dashed line for each level of `marks` and each curve of `guides`.

    Points that are not finite are left out, and of long curves as many as keep the picture small.
    """
    most = max(12, min(600, 3000 // max(1, len(curves))))
    drawn, dashed = _prepare(curves, most), _prepare(guides or {}, most)
    marks = {name: level for name, level in (marks or {}).items() if math.isfinite(level)}
    own = {name: band for name, band in (bands or {}).items() if name in drawn}
    shades = {name: band for name, band in _prepare(own, most).items() if len(band) > 1}
    points = [point for curve in (*drawn.values(), *dashed.values()) for point in curve]
    xs = [px for px, _ in points] or [0.0]
    ys = [py for _, py in points] + list(marks.values())
    ys = ys + [py for band in shades.values() for _, *ends in band for py in ends] or [0.0]
    # there is no layer 1.2
    x_ticks = choose_ticks(min(xs), max(xs), least=1.0 if all(px == int(px) for px in xs) else 0.0)
    y_ticks = choose_ticks(min(ys), max(ys))
    frame = _Frame(x_ticks, y_ticks)
    lines = [_line(name, curve, frame, n) for n, (name, curve) in enumerate(drawn.items())]
    below = [_shade(shades[name], frame, n) for n, name in enumerate(drawn) if name in shades]
    levels = [_level(name, level, frame) for name, level in marks.items()]
    levels += [_guide(name, curve, frame) for name, curve in dashed.items()]
    legend, rows = _legend(list(drawn))
    parts = [*_axes(frame, x, y), *below, *levels, *lines, *legend]
    return draw_frame(parts, title=title, height=_HEIGHT + _LEGEND * rows)


def draw_means(
    groups: Mapping[str, Sequence[Run]],
    *,
    title: str,
    x: str,
    y: str,
    unit: Callable[[float], float] = float,
    marks: Mapping[str, float] | None = None,
    guides: Mapping[str, Curve] | None = None,
) -> str:
    """One SVG with the mean of each group of repeated runs, shaded from the lowest to the highest
    run.

    Args:
        groups: The groups by names; one whose runs were never measured at the same update has no
            line.
        title: The title of the picture.
        x: The label of the horizontal axis.
        y: The label of the vertical axis.
        unit: The unit of the drawn values.
        marks: levels with names, dashed.
        guides: curves with names, dashed.
    """
    curves: dict[str, Curve] = {}
    bands: dict[str, Band] = {}
    for name, runs in groups.items():
        if mean := average_curves(runs):
            curves[name] = [(at, unit(value)) for at, value in mean]
        if len(runs) > 1:
            points = list_common_steps(runs)
            bands[name] = [(at, unit(min(values)), unit(max(values))) for at, values in points]
    return draw_lines(curves, title=title, x=x, y=y, bands=bands, marks=marks, guides=guides)


def _prepare(curves: Mapping[str, Sequence[Point]], most: int) -> dict[str, list[Point]]:
    """The finite points of each curve that has any, thinned."""
    finite = {
        name: [point for point in curve if all(map(math.isfinite, point))]
        for name, curve in curves.items()
    }
    return {name: thin(curve, most) for name, curve in finite.items() if curve}


def choose_ticks(low: float, high: float, count: int = 6, least: float = 0.0) -> list[float]:
    """Round numbers that enclose `low` and `high`, with a constant step of 1, 2 or 5 times a power
    of ten.

    Args:
        least: The smallest step.
    """
    if high - low <= 1e-12 * max(abs(low), abs(high), 1.0):
        low, high = low - 0.5, high + 0.5
    rough = (high - low) / (count - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    steps = (factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    step = max(least, next(steps))
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


@dataclass(frozen=True)
class _Frame:
    """Maps numbers to pixels."""

    x_ticks: Sequence[float]
    y_ticks: Sequence[float]

    def x(self, value: float) -> float:
        """The pixel of a value, from the left."""
        return _map(value, self.x_ticks, _LEFT, WIDTH - _RIGHT)

    def y(self, value: float) -> float:
        """The pixel of a value, from the top."""
        share = (value - self.y_ticks[0]) / (self.y_ticks[-1] - self.y_ticks[0])
        return round(_HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM), 1)

    def spell(self, points: Sequence[tuple[float, float]]) -> str:
        """The points of a line."""
        return " ".join(f"{self.x(px):g},{self.y(py):g}" for px, py in points)


def _map(value: float, ticks: Sequence[float], left: float, right: float) -> float:
    """The pixel of a value between the first tick at `left` and the last one at `right`."""
    return round(left + (value - ticks[0]) / (ticks[-1] - ticks[0]) * (right - left), 1)


def _axes(frame: _Frame, x: str, y: str) -> list[str]:
    bottom, right = _HEIGHT - _BOTTOM, WIDTH - _RIGHT
    out = []
    for value in frame.y_ticks:
        level = frame.y(value)
        out.append(draw_rule("grid", (_LEFT, level), (right, level)))
        out.append(draw_text(_LEFT - 6, level + 4, shorten_number(value), "end"))
    for value in frame.x_ticks:
        out.append(draw_text(frame.x(value), bottom + 16, shorten_number(value), "middle"))
    out.append(draw_rule("axis", (_LEFT, bottom), (right, bottom)))
    out.append(draw_text((_LEFT + right) / 2, _HEIGHT - 10, escape(x), "middle"))
    middle = (_TOP + bottom) / 2
    turned = f"rotate(-90 14 {middle})"
    text = {"x": 14, "y": middle, "text_anchor": "middle", "transform": turned}
    return [*out, draw_shape("text", "", escape(y), **text)]


def _line(name: str, curve: Curve, frame: _Frame, number: int) -> str:
    title, style = f"<title>{escape(name)}</title>", style_series(number)
    if len(curve) == 1:
        x, y = frame.x(curve[0][0]), frame.y(curve[0][1])
        return draw_shape("circle", style, title, cx=x, cy=y, r=3, fill="currentColor")
    strokes = {"fill": "none", "stroke": "currentColor", "stroke_width": 1.6}
    return draw_shape("polyline", style, title, **strokes, points=frame.spell(curve))


def _shade(band: Band, frame: _Frame, number: int) -> str:
    edge = [(px, high) for px, _, high in band] + [(px, low) for px, low, _ in reversed(band)]
    look = {"fill": "currentColor", "fill_opacity": 0.18, "stroke": "none"}
    return draw_shape("polygon", style_series(number), **look, points=frame.spell(edge))


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
        width = 34 + 6.8 * len(label)  # the width of sans-serif letters of 13 pixels, on average
        if left > 8 and left + width > WIDTH - 8:
            left, row = 8.0, row + 1
        y = _HEIGHT + _LEGEND * row + 8
        ends = {"x1": f"{left:g}", "y1": y - 4, "x2": f"{left + 20:g}", "y2": y - 4}
        look = {"stroke": "currentColor", "stroke_width": 3}
        out.append(draw_shape("line", style_series(number), **ends, **look))
        out.append(draw_text(f"{left + 24:g}", y, escape(label)))
        left += width
    return out, (row + 1 if names else 0)


def draw_histogram(edges: Sequence[int], counts: Sequence[int], *, title: str, x: str) -> str:
    """One SVG with a bar for each `counts[i]` between `edges[i]` and `edges[i + 1]`, labelled with
    its share of all.
    """
    total, most = max(1, sum(counts)), max(1, *counts, 1)
    step = (WIDTH - 2 * _EDGE) / len(counts)
    bottom = _HEIGHT - _BOTTOM
    parts = []
    for number, count in enumerate(counts):
        left, height = _EDGE + number * step, (bottom - 44) * count / most
        span = f"{edges[number]:,} to {edges[number + 1] - 1:,}: {count:,}"
        box = {"x": f"{left + 1:.1f}", "y": f"{bottom - height:.1f}"}
        box |= {"width": f"{max(1.0, step - 2):.1f}", "height": f"{height:.1f}"}
        inner = f"<title>{span}</title>"
        parts.append(draw_shape("rect", style_series(0), inner, **box, fill="currentColor"))
        if count:
            middle, level = f"{left + step / 2:.1f}", f"{bottom - height - 5:.1f}"
            parts.append(draw_text(middle, level, _share(count / total), "middle"))
    parts.append(draw_rule("axis", (_EDGE, bottom), (WIDTH - _EDGE, bottom)))
    for number, edge in enumerate(edges):
        parts.append(draw_text(f"{_EDGE + number * step:.1f}", bottom + 16, _short(edge), "middle"))
    below = draw_text(WIDTH / 2, _HEIGHT - 10, escape(x), "middle")
    return draw_frame([*parts, below], title=title, height=_HEIGHT)


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
    """
    marks = marks or {}
    numbers = [
        n
        for level in levels
        for n in (level.value - level.spread, level.value + level.spread, *level.points)
    ]
    numbers += [*marks.values(), *([start] if start is not None else [])]
    ticks = choose_ticks(min(numbers, default=0.0), max(numbers, default=1.0))
    top = 34 + 16 * bool(marks)
    bottom = top + _ROW * len(levels)

    def locate(value: float) -> float:
        return _map(value, ticks, _EDGE, WIDTH - _EDGE)

    parts = []
    for value in ticks:
        at = locate(value)
        parts.append(draw_rule("grid", (at, top), (at, bottom)))
        parts.append(draw_text(at, bottom + 16, shorten_number(value), "middle"))
    for name, value in marks.items():
        at = locate(value)
        parts.append(draw_rule("mark", (at, top), (at, bottom)))
        parts.append(draw_text(at, top - 4, escape(name), "end" if at > WIDTH / 2 else "start"))
    begin = locate(ticks[0] if start is None else start)
    for number, level in enumerate(levels):
        parts += _draw_level(level, top + _ROW * number, locate, begin)
    parts.append(draw_text(WIDTH / 2, bottom + 36, escape(x), "middle"))
    return draw_frame(parts, title=title, height=bottom + 46)


def _draw_level(
    level: Level, top: float, locate: Callable[[float], float], begin: float
) -> list[str]:
    y, x = top + 26, locate(level.value)
    out = [draw_text(_EDGE, top + 14, f"{escape(level.name)}: {level.value:.4g}")]
    out.append(draw_rule("stem", (begin, y), (x, y)))
    if level.spread:
        low, high = locate(level.value - level.spread), locate(level.value + level.spread)
        look = {"stroke": "currentColor", "stroke_width": 2}
        out.append(draw_shape("line", style_series(0), x1=low, y1=y, x2=high, y2=y, **look))
    for point in level.points:
        dot = {"cx": locate(point), "cy": y, "r": 2.5, "fill": "currentColor"}
        out.append(draw_shape("circle", style_series(1), **dot))
    title, dot = f"<title>{escape(level.name)}</title>", {"cx": x, "cy": y, "r": 5}
    return [*out, draw_shape("circle", style_series(0), title, **dot, fill="currentColor")]


def _share(share: float) -> str:
    return "&lt;0.1%" if share < 0.001 else f"{100 * share:.{1 if share < 0.1 else 0}f}%"


def _short(value: int) -> str:
    for size, letter in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "k")):
        if value >= size:
            return f"{value // size}{letter}"
    return str(value)
