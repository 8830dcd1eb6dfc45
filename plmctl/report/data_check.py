"""The page of `plmctl data check`: verdicts, numbers, and a histogram of lengths."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from plmctl.report.charts import draw_histogram
from plmctl.report.page import Block, Chart, Heading, Paragraph, TableBlock, render_html, write_page
from plmctl.storage.atomic import write_text

if TYPE_CHECKING:
    from plmctl.data.check.finding import Report

SUMMARY = {
    "ok": "Nothing stands out.",
    "look": "Look at what is marked.",
    "bad": "Do not train on this before you have looked.",
}


def make_blocks(report: Report) -> list[Block]:
    """The blocks of the page on `report`."""
    edges, counts = report.lengths.bins()
    rows = [
        [finding.verdict, finding.name, finding.found, finding.advice]
        for finding in report.findings
    ]
    return [
        Heading(f"Data check: {report.path}", 1),
        Paragraph(f"{report.kind}: {report.verdict}. {SUMMARY[report.verdict]}"),
        Heading("Findings"),
        TableBlock(["verdict", "what", "found", "advice"], rows),
        Heading("Lengths"),
        Chart(
            "lengths",
            draw_histogram(
                edges,
                counts,
                title=f"Length in {report.unit}, share of all",
                x=f"{report.unit}, from",
            ),
        ),
    ]


def write(report: Report, out: Path) -> list[Path]:
    """Write the page: for a `.md` file with its pictures also the same page as `.html`, otherwise
    only that page; return the files.
    """
    page = make_blocks(report)
    if out.suffix == ".md":
        return write_page(page, out)
    write_text(out, render_html(page, title="Data check"))
    return [out]


def make_lines(report: Report) -> list[str]:
    """The report as lines for a terminal."""
    width = max(len(finding.name) for finding in report.findings)
    lines = [f"{report.path}: {report.kind}, {report.verdict}"]
    for finding in report.findings:
        lines.append(f"  {finding.verdict:4}  {finding.name:{width}}  {finding.found}")
        if finding.advice:
            lines.append(f"  {'':4}  {'':{width}}  -> {finding.advice}")
    return lines
