"""Charts are checked as XML and in numbers; what is no run is said."""

import itertools
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from plmctl.analysis.runs import RunLog
from plmctl.core.errors import DataError
from plmctl.report.charts import Level, choose_decades, choose_ticks, draw_levels, draw_lines, thin
from plmctl.report.style import DARK, DARK_INK, DARK_SERIES, INK, LIGHT, SERIES
from plmctl.report.text import name_files

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (2.13, 9.7), (-3, 1e6), (5, 5), (0, 0), (1e-9, 3e-9)]
)
def test_ticks_enclose_the_range_and_are_evenly_spaced(low, high):
    found = choose_ticks(low, high)
    assert found[0] <= low
    assert found[-1] >= high
    gaps = [b - a for a, b in itertools.pairwise(found)]
    assert 2 <= len(found) <= 9
    assert max(gaps) == pytest.approx(min(gaps), rel=1e-2)


def test_one_value_alone_stays_on_its_side_of_zero():
    assert choose_ticks(0.03, 0.03) == [0.01, 0.02, 0.03, 0.04, 0.05]
    assert choose_ticks(-40, -40)[-1] < 0
    assert choose_ticks(1e-20, 1e-20)[0] < 0


def test_steps_between_layers_are_whole():
    assert choose_ticks(1, 2, least=1.0) == [1, 2]
    assert choose_ticks(0, 12, least=1.0) == choose_ticks(0, 12)
    marks = ElementTree.fromstring(
        draw_lines({"a": [(1, 7), (2, 8)]}, title="t", x="layer", y="y")
    ).iter(f"{SVG}text")
    assert "1.2" not in [mark.text for mark in marks]


def test_chart_draws_each_curve_where_it_belongs():
    svg = draw_lines(
        {"a & b": [(0, 0), (5, 5), (10, 10)], "c": [(0, 10)]},
        title="<t>",
        x="x",
        y="y",
        marks={"floor": 2.0},
    )
    tree = ElementTree.fromstring(svg)
    points = [
        tuple(map(float, p.split(","))) for p in tree.find(f"{SVG}polyline").get("points").split()
    ]
    assert points[0][0] < points[1][0] < points[2][0]
    assert points[0][1] > points[1][1] > points[2][1]  # SVG counts y downwards
    assert points[1][0] == pytest.approx((points[0][0] + points[2][0]) / 2, abs=0.1)
    assert len(tree.findall(f"{SVG}circle")) == 2  # a single point is a dot, also in the legend
    assert "floor: 2" in [text.text for text in tree.iter(f"{SVG}text")]


def test_curves_with_the_same_values_are_drawn_once_and_keep_their_colours():
    same = [(1, 2.00001), (2, 3.0)]
    curves = {"none": [], "a": [(1, 2.0), (2, 3.0)], "b": same, "c": [(1, 2.0), (2, 4.0)]}
    lines = list(
        ElementTree.fromstring(draw_lines(curves, title="t", x="x", y="y")).iter(f"{SVG}polyline")
    )
    assert [line.find(f"{SVG}title").text for line in lines] == ["a = b", "c"]
    assert [line.get("class") for line in lines] == ["c1", "c3"]
    assert lines[0].get("data-values") == "1,2 2,3"
    svg = draw_lines({"a": [(0.26860152, 1), (1234567, 2)]}, title="t", x="x", y="y")
    assert 'data-values="0.268602,1 1234567,2"' in svg


def test_a_long_name_of_a_level_leaves_its_number() -> None:
    level = Level("an arm " * 20, 0.5, (0.4, 0.6))
    tree = ElementTree.fromstring(draw_levels([level], title="t", x="x"))
    (shown,) = (t.text for t in tree.iter(f"{SVG}text") if "0.5 (0.4 to 0.6)" in (t.text or ""))
    assert shown.endswith("…: 0.5 (0.4 to 0.6)")
    assert 30 < len(shown) < 50


def test_names_of_levels_stand_below_the_picture_the_highest_first():
    marks = {"first": 2.0, "second": 2.01, "third": 1.0}
    svg = draw_lines({"a": [(0, 1), (1, 9)]}, title="t", x="x axis", y="y", marks=marks)
    texts = {t.text: float(t.get("y")) for t in ElementTree.fromstring(svg).iter(f"{SVG}text")}
    named = ["second: 2.01", "first: 2", "third: 1"]
    assert [text for text in texts if ": " in text] == named
    assert min(texts[name] for name in named) >= texts["x axis"] + 13


