"""Panels find results by their type, and show equal ones once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from plmctl.analysis.measure import Measure
from plmctl.core.errors import DataError
from plmctl.report.page import Block, Chart, Folded, Heading, Paragraph
from plmctl.report.panel import panel_of
from plmctl.report.studies import StudyFolder
from plmctl.report.subject import ReportedRun, Subject


@dataclass(frozen=True)
class Length(Measure):
    """The length of the word that stands for a model."""

    name: ClassVar[str] = "length"
    value: int

    @classmethod
    def of(cls, opened: Any) -> Self | None:
        if opened == "broken":
            raise DataError("it is broken")
        return cls(len(opened)) if opened else None


@panel_of(Length, order=1, title="Lengths")
def lengths(found: Length) -> list[Block]:
    text = Paragraph(str(found.value))
    return [text, Chart("a", "<svg/>"), Folded("more", [Chart("b", "<svg/>")])]


def subject_of(**models: str) -> Subject:
    none: Any = None
    runs = [ReportedRun(name, none) for name in models]
    for run in runs:
        vars(run)["loaded"] = models[run.name]
    return Subject(runs)


def names_of(blocks: list[Block]) -> list[str]:
    inside = [inner for each in blocks if isinstance(each, Folded) for inner in each.blocks]
    return [each.name for each in (*blocks, *inside) if isinstance(each, Chart)]


def test_equal_results_are_shown_once_and_charts_have_names_of_their_own() -> None:
    blocks = lengths(subject_of(a="xx", b="broken", c="", d="x", e="yy"))
    headings = [each.text for each in blocks if isinstance(each, Heading)]
    assert headings == ["Lengths", "a, e", "d"]
    assert [each.text for each in blocks if isinstance(each, Paragraph)] == ["2", "1"]
    assert names_of(blocks) == ["a-0", "a-3", "b-0", "b-3"]


def test_one_run_needs_no_heading_and_none_shows_nothing() -> None:
    assert [each.text for each in lengths(subject_of(a="xx"))[:2]] == ["Lengths", "2"]
    assert lengths(subject_of(a="broken")) == lengths(subject_of(a="")) == lengths(Subject()) == []


def test_many_equal_runs_are_counted() -> None:
    blocks = lengths(subject_of(**{name: "xx" for name in "abcdef"}))
    assert isinstance(blocks[1], Heading)
    assert blocks[1].text == "6 runs"


def test_a_study_is_a_result_of_its_own_type() -> None:
    @panel_of(StudyFolder, order=0)
    def title(study: StudyFolder) -> list[Block]:
        return [Chart(study.title, "")]

    study = StudyFolder(Path("x"), {"title": "Rates"}, None)
    assert names_of(title(Subject(study=study))) == ["Rates"]
    assert title(subject_of(a="xx")) == lengths(Subject(study=study)) == []
