"""Charts are checked as XML and in numbers, pages by what a reader must find in them."""

import itertools
import json
import math
from pathlib import Path
from xml.etree import ElementTree

import pytest

from plmctl.errors import DataError
from plmctl.report.chart import line_chart, thin, ticks
from plmctl.report.page import Code, Heading, Table, html, markdown
from plmctl.report.runs import RunLog, write_report

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "a run"
    folder.mkdir()
    records = [{"step": s, "loss/mlm": 8.0 / (1 + s), "lr": 1e-3} for s in range(10)]
    records.append({"step": 9, "valid/loss/mlm": 0.91, "valid/acc/mlm": 0.25, "note": "text is not a metric", "final": True})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    (folder / "config.yaml").write_text(
        "optim: {_target_: plmctl.training.optim.AdamW, lr: 0.001}\n"
        "objective: {mlm: {_target_: plmctl.objectives.mlm.MLM}}\nseed: 3\n"
    )
    return folder


@pytest.mark.parametrize(("low", "high"), [(0, 1), (2.13, 9.7), (-3, 1e6), (5, 5), (0, 0), (1e-9, 3e-9)])
def test_ticks_enclose_the_range_and_are_evenly_spaced(low, high):
    found = ticks(low, high)
    assert found[0] <= low
    assert found[-1] >= high
    gaps = [b - a for a, b in itertools.pairwise(found)]
    assert 2 <= len(found) <= 9
    assert max(gaps) == pytest.approx(min(gaps), rel=1e-2)


def test_chart_draws_each_curve_where_it_belongs():
    svg = line_chart({"a & b": [(0, 0), (5, 5), (10, 10)], "c": [(0, 10)]}, title="<t>", x="x", y="y", marks={"floor": 2.0})
    tree = ElementTree.fromstring(svg)
    points = [tuple(map(float, p.split(","))) for p in tree.find(f"{SVG}polyline").get("points").split()]
    assert points[0][0] < points[1][0] < points[2][0]
    assert points[0][1] > points[1][1] > points[2][1]  # SVG counts y downwards
    assert points[1][0] == pytest.approx((points[0][0] + points[2][0]) / 2, abs=0.1)
    assert len(tree.findall(f"{SVG}circle")) == 1  # a single point is a dot
    assert "floor" in [text.text for text in tree.iter(f"{SVG}text")]


def test_chart_leaves_out_what_is_not_finite():
    svg = line_chart({"a": [(0, 1.0), (1, math.nan), (2, math.inf), (3, 2.0)]}, title="t", x="x", y="y")
    assert len(ElementTree.fromstring(svg).find(f"{SVG}polyline").get("points").split()) == 2
    assert "nan" not in svg
    ElementTree.fromstring(line_chart({}, title="t", x="x", y="y"))


def test_thin_keeps_the_last_point():
    curve = [(float(i), float(i)) for i in range(10_001)]
    kept = thin(curve)
    assert kept[-1] == curve[-1]
    assert len(kept) <= 602


def test_page_escapes_what_each_language_needs():
    blocks = [Heading("a < b"), Table(["x"], [["p|q"]]), Code("1 < 2")]
    assert "p\\|q" in markdown(blocks, charts="c")
    page = html(blocks, title="a < b")
    assert "<h2>a &lt; b</h2>" in page
    assert "<pre>1 &lt; 2</pre>" in page


def test_report_of_a_run(run: Path, tmp_path: Path):
    written = write_report([run], tmp_path / "out" / "my report.md")
    assert all(file.is_file() for file in written)
    text = written[0].read_text()
    assert "| valid/loss/mlm | 0.91 |" in text
    assert "| optim.lr | 0.001 |" in text
    assert "| objective | MLM |" in text
    assert "(<my report_files/loss.svg>)" in text
    assert "note" not in text
    page = written[1].read_text()
    assert page.count("<svg") == 2  # loss and accuracy, inside the page


def test_report_of_two_runs_puts_them_side_by_side(run: Path, tmp_path: Path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "metrics.jsonl").write_text('{"step": 1, "loss/clm": 3.5}\n')
    text = write_report([run, other], tmp_path / "r.md")[0].read_text()
    assert "| metric | a run | other |" in text
    assert "| loss/clm |  | 3.5 |" in text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no metrics.jsonl"),
        ("", "no metric has been logged"),
        ("{\n", "metrics.jsonl:1: not a JSON object"),
        ("[1]\n", "not a JSON object"),
        ('{"step": 1, "loss": 3', "no metric has been logged"),
    ],
)
def test_what_is_not_a_run_is_said(tmp_path: Path, content, message):
    if content is not None:
        (tmp_path / "metrics.jsonl").write_text(content)
    with pytest.raises(DataError, match=message):
        RunLog.read(tmp_path)
