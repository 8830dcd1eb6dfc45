"""Histograms as SVG text, in the frame of the line charts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

_WIDTH, _HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 16, 16, 44, 46


def histogram(edges: Sequence[int], counts: Sequence[int], *, title: str, x: str) -> str:
    """One SVG: a bar for each `counts[i]` between `edges[i]` and `edges[i + 1]`, its share of all above it."""
    total, most = max(1, sum(counts)), max(1, *counts, 1)
    step = (_WIDTH - _LEFT - _RIGHT) / len(counts)
    bottom = _HEIGHT - _BOTTOM
    bars = []
    for place, count in enumerate(counts):
        left, height = _LEFT + place * step, (bottom - _TOP) * count / most
        span = f"{edges[place]:,} to {edges[place + 1] - 1:,}: {count:,}"
        bars.append(
            f'<rect x="{left + 1:.1f}" y="{bottom - height:.1f}" width="{max(1.0, step - 2):.1f}" height="{height:.1f}" '
            f'fill="#0072b2"><title>{span}</title></rect>'
        )
        if count:
            middle, level = left + step / 2, bottom - height - 5
            bars.append(f'<text x="{middle:.1f}" y="{level:.1f}" text-anchor="middle">{_share(count / total)}</text>')
    marks = [
        f'<text x="{_LEFT + place * step:.1f}" y="{bottom + 16}" text-anchor="middle">{_short(edge)}</text>'
        for place, edge in enumerate(edges)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" '
            f'font-family="sans-serif" font-size="11" role="img" aria-label="{escape(title)}">',
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
            f'<text x="{_LEFT}" y="20" font-size="14">{escape(title)}</text>',
            *bars,
            f'<line x1="{_LEFT}" y1="{bottom}" x2="{_WIDTH - _RIGHT}" y2="{bottom}" stroke="#333333"/>',
            *marks,
            f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 10}" text-anchor="middle">{escape(x)}</text>',
            "</svg>",
        ]
    )


def _share(share: float) -> str:
    return "&lt;0.1%" if share < 0.001 else f"{100 * share:.1f}%" if share < 0.1 else f"{100 * share:.0f}%"


def _short(value: int) -> str:
    for size, letter in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "k")):
        if value >= size:
            return f"{value // size}{letter}"
    return str(value)
