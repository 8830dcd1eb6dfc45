"""The table of a sweep over tasks."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from plmctl.report import sweeps
from plmctl.report.sweep_tasks import (
    HEAD,
    describe_averages,
    list_notes,
    make_table,
    read_tasks,
    write,
)


@pytest.fixture
def jobs(tmp_path: Path) -> list[dict[str, Any]]:
    """Two seeds of a task of shares, one run of a task in percent."""

    def job(number: int, task: str, key: str, score: float, ends: list[float]) -> dict[str, Any]:
        folder = tmp_path / str(number)
        folder.mkdir()
        result = {"metrics": {"dev": {key: score}}, "percent": ["f1"]}
        result |= {"intervals": {"dev": {key: ends}}}
        (folder / "result.json").write_text(json.dumps(result))
        if key == "accuracy":
            simple = {"dev": {"most frequent": {key: 0.2}, "words": {key: 0.45}}}
            (folder / "baselines.json").write_text(json.dumps(simple))
        made = {"job": number, "varied": [f"task={task}", f"seed={number % 2}"], "code": 0}
        made |= {"dir": str(folder), "metrics": {f"valid/{key}": score}, "overrides": []}
        return {**made, "best": [f"valid/{key}", True]}

    return [
        job(0, "tnews", "accuracy", 0.4, [0.3, 0.5]),
        job(1, "tnews", "accuracy", 0.6, [0.5, 0.7]),
        job(2, "cmrc2018", "f1", 3.0, [2.0, 4.5]),
    ]


def test_shares_and_percents_are_averaged_in_percent(jobs: list[dict[str, Any]]) -> None:
    head, rows = make_table(read_tasks(jobs))
    assert head == HEAD
    words = "words 45%"
    inside = "within the interval"
    assert rows == [
        ["tnews", "accuracy", "2", "50%", "14.14%", "40% to 60%", words, inside],
        ["cmrc2018", "f1", "1", "3%", "-", "2% to 4.5%", "-", "-"],
        ["average of 2 tasks, each by its first metric", "", "", "26.5%", "", "", "", ""],
    ]
    assert describe_averages(read_tasks(jobs)) == [
        "average of 2 tasks, each by its first metric: 26.5%"
    ]
    cells = [row[3] for row in sweeps.make_table(jobs)[1]]
    assert cells == ["accuracy 0.4", "accuracy 0.6", "f1 3%"]


def test_what_keeps_scores_from_being_compared_is_below_the_table(
    jobs: list[dict[str, Any]], tmp_path: Path
) -> None:
    alone = "no model without pretraining answers these tasks: cmrc2018"
    assert list_notes(read_tasks(jobs)) == [alone]
    for job, updates in zip(jobs, (20, 30, 400), strict=True):
        record = json.dumps({"step": updates, "loss": 1.0})
        Path(job["dir"], "metrics.jsonl").write_text(f"{record}\n")
    for job, more in (
        (jobs[0], {"chosen_on": {"dev": 2}, "texts_in_train": {"dev": 28}}),
        (jobs[1], {"texts_in_train": {"dev": 29}}),
    ):
        file = Path(job["dir"], "result.json")
        result = json.loads(file.read_text()) | {"examples": {"dev": 100}} | more
        file.write_text(json.dumps(result))
    scores = read_tasks(jobs)
    assert [row[3] for row in make_table(scores)[1]] == ["50% †‡", "3%", "26.5% †‡"]
    assert list_notes(scores) == [
        "† updates below 50, hardly a training: tnews 20 to 30",
        "‡ share of dev whose texts are in train, so scores are too high: tnews 28.50%",
        "updates: tnews 20 to 30, cmrc2018 400",
        "validations of which dev chose the best, so scores are a little high: tnews 2",
        alone,
    ]
    write(scores, tmp_path)
    rows = list(csv.DictReader((tmp_path / "tasks.csv").open()))
    assert [row["updates"] for row in rows] == ["20 to 30", "400"]
    assert [float(row["dev_in_train"]) for row in rows] == [0.285, 0]


@pytest.mark.parametrize(
    ("score", "said"), [(0.44, "no"), (0.5, "within the interval"), (0.9, "yes")]
)
def test_a_simple_model_is_beaten_where_the_interval_is_above_it(
    jobs: list[dict[str, Any]], score: float, said: str
) -> None:
    file = Path(jobs[0]["dir"], "result.json")
    result = json.loads(file.read_text())
    result["intervals"]["dev"]["accuracy"] = [score - 0.1, score + 0.1]
    file.write_text(json.dumps(result))
    jobs[0]["metrics"]["valid/accuracy"] = score
    assert read_tasks([jobs[0], jobs[2]])[0].beaten == said


def test_tasks_that_failed_are_counted_and_losses_have_no_average(
    jobs: list[dict[str, Any]], tmp_path: Path
) -> None:
    failed = {**jobs[2], "varied": ["task=afqmc", "seed=0"], "code": 1}
    half = {**jobs[2], "varied": ["task=cmrc2018", "seed=1"], "code": 1}
    scores = read_tasks([*jobs, half, failed])
    assert describe_averages(scores) == ["average of 2 of 3 tasks, each by its first metric: 26.5%"]
    assert [row[2] for row in make_table(scores)[1]] == ["2", "1 of 2", "0 of 1", ""]
    write(scores, tmp_path)
    rows = list(csv.DictReader((tmp_path / "tasks.csv").open()))
    assert [float(row["mean"] or 0) for row in rows] == [50, 3, 0]
    assert (rows[0]["low"], rows[0]["high"], rows[0]["unit"]) == ("40.0", "60.0", "%")
    jobs[2]["best"][1] = False
    assert describe_averages(read_tasks(jobs)) == []
    assert make_table(read_tasks(jobs))[1][1][3] == "3"
    assert read_tasks(jobs[:2]) != []
    assert read_tasks([{**each, "varied": ["seed=0"]} for each in jobs]) == []


def test_other_settings_have_an_average_each(jobs: list[dict[str, Any]]) -> None:
    fast = [{**each, "varied": [*each["varied"], "optim.lr=1"]} for each in jobs]
    slow = [{**each, "varied": [*each["varied"], "optim.lr=2"]} for each in jobs]
    scores = read_tasks([*fast, *slow])
    assert describe_averages(scores) == [
        "optim.lr=1: average of 2 tasks, each by its first metric: 26.5%",
        "optim.lr=2: average of 2 tasks, each by its first metric: 26.5%",
    ]
    head, rows = make_table(scores)
    assert head == ["settings", *HEAD]
    assert {len(row) for row in rows} == {len(head)}