def test_chart_fills_the_room_between_its_title_and_its_axis():
    tree = ElementTree.fromstring(draw_lines({"a": [(0, 0), (1, 8)]}, title="t", x="x", y="y"))
    rules = tree.findall(f"{SVG}line[@class='grid']")
    heights = [float(rule.get("y1")) for rule in rules]
    line = tree.find(f"{SVG}polyline").get("points").split()
    ends = [float(point.split(",")[1]) for point in line]
    assert [heights[0], heights[-1]] == ends == [206, 52]


def test_chart_leaves_out_what_is_not_finite():
    svg = draw_lines(
        {"a": [(0, 1.0), (1, math.nan), (2, math.inf), (3, 2.0)]}, title="t", x="x", y="y"
    )
    assert len(ElementTree.fromstring(svg).find(f"{SVG}polyline").get("points").split()) == 2
    assert "nan" not in svg
    ElementTree.fromstring(draw_lines({}, title="t", x="x", y="y"))


def test_thin_keeps_the_last_point():
    curve = [(float(i), float(i)) for i in range(10_001)]
    kept = thin(curve)
    assert kept[-1] == curve[-1]
    assert len(kept) <= 602


def test_many_curves_are_told_apart_and_named_below():
    svg = draw_lines({f"arm {n}": [(0, n), (1, n + 1)] for n in range(20)}, title="t", x="x", y="y")
    tree = ElementTree.fromstring(svg)
    lines = [
        (line.get("color"), line.get("stroke-dasharray")) for line in tree.findall(f"{SVG}polyline")
    ]
    assert len(set(lines)) == 20
    height = float(tree.get("viewBox").split()[3])
    names = {
        text.text: float(text.get("y"))
        for text in tree.iter(f"{SVG}text")
        if (text.text or "").startswith("arm")
    }
    assert len(names) == 20
    assert all(250 < y < height for y in names.values())


