"""Blocks as HTML and as Markdown: the same content, nothing that breaks either."""

from __future__ import annotations

from pathlib import Path

import pytest

from plmctl.report.page import (
    Chart,
    Code,
    Folded,
    Heading,
    Paragraph,
    TableBlock,
    render_html,
    render_markdown,
    write_page,
)
from tests.report import parsed

SVG = '<svg xmlns="http://www.w3.org/2000/svg"><text>x</text></svg>'
BLOCKS = [
    Heading("a < b", 1),
    Paragraph("1 & 2"),
    Heading("Twice"),
    TableBlock(["x", "y"], [["p|q\nr", "1.5"]], [[0.0, 1.0]]),
    Heading("Twice"),
    Code("1 < 2"),
    Heading("Last"),
    Folded("More & more", [TableBlock(["z"], [["in the fold"]]), Chart("c", SVG)]),
]


def test_html_is_balanced_and_needs_nothing_beside_it() -> None:
    page = parsed.parse(render_html(BLOCKS, title="a < b"))
    assert page.headings == ["a < b", "Twice", "Twice", "Last"]
    assert page.ids == ["a-b", "twice", "twice-2", "last"]
    assert page.addresses == ["#twice", "#twice-2", "#last"]
    assert page.table("x", "y") == [["p|q\nr", "1.5"]]
    assert page.table("z") == [["in the fold"]]


def test_a_text_of_the_users_is_a_text() -> None:
    """Whatever a run, a label or a line of data is called, the page has no element, attribute or
    script of its making.
    """
    evil = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>&amp;"
    blocks = [
        Heading(evil, 1),
        Paragraph(evil),
        Code(evil),
        TableBlock([evil], [[evil]]),
        Folded(evil, [Paragraph(evil)]),
        Chart(evil, SVG),
    ]
    page = render_html(blocks, title=evil)
    assert "<script>alert" not in page
    assert "<img" not in page
    read = parsed.parse(page)
    assert read.headings == [evil]
    assert read.table(evil) == [[evil]]


def test_tables_scroll_and_shade() -> None:
    page = render_html(BLOCKS, title="t")
    assert (
        '<div class="wide shaded" tabindex="0" role="region" aria-label="Table 1: Twice"><table>'
        in page
    )
    assert parsed.parse(page).labels == [
        "Table 1: Twice",
        "Table 1: More & more",
        "Picture 1: More & more",
    ]
    assert 'class="n" style="background:rgba(0,114,178,0.40)"' in page
    assert '<th scope="col" class="n"><span>y</span></th>' in page
    assert ".wide{overflow-x:auto}" in page


def test_pictures_that_follow_each_other_lie_side_by_side() -> None:
    charts = [Chart("a", SVG), Chart("b", SVG)]
    page = render_html([*charts, Paragraph("x"), Folded("f", charts[:1])], title="t")
    assert [part.count("<figure") for part in page.split('<div class="charts">')] == [0, 2, 1]


def test_a_short_page_has_no_contents() -> None:
    assert "<nav" not in render_html(BLOCKS[:4], title="t")


def test_markdown_holds_the_same() -> None:
    text = render_markdown(BLOCKS, charts="my files")
    assert "| p\\|q r | 1.5 |" in text
    assert "**More & more**" in text
    assert "| in the fold |" in text
    assert "![c](<my files/c.svg>)" in text
    assert "```\n1 < 2\n```" in text


def test_markdown_takes_nothing_for_markup() -> None:
    table = TableBlock(
        ["setting"],
        [["task.reader._target_"], ["[train.*, *train*]"], ["the <b>smoke"], ["train.batch_size"]],
    )
    text = render_markdown(
        [Heading("a <b>"), Paragraph("plmctl report <study>/jobs"), table], charts=""
    )
    for line in (
        "## a \\<b>",
        "plmctl report \\<study>/jobs",
        "| task.reader.\\_target\\_ |",
        "| [train.\\*, \\*train\\*] |",
        "| the \\<b>smoke |",
        "| train.batch_size |",
    ):
        assert line in text.splitlines()


@pytest.mark.parametrize("name", ["my report.md", "deep/er/r.md"])
def test_charts_lie_beside_the_markdown(tmp_path: Path, name: str) -> None:
    written = write_page(BLOCKS, tmp_path / name)
    assert all(file.is_file() for file in written)
    assert [file.suffix for file in written] == [".md", ".html", ".svg"]
    assert f"(<{written[2].parent.name}/c.svg>)" in written[0].read_text()
