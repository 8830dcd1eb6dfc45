"""Learning curves from the folder of a sweep of `eval`: by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plmctl.core.errors import DataError
from plmctl.report.page import Chart, Paragraph, TableBlock
from plmctl.report.panels.learning import panel
from plmctl.report.subject import find_subject


def write_scores(folder: Path, scores: dict[str, float], varied: str = "") -> Path:
    """A sweep with a job for each checkpoint."""
    for number, (checkpoint, value) in enumerate(scores.items()):
        words = [f"checkpoint='{checkpoint}'", *([varied] if varied else [])]
        record: dict[str, Any] = {"job": number, "overrides": words, "varied": words, "code": 0}
        record |= {"metrics": {"blimp/accuracy": value}, "dir": str(folder / f"{number}")}
        (folder / str(number)).mkdir(parents=True)
        (folder / str(number) / "job.json").write_text(json.dumps(record))
    return folder


def write_study(folder: Path, labels: dict[str, str], old: str) -> Path:
    """A study with finished pretrainings, one of them of an earlier version of the study."""
    (folder / "jobs").mkdir(parents=True)
    (folder / "study.json").write_text(json.dumps({"jobs": labels}))
    events = [{"event": "finished", "job": name, "label": name} for name in (*labels, old)]
    (folder / "jobs" / "journal.jsonl").write_text("".join(json.dumps(e) + "\n" for e in events))
    return folder


def test_runs_have_a_curve_each_in_the_order_of_age(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = "runs/a/checkpoints/words-"
    scores = {f"{place}20": 0.6, f"{place}9": 0.5, "runs/b/checkpoints/step-3": 0.7}
    Path(f"{place}20").mkdir(parents=True)  # the update ended a word behind its mark
    Path(f"{place}20/trainer.json").write_text(json.dumps({"progress": {"words": 21}}))
    subject = find_subject([write_scores(tmp_path / "swept", {**scores, "runs/c": 0.1})])
    assert subject.title == "Scores of 3 checkpoints"
    *_, words, table, updates, other = panel(subject)
    assert isinstance(words, Chart)
    assert isinstance(updates, Chart)
    assert isinstance(table, TableBlock)
    assert isinstance(other, TableBlock)
    assert table.head == ["run", "words", "n", "blimp/accuracy"]
    assert table.rows == [["runs/a", "9", "1", "0.5000"], ["runs/a", "21", "1", "0.6000"]]
    assert other.rows == [["runs/b", "3", "1", "0.7000"]]
    assert other.head[1] == "update"


def test_seeds_of_an_arm_share_a_curve_and_older_jobs_are_left_out(tmp_path: Path) -> None:
    study = write_study(
        tmp_path / "study",
        {"pretrain-1": "pretrain large, seed 0", "pretrain-2": "pretrain large, seed 1"},
        old="pretrain-3",
    )
    scores = {
        f"{study}/jobs/pretrain-{job}/run/checkpoints/words-10": 0.1 * job for job in (1, 2, 3)
    }
    for job, words in ((1, 11), (2, 13)):  # their updates end at other words
        place = study / f"jobs/pretrain-{job}/run/checkpoints/words-10"
        place.mkdir(parents=True)
        (place / "trainer.json").write_text(json.dumps({"progress": {"words": words}}))
    subject = find_subject([write_scores(tmp_path / "swept", scores)])
    _, shared, left, chart, table = panel(subject)
    assert isinstance(chart, Chart)
    assert "0.15" in chart.svg
    assert isinstance(shared, Paragraph)
    assert isinstance(left, Paragraph)
    assert isinstance(table, TableBlock)
    assert "other seeds" in shared.text
    assert left.text.startswith("1 checkpoint of")
    assert table.rows == [["large", "12", "2", "0.150 ± 0.071"]]


def test_a_sweep_without_checkpoints_of_an_age_is_no_learning_curve(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="neither a run"):
        find_subject([write_scores(tmp_path / "swept", {"runs/a": 0.5})])
