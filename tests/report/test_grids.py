"""Heat maps and coloured tokens: what is drawn are the numbers that were given."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from plmctl.report.grids import (
    FAINTEST,
    Column,
    Grid,
    TokenRow,
    draw_columns,
    draw_grids,
    draw_rows,
)
from plmctl.report.style import LETTER, SERIES, WIDTH

SVG = "{http://www.w3.org/2000/svg}"
PIECE = re.compile(r"M(\d+) (\d+)h(\d+)v(\d+)h-(\d+)z")


def read_cells(svg: str) -> dict[tuple[int, int], float]:
    """{(x, y) of each coloured cell: its shade, negative in the second colour}."""
    found = {}
    for path in ElementTree.fromstring(svg).iter(f"{SVG}path"):
        sign = -1 if path.get("class") == "c1" else 1
        pieces = PIECE.findall(path.get("d") or "")
        assert "".join(f"M{x} {y}h{w}v{h}h-{w}z" for x, y, w, h, _ in pieces) == path.get("d")
        for x, y, wide, high, _ in pieces:
            for column in range(int(wide) // int(high)):
                place = (int(x) + column * int(high), int(y))
                assert place not in found  # no cell is drawn twice
                found[place] = sign * float(path.get("fill-opacity") or 0)
    return found


def test_cells_of_a_heat_map_are_where_and_as_dark_as_they_should() -> None:
    values = [[1.0, 1.0, -0.5], [0.0, 0.25, 0.01], [0.0, FAINTEST, -1.0]]
    other = [[0.0] * 3, [1.0] * 3, [0.0] * 3]
    own = [[3.0, 2.5], [-1.25, 0.0], [0.0, 1.0]]
    grids = [
        Grid("<a>", values, values=own),
        Grid("b", other, below="c", ends=("first", "last"), values=[[1.0] * 70] * 60),
    ]
    svg = draw_grids(grids, title="t", scale=[(1.0, "one")])
    found = read_cells(svg)
    xs, ys = sorted({x for x, _ in found}), sorted({y for _, y in found})
    assert len(xs) == 6
    drawn = [[[found.get((x, y), 0.0) for x in xs[:3]] for y in ys]]
    drawn += [[[found.get((x, y), 0.0) for x in xs[3:]] for y in ys]]
    values[1][2] = 0.0
    assert drawn[0] == [pytest.approx(line, abs=1e-3) for line in values]
    assert drawn[1] == other
    assert max(xs) < WIDTH
    known = [box.get("data-cells") for box in ElementTree.fromstring(svg).iter(f"{SVG}rect")]
    # 4,200 values are too many for a page
    assert [each for each in known if each] == ["3.00 2.50;-1.25 0.00;0.00 1.00"]
    texts = [text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    assert texts == ["t", "<a>", "b", "first", "last", "c", "one"]


@pytest.mark.parametrize(("grids", "cells"), [(1, 4), (1, 64), (2, 64), (3, 32), (6, 20)])
def test_maps_without_names_are_square_and_inside_the_picture(grids: int, cells: int) -> None:
    maps = [Grid("a", [[1.0] * cells] * cells)] * grids
    tree = ElementTree.fromstring(draw_grids(maps, title="t", scale=[]))
    boxes = [rect for rect in tree.iter(f"{SVG}rect") if rect.get("class") == "grid"]
    assert len(boxes) == grids
    for box in boxes:
        assert box.get("width") == box.get("height")
        assert float(box.get("x") or 0) + float(box.get("width") or 0) <= WIDTH


def test_tokens_with_numbers_are_in_order_and_inside_the_picture() -> None:
    tokens = [f"token{number}<" for number in range(40)]
    row = TokenRow(
        "r", tokens, [str(number) for number in range(40)], [number / 40 for number in range(40)]
    )
    tree = ElementTree.fromstring(
        draw_rows([row, row], title="t", below="its <number>", scale=("few", "all"))
    )
    said = [text.text for text in tree.iter(f"{SVG}text")]
    assert said[-3:] == ["few", "all", "Below each token: its <number>"]
    texts = [text.text for group in tree.iter(f"{SVG}g") for text in group.iter(f"{SVG}text")]
    assert texts[:80:2] == tokens
    assert texts[1:80:2] == list(row.numbers)
    boxes = [rect for rect in tree.iter(f"{SVG}rect") if rect.get("rx")]
    assert len(boxes) == 80
    for box in boxes:
        assert float(box.get("x") or 0) + float(box.get("width") or 0) <= WIDTH
        assert float(box.get("y") or 0) + 34 <= float(tree.get("height") or 0)
    shades = [float(box.get("fill-opacity") or 0) for box in boxes[:40]]
    assert shades == sorted(shades)


def test_numbers_that_occur_twice_in_a_column_share_a_colour() -> None:
    columns = [Column("a", "r1", [3, 5, 3, 7, 5]), Column("a", "r2", [3, 4, 5, 6, 7])]
    tree = ElementTree.fromstring(draw_columns(list("vwxyz"), columns, title="t"))
    cells = [rect for rect in tree.iter(f"{SVG}rect") if rect.get("fill-opacity")]
    assert [cell.get("color") for cell in cells] == [SERIES[0], SERIES[1], SERIES[0], SERIES[1]]
    texts = [text.text for text in tree.iter(f"{SVG}text")]
    for token, first, second in zip("vwxyz", columns[0].numbers, columns[1].numbers, strict=True):
        place = texts.index(token)
        assert texts[place + 1 : place + 3] == [str(first), str(second)]


def test_a_long_legend_has_lines_within_the_picture() -> None:
    row = TokenRow("Row", ["a"], ["b"], [1.0])
    below = "in the target, the likeliest token, where it is another one"
    drawn = draw_rows([row], title="t", below=below, scale=("few", "all"))
    said = re.findall(r"<text[^>]*>([^<]*)</text>", drawn)
    lines = said[said.index("all") + 1 :]
    assert " ".join(lines) == f"Below each token: {below}"
    assert max(map(len, lines)) * LETTER < WIDTH
