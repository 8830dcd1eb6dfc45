"""Line charts, levels and histograms as SVG text, written without a plotting library."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import cycle, pairwise
from typing import Any, TypeVar

from plmctl.analysis.runs import Curve, Run, average_curves, list_common_steps
from plmctl.report.style import (
    LETTER,
    LIGHT,
    MARKS,
    RULES,
    WIDTH,
    draw_frame,
    draw_rule,
    draw_shape,
    draw_text,
    shorten_text,
    style_series,
)
from plmctl.report.text import SPELLED

Band = Sequence[tuple[float, float, float]]  # (x, lowest, highest), x ascending

Key = TypeVar("Key")
Point = TypeVar("Point", bound=tuple[float, ...])

_HEIGHT, _ROW = 250, 36
_LEFT, _TOP, _BOTTOM = 54, 52, 44  # the edges of the lines
_NAME = 19  # the height of a name above its level
_EDGE = 16  # on the right, and of pictures without an axis on the left
_LINE = 16  # from one line of text to the next
_DECADES, _CROWD = 2, 5  # a logarithmic axis: its span at least; the end by the median at least


@dataclass(frozen=True)
class _Series:
    """A line of a picture: its names, its number among all, its points and the area around it;
    or dots, which no line joins.
    """

    name: str
    number: int
    curve: Sequence[tuple[float, float]]
    band: Band
    dots: bool


def draw_lines(
    curves: Mapping[str, Curve],
    *,
    title: str,
    x: str,
    y: str,
    marks: Mapping[str, float] | None = None,
    bands: Mapping[str, Band] | None = None,
    guides: Mapping[str, Curve] | None = None,
    among: Sequence[Curve] = (),
    dots: Collection[str] = (),
) -> str:
    """One SVG with a line for each curve, or with dots for those of `dots`; equal curves share one.
    It has a shaded area for each of `bands` (by the names of curves) and a dashed line for each
    level of `marks` and each curve of `guides`. The axes also enclose the curves of `among`, which
    are not drawn. The legend leaves out a curve with the name of the picture, and a guide named "".

    Points that are not finite are left out, and of long curves as many as keep the picture small.
    The horizontal axis is logarithmic where most points of a curve would crowd at its left end.
    """
    most = max(12, min(300, 1500 // max(1, len(curves))))
    drawn, dashed = _merge(curves, bands or {}, most, dots), _prepare(guides or {}, most)
    marks = {name: level for name, level in (marks or {}).items() if math.isfinite(level)}
    others = _prepare(dict(enumerate(among)), most).values()
    points = [point for curve in (*dashed.values(), *others) for point in curve]
    points += [point for each in drawn for point in each.curve]
    points += [(px, py) for each in drawn for px, *ends in each.band for py in ends]
    xs = [px for px, _ in points] or [0.0]
    ys = [*(py for _, py in points), *marks.values()] or [0.0]
    log = min(xs) > 0 and any(is_crowded([px for px, _ in each.curve]) for each in drawn)
    # there is no layer 1.2
    least = 1.0 if all(px == int(px) for px in xs) else 0.0
    span = min(xs), max(xs)
    x_ticks = choose_decades(*span) if log else choose_ticks(*span, least=least)
    frame = _Frame(x_ticks, choose_ticks(min(ys), max(ys)), log)
    x += " (logarithmic)" if log else ""
    levels = sorted(marks.items(), key=lambda mark: -mark[1])  # as they lie
    named = [*(f"{name}: {level:.4g}" for name, level in levels), *dashed]
    legend, rows = _legend([each for each in drawn if each.name != title], named)
    ends = (frame.x_ticks[0], frame.x_ticks[-1])
    guided = [[(end, level) for end in ends] for _, level in levels] + [*dashed.values()]
    parts = [
        *_axes(frame, x, "" if y == title else y),
        *(_shade(each, frame) for each in drawn if len(each.band) > 1),
        *(_guide(curve, frame, number) for number, curve in enumerate(guided)),
        *(shape for each in sorted(drawn, key=_is_dots) for shape in _line(each, frame)),
        *legend,
    ]
    return draw_frame(parts, title=title, height=_HEIGHT + _LINE * rows)


def draw_means(
    groups: Mapping[str, Sequence[Run]],
    *,
    title: str,
    x: str,
    y: str,
    unit: Callable[[float], float] = float,
    marks: Mapping[str, float] | None = None,
    guides: Mapping[str, Curve] | None = None,
    among: Sequence[Curve] = (),
    bands: Mapping[str, Band] | None = None,
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
        among: curves that the axes enclose, too.
        bands: the shades of groups of one run.
    """
    curves: dict[str, Curve] = {}
    bands = dict(bands or {})
    for name, runs in groups.items():
        mean = average_curves(runs)
        curves[name] = [(at, unit(value)) for at, value in mean]
        if len(runs) > 1:
            points = list_common_steps(runs)
            bands[name] = [(at, unit(min(values)), unit(max(values))) for at, values in points]
    return draw_lines(
        curves, title=title, x=x, y=y, bands=bands, marks=marks, guides=guides, among=among
    )


