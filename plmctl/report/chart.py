"""Line charts as SVG text, written without a plotting library."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

Curve = Sequence[tuple[float, float]]  # (x, y), x ascending

_COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
)  # Okabe and Ito: told apart by colour-blind readers
_WIDTH, _HEIGHT = 640, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 16, 34, 46


def line_chart(curves: Mapping[str, Curve], *, title: str, x: str, y: str, marks: Mapping[str, float] | None = None) -> str:
    """One SVG with a line for each curve and a dashed level for each of `marks`; points that are not finite are left out."""
    drawn = {name: [p for p in curve if math.isfinite(p[0]) and math.isfinite(p[1])] for name, curve in curves.items()}
    drawn = {name: thin(curve) for name, curve in drawn.items() if curve}
    marks = {name: level for name, level in (marks or {}).items() if math.isfinite(level)}
    xs = [px for curve in drawn.values() for px, _ in curve] or [0.0]
    ys = [py for curve in drawn.values() for _, py in curve] + list(marks.values()) or [0.0]
    x_ticks, y_ticks = ticks(min(xs), max(xs)), ticks(min(ys), max(ys))
    place = _Frame(x_ticks[0], x_ticks[-1], y_ticks[0], y_ticks[-1])
    lines = [_line(name, curve, place, number) for number, (name, curve) in enumerate(drawn.items())]
    levels = [_level(name, level, place) for name, level in marks.items()]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" '
            f'font-family="sans-serif" font-size="12" role="img" aria-label="{escape(title)}">',
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
            f'<text x="{_LEFT}" y="20" font-size="14">{escape(title)}</text>',
            *_axes(x_ticks, y_ticks, place, x, y),
            *levels,
            *lines,
            *_legend(list(drawn)),
            "</svg>",
        ]
    )


def ticks(low: float, high: float, wanted: int = 6) -> list[float]:
    """Round numbers, a constant step of 1, 2 or 5 times a power of ten apart, that enclose `low` and `high`."""
    if high - low <= 1e-12 * max(abs(low), abs(high), 1.0):
        low, high = low - 0.5, high + 0.5
    rough = (high - low) / (wanted - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def thin(curve: Curve, most: int = 600) -> list[tuple[float, float]]:
    """At most about `most` points: every k-th, the last one always kept."""
    every = max(1, math.ceil(len(curve) / most))
    kept = list(curve[::every])
    return kept if kept[-1] == curve[-1] else [*kept, curve[-1]]


class _Frame:
    """Numbers to pixels."""

    def __init__(self, x0: float, x1: float, y0: float, y1: float) -> None:
        self.x0, self.x1, self.y0, self.y1 = x0, x1, y0, y1

    def x(self, value: float) -> float:
        return round(_LEFT + (value - self.x0) / (self.x1 - self.x0) * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(self, value: float) -> float:
        return round(_HEIGHT - _BOTTOM - (value - self.y0) / (self.y1 - self.y0) * (_HEIGHT - _TOP - _BOTTOM), 1)


def _axes(x_ticks: list[float], y_ticks: list[float], place: _Frame, x: str, y: str) -> list[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    out = []
    for value in y_ticks:
        level = place.y(value)
        out.append(f'<line x1="{_LEFT}" y1="{level}" x2="{right}" y2="{level}" stroke="#dddddd"/>')
        out.append(f'<text x="{_LEFT - 6}" y="{level + 4}" text-anchor="end">{_short(value)}</text>')
    out += [f'<text x="{place.x(v)}" y="{bottom + 16}" text-anchor="middle">{_short(v)}</text>' for v in x_ticks]
    out.append(f'<line x1="{_LEFT}" y1="{bottom}" x2="{right}" y2="{bottom}" stroke="#333333"/>')
    out.append(f'<text x="{(_LEFT + right) / 2}" y="{_HEIGHT - 10}" text-anchor="middle">{escape(x)}</text>')
    middle = (_TOP + bottom) / 2
    out.append(f'<text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">{escape(y)}</text>')
    return out


def _line(name: str, curve: Curve, place: _Frame, number: int) -> str:
    colour = _COLOURS[number % len(_COLOURS)]
    if len(curve) == 1:
        return f'<circle cx="{place.x(curve[0][0])}" cy="{place.y(curve[0][1])}" r="3" fill="{colour}"/>'
    points = " ".join(f"{place.x(px)},{place.y(py)}" for px, py in curve)
    return (
        f'<polyline fill="none" stroke="{colour}" stroke-width="1.6" points="{points}"><title>{escape(name)}</title></polyline>'
    )


def _level(name: str, level: float, place: _Frame) -> str:
    at, right = place.y(level), _WIDTH - _RIGHT
    return (
        f'<line x1="{_LEFT}" y1="{at}" x2="{right}" y2="{at}" stroke="#555555" stroke-dasharray="5 4"/>'
        f'<text x="{_LEFT + 4}" y="{at - 4}" fill="#555555">{escape(name)}</text>'
    )


def _legend(names: list[str]) -> list[str]:
    out = []
    for number, name in enumerate(names):
        top = _TOP + 8 + 16 * number
        colour = _COLOURS[number % len(_COLOURS)]
        out.append(f'<rect x="{_WIDTH - _RIGHT - 14}" y="{top - 8}" width="12" height="4" fill="{colour}"/>')
        out.append(f'<text x="{_WIDTH - _RIGHT - 20}" y="{top - 2}" text-anchor="end">{escape(name)}</text>')
    return out


def _short(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * 10 or (abs(value) >= size and value % (size / 10) == 0 and size > 1e3):
            return f"{value / size:g}{letter}"
    return f"{value:g}"
