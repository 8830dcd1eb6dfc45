"""Pictures and tables as files: what is in them is what the page shows."""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.core.errors import UsageError
from plmctl.report.charts import draw_lines
from plmctl.report.figures import (
    _format_csv,
    _format_latex,
    check_figures,
    find_missing,
    warn_of_letters,
    write_figures,
)
from plmctl.report.page import Chart, Folded, Heading, TableBlock
from tests.report import fabricated

SVG = draw_lines({"a": [(1, 2.0), (2, 3.0)]}, title="t", x="x", y="y")
TABLE = TableBlock(["name", "score"], [["a, 50% of_it", "1.5"], ["b & c", ""]])
BLOCKS = [
    Heading("First"),
    Heading("run, dev", 3),
    Chart("of a/../run", SVG),
    TABLE,
    Folded("More: less", [TABLE, Chart("loss", SVG)]),
]


def convert(suffix: str) -> Any:
    return lambda svg, **_: f"{suffix} of {svg}".encode()


@pytest.fixture
def converter(monkeypatch: pytest.MonkeyPatch) -> None:
    made = SimpleNamespace(svg_to_png=convert("png"), svg_to_pdf=convert("pdf"))
    monkeypatch.setitem(sys.modules, "vl_convert", made)


def test_a_wide_table_wraps_its_sentences() -> None:
    """A line of an article has 345 pt, and an em of small type about 8.5 pt."""
    head = ["arm", "n", "mean ± sd", "difference", "interval", "detectable", "p", "verdict"]
    row = ["mask-all_1e-3", "5", "0.8123 ± 0.012", "+0.0000", "-0.0034 to +0.0035", "0.021", "0.2"]
    wide = TableBlock(head, [[*row, "undecided (no difference could have been seen)"]])
    text = _format_latex("t", wide)
    assert r"\usepackage{booktabs,array}" in text
    assert r"\footnotesize" in text
    widths = [float(each) for each in re.findall(r"p\{([\d.]+)em\}", text)]
    assert len(widths) == len(head)
    assert 0.8 * 345 < 8.5 * sum(widths) + 4 * len(head) < 345
    assert r"\begin{tabular}{lr}" in _format_latex("t", TABLE)


@pytest.mark.usefixtures("converter")
def test_each_picture_and_table_has_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "figures"
    check_figures(folder)
    written = write_figures(BLOCKS, folder)
    assert [file.name for file in written] == [
        *(f"figure-of-a-..-run{suffix}" for suffix in (".svg", ".png", ".pdf")),
        *(f"table-first-run-dev-name{suffix}" for suffix in (".csv", ".tex")),
        *(f"table-first-run-dev-name-2{suffix}" for suffix in (".csv", ".tex")),
        *(f"figure-loss{suffix}" for suffix in (".svg", ".png", ".pdf")),
    ]
    assert {file.parent for file in written} == {folder}
    assert written[0].read_text() == f"{SVG}\n"
    assert written[2].read_text() == f"pdf of {SVG}"
    with written[3].open(newline="") as file:
        assert list(csv.reader(file)) == [[*TABLE.head], *map(list, TABLE.rows)]
    lines = written[4].read_text().splitlines()
    assert r"\begin{tabular}{lr}" in lines
    assert lines[-5:-2] == [r"a, 50\% of\_it & 1.5 \\", r"b \& c &  \\", r"\bottomrule"]
    assert write_figures(BLOCKS, folder) == written  # a later report renews them
    check_figures(folder)
    more = [Heading("Zero"), Chart("new", SVG), TableBlock(["job"], [["1"]]), *BLOCKS]
    added = write_figures(more, folder.with_name("more"))
    names = [file.name for file in written]
    assert [file.name for file in added if file.name in names] == names
    assert added[3].name == "table-zero-job.csv"
    with pytest.raises(UsageError, match=r"figure-loss\.pdf is of another page"):
        write_figures(BLOCKS[:3], folder)
    (folder / "thesis.tex").touch()
    with pytest.raises(UsageError, match=r"thesis\.tex is in it"):
        check_figures(folder)
    with pytest.raises(UsageError, match="is a file"):
        check_figures(written[0])
    with pytest.raises(UsageError, match=r"a folder, .*\n  fix: --figures .*/new$"):
        check_figures(tmp_path / "new.pdf")


def test_the_library_that_is_missing_is_said_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    run, page = fabricated.run(tmp_path / "run"), tmp_path / "r.html"
    words = ["report", str(run), "--out", str(page), "--figures", str(tmp_path / "f")]
    done = CliRunner().invoke(make_app(), words)
    assert done.exit_code == 2
    assert "vl-convert-python" in done.output
    assert not page.exists()


def test_a_picture_is_drawn_with_its_letters(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    _, png, pdf = write_figures(BLOCKS[:3], tmp_path)
    assert png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(png.read_bytes()[16:20]) == 3 * 380  # its width
    assert pdf.read_bytes()[:5] == b"%PDF-"
    assert b"/FontFile" in pdf.read_bytes() or b"/FontDescriptor" in pdf.read_bytes()


def test_letters_without_a_font_are_found() -> None:
    convert = pytest.importorskip("vl_convert")
    assert find_missing("A plain table, ≥ 5 → 6 ± é\n", convert) == ""
    assert find_missing("x\U0010fffd\U0010fffd", convert) == "\U0010fffd"


@pytest.mark.parametrize(
    ("missing", "package"), [("ก跑", "noto-cjk"), ("한", "noto-cjk"), ("ก", "noto")]
)
def test_the_fix_names_the_package_of_the_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, missing: str, package: str
) -> None:
    monkeypatch.setattr("plmctl.report.figures.find_missing", lambda *_: missing)
    warn_of_letters(tmp_path)
    assert capsys.readouterr().err.endswith(f"fix: apt install fonts-{package}\n")


def test_a_table_in_chinese_says_what_it_needs() -> None:
    text = _format_latex("t", TableBlock(["标签"], [["50%_&#"]]))
    assert "ctex" in text.splitlines()[1]
    assert r"50\%\_\&\#" in text
    assert "XeLaTeX" not in _format_latex("t", TableBlock(["label"], [["é"]]))


def test_numbers_of_a_csv_file_are_plain() -> None:
    table = TableBlock(
        ["arm", "mean ± sd", "kept", "speed", "gain"],
        [["a", "4.9 ± 0.01", "81.2%", "1,024", "−0.5%"], ["b", "−1", "", "7", "2"]],
    )
    assert _format_csv(table).splitlines() == [
        "arm,mean,sd,kept (%),speed,gain",
        "a,4.9,0.01,81.2,1024,-0.5%",
        "b,-1,,,7,2",
    ]
