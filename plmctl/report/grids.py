"""Heat maps, coloured tokens and lines between tokens as SVG text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape, unescape
from itertools import groupby
from textwrap import wrap

from plmctl.report.style import (
    LETTER,
    SERIES,
    WIDTH,
    draw_frame,
    draw_shape,
    draw_text,
    style_series,
)

_LEVELS = 16  # shades of a colour
FAINTEST = 2 / _LEVELS  # the least value that is seen for certain
_EDGE, _TOP, _GAP = 8, 34, 12
_MOST = 12  # the side of a square cell
_NAME = 58  # for the names of lines
_VALUES = 4096  # cells whose values are in the page


@dataclass(frozen=True)
class Grid:
    """A heat map: each of `cells[line][column]` is from -1 to 1, the darker the farther from 0."""

    title: str
    cells: Sequence[Sequence[float]]
    below: str = ""  # a text below it
    lines: Sequence[str] = ()  # the name of each line
    ends: tuple[str, str] = ("", "")  # labels below the first and the last column
    values: Sequence[Sequence[float]] = ()  # numbers for the pointer and the keys


def draw_grids(grids: Sequence[Grid], *, title: str, scale: Sequence[tuple[float, str]]) -> str:
    """One SVG with all of `grids`, which have equally many cells, and the colours of `scale`, each
    with its name. Two or three stand side by side, where their lines have no names.
    """
    named = bool(grids[0].lines)
    longest = max(len(text) for grid in grids for text in (grid.title, grid.below))
    few = len(grids) in (1, 2, 4) or longest * LETTER > WIDTH / 3 - _GAP
    beside = 1 if named else min(len(grids), 2 if few else 3)
    room = WIDTH - 2 * _EDGE - _NAME * named - (beside - 1) * _GAP
    columns = max(len(line) for grid in grids for line in grid.cells)
    wide = max(1, min(room // beside // columns, WIDTH if named else _MOST))
    high = 14 if named else wide
    step_x = room // beside + _GAP
    step_y = 22 + high * len(grids[0].cells) + 18 * any(any(grid.ends) for grid in grids)
    step_y += 18 * any(grid.below for grid in grids) + _GAP
    parts: list[str] = []
    for number, grid in enumerate(grids):
        left = _EDGE + _NAME * named + number % beside * step_x
        top = _TOP + 22 + number // beside * step_y
        parts += _draw_grid(grid, left, top, wide, high)
    bottom = _TOP + step_y * -(-len(grids) // beside)
    return draw_frame([*parts, *_draw_scale(scale, bottom)], title=title, height=bottom + 30)


def _draw_grid(grid: Grid, left: int, top: int, wide: int, high: int) -> Iterator[str]:
    width, height = wide * len(grid.cells[0]), high * len(grid.cells)
    yield draw_text(left, top - 6, escape(grid.title))
    box = {"x": left - 0.5, "y": top - 0.5, "width": width + 1, "height": height + 1}
    yield draw_shape(
        "rect", 'class="grid"', **box, **_spell_values(grid), fill="none", stroke="#dddddd"
    )
    paths: dict[int, list[str]] = defaultdict(list)
    for number, line in enumerate(grid.cells):
        column = 0
        for shade, same in groupby(map(_shade, line)):
            size = len(list(same))
            x, y = left + wide * column, top + high * number
            paths[shade].append(f"M{x} {y}h{wide * size}v{high}h{-wide * size}z")
            column += size
    for shade in sorted(paths.keys() - {0}):
        look = {"fill": "currentColor", "shape_rendering": "crispEdges"}
        look |= {"fill_opacity": f"{abs(shade) / _LEVELS:.3g}", "d": "".join(paths[shade])}
        yield draw_shape("path", style_series(int(shade < 0)), **look)
    for number, name in enumerate(grid.lines):
        yield draw_text(left - 6, top + high * number + 11, escape(name), "end")
    below = top + height + 15
    if any(grid.ends):
        yield draw_text(left, below, escape(grid.ends[0]))
        yield draw_text(left + width, below, escape(grid.ends[1]), "end")
        below += 18
    if grid.below:
        yield draw_text(left, below, escape(grid.below))


def _spell_values(grid: Grid) -> dict[str, str]:
    """The values of the cells for the script of the page; none of a map with very many."""
    if sum(map(len, grid.values)) > _VALUES or not grid.values:
        return {}
    lines = [" ".join(f"{value:z.2f}" for value in line) for line in grid.values]
    return {"data_cells": ";".join(lines), "data_lines": escape("|".join(grid.lines))}


def _shade(value: float) -> int:
    return round(max(-1.0, min(1.0, value)) * _LEVELS)


def _draw_scale(scale: Sequence[tuple[float, str]], top: int) -> Iterator[str]:
    left = float(_EDGE)
    for value, name in scale:
        look = {"fill": "currentColor", "fill_opacity": f"{abs(_shade(value)) / _LEVELS:.3g}"}
        look |= {"stroke": "currentColor", "stroke_width": "0.5"}
        box = {"x": f"{left:g}", "y": top, "width": 20, "height": 12}
        yield draw_shape("rect", style_series(int(value < 0)), **box, **look)
        yield draw_text(f"{left + 25:g}", top + 11, escape(name))
        left += 25 + LETTER * len(name) + 16


@dataclass(frozen=True)
class TokenRow:
    """The tokens of a row with a number for each, and how dark it is, 0 to 1.

    Args:
        title: The text above it.
        numbers: The text below each token.
        shades: The shades of their boxes.
        notes: The text at the pointer and by the keys for each token, "" for none.
    """

    title: str
    tokens: Sequence[str]
    numbers: Sequence[str]
    shades: Sequence[float]
    notes: Sequence[str] = ()


def draw_rows(rows: Sequence[TokenRow], *, title: str, below: str, scale: tuple[str, str]) -> str:
    """One SVG with the tokens of each row as in a text, in coloured boxes with their numbers.

    Args:
        below: The meaning of the text below each token.
        scale: The meanings of a light box and of a dark one.
    """
    parts, top = [], _TOP
    for row in rows:
        parts.append(draw_text(_EDGE, top + 14, escape(row.title)))
        top, left = top + 20, float(_EDGE)
        notes = row.notes or [""] * len(row.tokens)
        for token, text, shade, note in zip(
            row.tokens, row.numbers, row.shades, notes, strict=True
        ):
            label, number = show_token(token), show_token(text)
            width = max(LETTER * max(len(unescape(label)), len(unescape(number))) + 6, 20)
            if left > _EDGE and left + width > WIDTH - _EDGE:
                left, top = float(_EDGE), top + 38
            middle = f"{left + width / 2:.1f}"
            box = {"x": f"{left:.1f}", "y": top, "width": f"{width - 2:.1f}", "height": 34, "rx": 3}
            look = {"fill": "currentColor", "fill_opacity": f"{_darken(shade):.2f}"}
            said = f"<title>{escape(note)}</title>" if note else ""
            parts.append(draw_shape("rect", style_series(0), said, **box, **look))
            parts.append(_draw_small(middle, top + 14, label, 12))
            parts.append(_draw_small(middle, top + 29, number))
            left += width
        top += 38 + _GAP
    parts += _draw_scale(
        [(_darken(shade), name) for shade, name in zip((0.0, 1.0), scale, strict=True)], top
    )
    for line in wrap(f"Below each token: {below}", int((WIDTH - 2 * _EDGE) / LETTER)):
        top += 17
        parts.append(draw_text(_EDGE, top + 17, escape(line)))
    return draw_frame(parts, title=title, height=top + 17 + _GAP)


def _darken(shade: float) -> float:
    """The opacity of a box that letters stand in."""
    return 0.06 + 0.44 * shade


@dataclass(frozen=True)
class Column:
    """A number for each token."""

    group: str  # the heading of neighbouring columns
    title: str
    numbers: Sequence[int]


def count_blocks(columns: int) -> int:
    """The number of blocks of so many columns, each with its tokens, that fit side by side."""
    return max(1, (WIDTH - 2 * _EDGE + _GAP) // (_COLUMN_NAME + _CELL * columns + _GAP))


_COLUMN_NAME, _CELL, _LINE = 96, 26, 17


def draw_columns(tokens: Sequence[str], columns: Sequence[Column], *, title: str) -> str:
    """One SVG with a line for each token and its number in each column. Within a column, numbers
    that occur more than once have a colour.
    """
    blocks = count_blocks(len(columns))
    lines = -(-len(tokens) // blocks)
    width = _COLUMN_NAME + _CELL * len(columns) + _GAP
    top = _TOP + 34
    colours = [_colour(column.numbers) for column in columns]
    parts: list[str] = []
    for block in range(blocks):
        left = _EDGE + width * block + _COLUMN_NAME
        parts += _draw_heads(columns, left)
        for number in range(lines * block, min(len(tokens), lines * (block + 1))):
            y = top + _LINE * (number - lines * block)
            parts.append(draw_text(left - 6, y + 13, show_token(tokens[number], 11), "end"))
            for place, column in enumerate(columns):
                x, value = left + _CELL * place, column.numbers[number]
                if value in colours[place]:
                    colour, opacity = colours[place][value]
                    box = {"x": x, "y": y, "width": _CELL - 2, "height": _LINE - 1}
                    look = {"fill": "currentColor", "fill_opacity": opacity}
                    parts.append(draw_shape("rect", style_series(colour), **box, **look))
                parts.append(_draw_small(x + 12, y + 12, str(value)))
    return draw_frame(parts, title=title, height=top + _LINE * lines + _GAP)


def _draw_heads(columns: Sequence[Column], left: int) -> Iterator[str]:
    place = 0
    for group, same in groupby(columns, key=lambda column: column.group):
        own = list(same)
        middle = left + _CELL * (place + len(own) / 2) - 1
        yield draw_text(f"{middle:g}", _TOP + 13, escape(group), "middle")
        for number, column in enumerate(own, place):
            yield _draw_small(left + _CELL * number + 12, _TOP + 29, column.title)
        place += len(own)


def _draw_small(x: object, y: object, text: str, size: int = 11) -> str:
    return f'<g font-size="{size}">{draw_text(x, y, text, "middle")}</g>'


def _colour(numbers: Sequence[int]) -> dict[int, tuple[int, float]]:
    """(number of the colour, opacity) of each number that occurs more than once, in their order."""
    shared = [number for number in dict.fromkeys(numbers) if list(numbers).count(number) > 1]
    return {
        number: (place % len(SERIES), (0.4, 0.2)[place // len(SERIES) % 2])
        for place, number in enumerate(shared)
    }


FAINT = 0.03  # a weight below this has no line, unless it is among the strongest of its token
_STRONGEST = 2
_LINK, _START, _END = 17, 130, 250  # the height of a token, the ends of lines


def draw_links(tokens: Sequence[str], weights: Sequence[Sequence[float]], *, title: str) -> str:
    """One SVG with a line from each token (left) to each token that it attends to (right); the
    weight is the opacity (after Vig, 2019, arXiv:1906.05714, its head view).
    """
    parts = []
    tops = [_TOP + 2 + _LINK * number for number in range(len(tokens))]
    for token, top, row in zip(tokens, tops, weights, strict=True):
        strongest = sorted(range(len(row)), key=row.__getitem__, reverse=True)[:_STRONGEST]
        lines = [
            f'<line x1="{_START}" y1="{top + 6}" x2="{_END}" y2="{tops[key] + 6}"'
            f' stroke-opacity="{weight:.2f}"/>'
            for key, weight in enumerate(row)
            if weight >= FAINT or key in strongest
        ]
        name = draw_text(_START - 6, top + 10, escape(token), "end")
        seen = ", ".join(f"{tokens[key]} {row[key]:.2f}" for key in strongest)
        name += f"<title>{escape(token)}: {escape(seen)}</title>"
        colour = f'class="from c0" color="{SERIES[0]}" stroke-width="2"'
        parts.append(f'<g {colour}>{name}<g stroke="currentColor">{"".join(lines)}</g></g>')
    for token, top in zip(tokens, tops, strict=True):
        parts.append(draw_text(_END + 6, top + 10, escape(token)))
    return draw_frame(parts, title=title, height=_TOP + _LINK * len(tokens) + 12, kind="pairs")


def show_token(token: str, most: int = 14) -> str:
    """A token as text of a picture: spaces are seen, and long ones cut."""
    seen = token.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥")
    return escape(seen if len(seen) <= most else f"{seen[: most - 1]}…")