def _merge(
    curves: Mapping[str, Curve], bands: Mapping[str, Band], most: int, dots: Collection[str]
) -> list[_Series]:
    """The curves that have points, equal ones with their names in one."""
    shades = _prepare(bands, most)
    numbers = {name: number for number, name in enumerate(curves)}
    names: dict[Any, list[str]] = {}
    finite = _prepare(curves, most)
    for name, curve in finite.items():
        names.setdefault((_spell_values(curve), tuple(shades.get(name, ()))), []).append(name)
    return [
        _Series(" = ".join(same), numbers[same[0]], finite[same[0]], band, same[0] in dots)
        for (_, band), same in names.items()
    ]


def _spell_values(curve: Curve) -> str:
    """The values as a page shows them: curves that have the same ones are equal."""
    return " ".join(f"{px:.{10 if px == int(px) else 6}g},{py:.4g}" for px, py in curve)


def _prepare(curves: Mapping[Key, Sequence[Point]], most: int) -> dict[Key, list[Point]]:
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
        half = abs(low) / 2 if abs(low) > 1e-6 else 0.5  # a distance of 0.03 has no axis below 0
        low, high = low - half, high + half
    rough = (high - low) / (count - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    steps = (factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    step = max(least, next(steps))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def is_crowded(xs: Sequence[float]) -> bool:
    """Whether positive numbers span two decades, and half of them lie in the first fifth."""
    known = sorted(x for x in xs if x > 0)
    spans = len(known) > 2 and known[-1] >= 10**_DECADES * known[0]
    return spans and statistics.median(known) * _CROWD <= known[-1]


def choose_decades(low: float, high: float) -> list[float]:
    """Powers of ten between ends that enclose `low` and `high`: 1, 2 or 5 times such a power, of
    many decades these alone.
    """
    few = math.log10(high / low) <= 4
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ends = [round(f * 10.0**k, 12) for k in powers for f in ((1, 2, 5) if few else (1,))]
    first = max(end for end in ends if end <= low * (1 + 1e-9))
    last = min(end for end in ends if end >= high * (1 - 1e-9))
    apart = 2.5  # so that labels do not touch
    return [first, *(t for k in powers if first * apart < (t := 10.0**k) < last / apart), last]


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
    log: bool = False  # whether the horizontal axis is logarithmic

    def x(self, value: float) -> float:
        """The pixel of a value, from the left."""
        scale: Callable[[float], float] = math.log10 if self.log else float
        return _map(scale(value), [*map(scale, self.x_ticks)], _LEFT, WIDTH - _EDGE)

    def y(self, value: float) -> float:
        """The pixel of a value, from the top."""
        return _map(value, self.y_ticks, _HEIGHT - _BOTTOM, _TOP)

    def spell(self, points: Iterable[tuple[float, float]]) -> str:
        """The points of a line."""
        return " ".join(f"{self.x(px):g},{self.y(py):g}" for px, py in points)


def _map(value: float, ticks: Sequence[float], first: float, last: float) -> float:
    """The pixel of a value between the first tick at `first` and the last one at `last`."""
    return round(first + (value - ticks[0]) / (ticks[-1] - ticks[0]) * (last - first), 1)


def _axes(frame: _Frame, x: str, y: str) -> list[str]:
    bottom, right = _HEIGHT - _BOTTOM, WIDTH - _EDGE
    out = [draw_text(_EDGE / 2, _TOP - 14, escape(y))] if y else []
    for value in frame.y_ticks:
        level = frame.y(value)
        out.append(draw_rule("grid", (_LEFT, level), (right, level)))
        out.append(draw_text(_LEFT - 6, level + 4, shorten_number(value), "end"))
    for value in frame.x_ticks:
        out.append(draw_text(frame.x(value), bottom + 18, shorten_number(value), "middle"))
    out.append(draw_rule("axis", (_LEFT, bottom), (right, bottom)))
    return [*out, draw_text((_LEFT + right) / 2, _HEIGHT - 8, escape(x), "middle")]


def _is_dots(each: _Series) -> bool:
    """Whether no line joins its points; dots lie on lines."""
    return each.dots or len(each.curve) == 1


def _line(each: _Series, frame: _Frame) -> Iterator[str]:
    """A line, or dots, that know their values: a page shows them."""
    title, style = f"<title>{escape(each.name)}</title>", style_series(each.number)
    if _is_dots(each):
        for x, y in each.curve:
            dot = {"cx": frame.x(x), "cy": frame.y(y), "r": 3, "fill": "currentColor"}
            yield draw_shape("circle", style, title, data_values=_spell_values([(x, y)]), **dot)
        return
    known = {"data_values": _spell_values(each.curve), "points": frame.spell(each.curve)}
    strokes = {"fill": "none", "stroke": "currentColor", "stroke_width": 1.6}
    yield draw_shape("polyline", style, title, **strokes, **known)


def _shade(each: _Series, frame: _Frame) -> str:
    edge = [(px, high) for px, _, high in each.band]
    edge += [(px, low) for px, low, _ in reversed(each.band)]
    look = {"fill": "currentColor", "fill_opacity": 0.18, "stroke": "none"}
    return draw_shape("polygon", style_series(each.number), **look, points=frame.spell(edge))


def _rim(texts: Sequence[str]) -> list[str]:
    """Texts with a rim in the colour of the paper, readable on lines."""
    look = {"stroke": LIGHT, "stroke_width": 3, "paint_order": "stroke"}
    return [draw_shape("g", 'class="rim"', "".join(texts), **look)] if texts else []


def _guide(curve: Curve, frame: _Frame, number: int) -> str:
    ends = [(frame.x(px), frame.y(py)) for px, py in curve]
    kind = MARKS[number % len(MARKS)]
    return "".join(draw_rule(kind, start, end) for start, end in pairwise(ends))


def _legend(drawn: Sequence[_Series], dashed: Sequence[str]) -> tuple[list[str], int]:
    """Draw the names below the picture, as many on a line as fit; the number of lines."""
    out, left, row = [], 8.0, 0
    rules = [(_Series(name, -1, (), (), False), kind) for name, kind in zip(dashed, cycle(MARKS))]
    for each, kind in (*((each, "") for each in drawn), *rules):
        if kind and not each.name:
            continue
        label = shorten_text(each.name, WIDTH - 50)
        width = 36 + LETTER * len(label)
        if left > 8 and left + width > WIDTH:
            left, row = 8.0, row + 1
        y = _HEIGHT + _LINE * row + 8
        start, end = (f"{left:g}", y - 4), (f"{left + 20:g}", y - 4)
        if kind:
            out.append(draw_rule(kind, start, end))
        elif _is_dots(each):
            dot = {"cx": f"{left + 10:g}", "cy": y - 4, "r": 3, "fill": "currentColor"}
            out.append(draw_shape("circle", style_series(each.number), **dot))
        else:
            ends = {"x1": start[0], "y1": start[1], "x2": end[0], "y2": end[1]}
            look = {"stroke": "currentColor", "stroke_width": 3}
            out.append(draw_shape("line", style_series(each.number), **ends, **look))
        out.append(draw_text(f"{left + 24:g}", y, escape(label)))
        left += width
    return out, (row + 1 if out else 0)


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
    ends: Sequence[float] = ()  # an interval around it, such as a deviation to both sides
    points: Sequence[float] = ()
    series: int = 0  # the number of its colour
    text: str = ""  # its number in words; by default with the ends of the interval


def draw_levels(
    levels: Sequence[Level],
    *,
    title: str,
    x: str,
    marks: Mapping[str, float] | None = None,
    start: float | None = None,
) -> str:
    """One SVG: each level is a dot on a line below its name, with its interval, and its points as
    small dots below. `marks` are dashed vertical lines that cross no name. With `start`, the axis
    includes it and lines go from there to the dots, as bars; otherwise they go across, as their
    lengths mean nothing.
    """
    marks = marks or {}
    numbers = [n for level in levels for n in (level.value, *level.ends, *level.points)]
    numbers += [*marks.values(), *([start] if start is not None else [])]
    ticks = choose_ticks(min(numbers, default=0.0), max(numbers, default=1.0), 5)
    top = 34 + _LINE * len(marks)
    bottom = top + _ROW * len(levels)

    def locate(value: float) -> float:
        return _map(value, ticks, _EDGE, WIDTH - _EDGE)

    parts = []
    for value in ticks:
        at = locate(value)
        parts.append(draw_rule("grid", (at, top), (at, bottom)))
        parts.append(draw_text(at, bottom + 16, shorten_number(value), "middle"))
    for row, (name, value) in enumerate(marks.items()):
        at, y = locate(value), 46 + _LINE * row
        parts.append(draw_rule("mark", (at, y + 4), (at, top)))
        tops = [top + _ROW * number for number in range(len(levels))]
        path = "".join(f"M{at} {each + _NAME}V{each + _ROW}" for each in tops)
        style, strokes = RULES["mark"]
        parts.append(draw_shape("path", f'class="{style}" {strokes}', d=path))
        anchor = "end" if at > WIDTH / 2 else "start"
        parts.append(draw_text(at, y, f"{escape(name)}: {value:.4g}", anchor))
    origin = None if start is None else locate(start)
    for number, level in enumerate(levels):
        parts += _draw_level(level, top + _ROW * number, locate, origin)
    axis = escape(shorten_text(x, WIDTH))
    parts.append(draw_text(WIDTH / 2, bottom + 36, axis, "middle"))
    return draw_frame(parts, title=title, height=bottom + 46)


def _draw_level(
    level: Level, top: float, locate: Callable[[float], float], begin: float | None
) -> list[str]:
    y, x = top + 26, locate(level.value)
    between = " to ".join(f"{end:.4g}" for end in level.ends)
    number = level.text or f"{level.value:.4g}{between and f' ({between})'}"
    label, room = f"{level.name}: {number}", WIDTH - 2 * _EDGE
    shown = f"{shorten_text(level.name, room - LETTER * len(f': {number}'))}: {number}"
    out = _rim([draw_text(_EDGE, top + 14, escape(shorten_text(shown, room)))])
    across = draw_rule("grid", (_EDGE, y), (WIDTH - _EDGE, y))
    out.append(across if begin is None else draw_rule("stem", (begin, y), (x, y)))
    if level.ends:
        low, high = map(locate, level.ends)
        look = {"stroke": "currentColor", "stroke_width": 2}
        colour = style_series(level.series)
        out.append(draw_shape("line", colour, x1=low, y1=y, x2=high, y2=y, **look))
    for point in level.points:
        dot = {"cx": locate(point), "cy": y + 7, "r": 2.5, "fill": "currentColor"}
        out.append(draw_shape("circle", style_series(1), **dot))
    title, dot = f"<title>{escape(label)}</title>", {"cx": x, "cy": y, "r": 5}
    colour = style_series(level.series)
    return [*out, draw_shape("circle", colour, title, **dot, fill="currentColor")]


def _share(share: float) -> str:
    return "&lt;0.1%" if share < 0.001 else f"{100 * share:.{1 if share < 0.1 else 0}f}%"


def _short(value: int) -> str:
    for size, letter in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "k")):
        if value >= size:
            return f"{value // size}{letter}"
    return str(value)
