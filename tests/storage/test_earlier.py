"""Results that nobody named a file for are written over by newer ones, and kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from plmctl.report.page import Heading, Paragraph, write_html, write_page
from plmctl.report.subject import ReportedRun, Subject, Wishes
from plmctl.storage.earlier import keep_earlier


def write(file: Path, text: str, overwrite: bool = False) -> None:
    with keep_earlier(file, overwrite=overwrite):
        file.write_text(text)


def test_every_earlier_result_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "dev.jsonl"
    for text in ("one", "one", "two", "three", "three"):
        write(file, text)
    kept = {path.name: path.read_text() for path in (tmp_path / "earlier").iterdir()}
    assert (file.read_text(), kept) == ("three", {"dev-1.jsonl": "one", "dev-2.jsonl": "two"})
    said = capsys.readouterr().err.splitlines()
    assert [line.count("had other results") for line in said] == [1, 1]


def test_a_page_of_another_run_is_kept(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    for name in ("Report: a & b", "Report: a & b", "Report: c"):
        write_html([Heading(name, 1)], page)
    kept = [path.name for path in (tmp_path / "earlier").iterdir()]
    assert kept == ["report-1.html"]
    assert "a &amp; b" in (tmp_path / "earlier" / kept[0]).read_text()


def test_a_page_of_another_folder_of_the_same_name_is_kept(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text("<title>Report: a</title>")  # of an earlier version
    subjects = [Subject([run]) for run in (at(tmp_path / "one"), at(tmp_path / "two"))]
    for subject in (subjects[0], subjects[0], subjects[1]):
        write_html([Heading("Report: a", 1)], page, about=subject.key)
    kept = [path.read_text() for path in (tmp_path / "earlier").iterdir()]
    assert len(kept) == 1
    assert subjects[0].key in kept[0]
    assert str(tmp_path) not in page.read_text()
    for subject in subjects:
        blocks = [Heading("Report: a", 1), Paragraph(f"Its key is {subject.key}.")]
        write_page(blocks, tmp_path / "b.md", about=subject.key)
    assert {path.name for path in (tmp_path / "earlier").iterdir()} == {
        *("report-1.html", "b-1.html", "b-1.md")
    }


def test_a_sheet_does_not_take_the_place_of_the_page(tmp_path: Path) -> None:
    page, run = tmp_path / "report.html", at(tmp_path / "one")
    whole, heads = Subject([run]), Subject([run], wishes=Wishes(heads=[(0, 1)]))
    for subject in (whole, replace(whole, brief=True), heads, heads):
        write_html([Heading("Report: a", 1)], page, about=subject.key)
    assert len([*(tmp_path / "earlier").iterdir()]) == 2
    assert heads.key in page.read_text()


def at(folder: Path) -> ReportedRun:
    return cast(ReportedRun, SimpleNamespace(folder=folder / "a"))


def test_asked_to_write_over_it_keeps_nothing(tmp_path: Path) -> None:
    file = tmp_path / "dev.jsonl"
    write(file, "one")
    write(file, "one")
    write(file, "two", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["dev.jsonl"]


def test_a_result_that_is_not_written_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "dev.jsonl"
    write(file, "one")
    with pytest.raises(ZeroDivisionError), keep_earlier(file):
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir()] == ["dev.jsonl"]