def contrast(one: str, other: str) -> float:
    """WCAG 2.2, relative luminance."""

    def luminance(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        red, green, blue = (
            c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(
    ("ground", "ink", "series"), [(LIGHT, INK, SERIES), (DARK, DARK_INK, DARK_SERIES)]
)
def test_colours_can_be_seen_on_light_and_dark(ground, ink, series):
    assert contrast(ground, ink) >= 7
    assert min(contrast(ground, colour) for colour in series) >= 3
    assert len(set(series)) == 6


def test_levels_are_drawn_where_they_belong():
    found = [Level("a & b", 2.0, [1.5, 2.5], [1.5, 2.5]), Level("c", 4.0)]
    tree = ElementTree.fromstring(draw_levels(found, title="t", x="x", marks={"base": 2.0}))
    dots = {float(dot.get("cx")) for dot in tree.findall(f"{SVG}circle") if dot.get("r") == "5"}
    points = sorted(
        float(dot.get("cx")) for dot in tree.findall(f"{SVG}circle") if dot.get("r") == "2.5"
    )
    assert len(dots) == 2
    assert sum(points) / 2 == pytest.approx(min(dots), abs=0.2)
    assert min(dots) in [
        float(line.get("x1")) for line in tree.findall(f"{SVG}line") if line.get("stroke-dasharray")
    ]
    # the dashes end where names stand, and seeds are below the mean
    path = next(each.get("d") for each in tree.findall(f"{SVG}path"))
    dashes = [tuple(map(float, each)) for each in re.findall(r"M\S+ (\S+?)V([\d.]+)", path)]
    assert len(dashes) == 2
    names = [float(text.get("y")) for text in tree.iter(f"{SVG}text") if ": " in (text.text or "")]
    assert not any(begin < name - 4 < end for begin, end in dashes for name in names)
    heights = {dot.get("r"): float(dot.get("cy")) for dot in tree.findall(f"{SVG}circle")[:3]}
    assert heights["2.5"] > heights["5"] + 2.5
    ElementTree.fromstring(draw_levels([], title="t", x="x"))


def test_an_axis_that_is_called_as_the_picture_has_no_name() -> None:
    curve = {"probe": [(0.0, 0.5), (1.0, 0.8)]}
    same = ElementTree.fromstring(draw_lines(curve, title="share", x="x", y="share"))
    assert [text.text for text in same.iter(f"{SVG}text")].count("share") == 1


def test_parts_of_file_names_are_unlike() -> None:
    found = name_files(["Loss/mlm", "loss mlm", "/"])
    assert found == {"Loss/mlm": "loss-mlm", "loss mlm": "loss-mlm-1", "/": "-2"}


def test_only_bars_that_begin_at_the_start_have_a_length() -> None:
    level = [Level("a", 6.0), Level("b", 4.5)]
    stems = [
        [
            (float(line.get("x1")), float(line.get("x2")))
            for line in ElementTree.fromstring(svg).iter(f"{SVG}line")
            if line.get("y1") == line.get("y2") and line.get("class") == "grid"
        ]
        for svg in (draw_levels(level, title="t", x="x", start=start) for start in (None, 0.0))
    ]
    assert len({end - begin for begin, end in stems[0]}) == 1
    assert [(end - begin) / 6 for begin, end in stems[1][:1]] == pytest.approx(
        [(end - begin) / 4.5 for begin, end in stems[1][1:]], rel=0.01
    )


def test_dots_are_not_joined_and_the_legend_is_not_the_title_again() -> None:
    curves = {"t": [(1, 2.0), (2, 5.0), (2, 3.0)], "best": [(1, 2.0), (2, 2.0)]}
    svg = draw_lines(curves, title="t", x="x", y="y", dots=["t"], guides={"": [(1, 4.0), (2, 4.0)]})
    tree = ElementTree.fromstring(svg)
    assert len(tree.findall(f"{SVG}polyline")) == 1
    values = [dot.get("data-values") for dot in tree.findall(f"{SVG}circle")]
    assert values == ["1,2", "2,5", "2,3"]
    legend = [text.text for text in tree.iter(f"{SVG}text") if float(text.get("y")) > 250]
    assert legend == ["best"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no metrics.jsonl"),
        ("", "no metric has been logged"),
        ("{\n", "metrics.jsonl:1: not a JSON object"),
        ("[1]\n", "not a JSON object"),
        ('{"step": "x", "loss": 3}\n', "metrics.jsonl:1: not a JSON object with a 'step'"),
        ('{"step": 1, "loss": 3', "no metric has been logged"),
    ],
)
def test_what_is_not_a_run_is_said(tmp_path: Path, content, message):
    if content is not None:
        (tmp_path / "metrics.jsonl").write_text(content)
    with pytest.raises(DataError, match=message):
        RunLog.read(tmp_path)


def test_points_that_would_crowd_at_the_left_have_a_logarithmic_axis() -> None:
    """1, 10, 100 and 1000 lie at equal distances; evenly spaced updates keep a plain axis."""
    curves = {"a": [(10.0**k, float(k)) for k in range(4)]}
    svg = draw_lines(curves, title="t", x="words", y="y", marks={"floor": 1.0})
    assert "words (logarithmic)" in svg
    (line,) = (each for each in ElementTree.fromstring(svg).iter(f"{SVG}polyline"))
    xs = [float(pair.partition(",")[0]) for pair in line.get("points", "").split()]
    steps = [after - before for before, after in itertools.pairwise(xs)]
    assert max(steps) - min(steps) < 0.3
    for even in (
        [(10 * k, 1.0) for k in range(1, 400)],
        [(0, 1.0), *curves["a"]],
        [(1, 2), (9e3, 1)],
    ):
        assert "logarithmic" not in draw_lines({"a": even}, title="t", x="words", y="y")


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (1, 1000, [1, 10, 100, 1000]),
        (3, 1200, [2, 10, 100, 2000]),
        (0.02, 7, [0.02, 0.1, 1, 10]),
        (4, 3e9, [10.0**k for k in range(11)]),
    ],
)
def test_decades_enclose_both_ends(low: float, high: float, ticks: list[float]) -> None:
    assert choose_decades(low, high) == pytest.approx(ticks)


def test_levels_and_guides_of_a_picture_have_different_dashes() -> None:
    marks, guides = {"tokens": 3.0, "pairs": 2.0}, {"elsewhere": [(0.0, 2.5), (1.0, 1.5)]}
    svg = draw_lines({"a": [(0, 1)]}, title="t", x="x", y="y", marks=marks, guides=guides)
    dashes = re.findall(r'stroke-dasharray="([^"]+)"', svg)
    assert [dashes.count(each) for each in dict.fromkeys(dashes)] == [2, 2, 2]  # with its legend
