"""Sweeps over folds: the mean over folds, the score of all rows together, their file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plmctl.config.compose import compose
from plmctl.config.saved import write_spec
from plmctl.report.folds import FILE, conclude_folds
from plmctl.report.page import Paragraph, TableBlock
from plmctl.report.panels.folds import panel
from plmctl.report.subject import find_subject
from plmctl.report.sweeps import RECORD, describe_end, make_table
from plmctl.tasks.intervals import wilson
from plmctl.tasks.readers.holding import take_fold
from plmctl.tasks.record import Example

ROWS, FOLDS, WRONG = 10, 3, {2, 3, 7}  # the rows of which the guess is wrong


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The jobs of a sweep over three folds of a table with a column of its own."""
    sweep = tmp_path_factory.mktemp("sweep")
    lines = [f"T-{n},text {n},{'yes' if n % 2 else 'no'}" for n in range(ROWS)]
    table = sweep / "tickets.csv"
    table.write_text("\n".join(["ticket,text,label", *lines]), encoding="utf-8")
    words = ["task=classification", f"task.path={table}", "checkpoint=null"]
    words += [f"task.folds={FOLDS}", "size=tiny"]
    spec = compose("finetune", None, words)
    examples = [Example(str(n), {"text": f"text {n}"}) for n in range(ROWS)]
    jobs = []
    for fold in range(FOLDS):
        run = sweep / str(fold)
        (run / "predictions").mkdir(parents=True)
        write_spec(spec, run)
        how: Any = {"unit": lambda example: example.unit, "labels": lambda example: ()}
        dev = take_fold(examples, fold, FOLDS, **how)[1]
        right = 0
        with (run / "predictions/dev.jsonl").open("w") as file:
            for number in (int(example.id) for example in dev):
                gold, other = ("yes", "no") if number % 2 else ("no", "yes")
                guess = other if number in WRONG else gold
                right += guess == gold
                row = {"id": str(number), "gold": gold, "guess": guess}
                row |= {"probabilities": {guess: 0.9, other if guess == gold else gold: 0.1}}
                file.write(json.dumps(row) + "\n")
        job = {"job": fold, "code": 0, "dir": str(run), "varied": [f"task.fold={fold}"]}
        job |= {"overrides": [f"task.fold={fold}"], "best": ["valid/accuracy", True]}
        jobs.append(job | {"metrics": {"valid/accuracy": right / len(dev)}})
        (run / RECORD).write_text(json.dumps(jobs[-1]))
    return sweep, jobs


def test_folds_have_a_mean_and_one_score_of_all_rows(swept: tuple[Path, list[Any]]) -> None:
    sweep, jobs = swept
    (line,) = conclude_folds(jobs, sweep)
    scores = [job["metrics"]["valid/accuracy"] for job in jobs]
    mean = sum(scores) / FOLDS
    spread = (sum((score - mean) ** 2 for score in scores) / (FOLDS - 1)) ** 0.5
    low, high = wilson(ROWS - len(WRONG), ROWS)
    assert line == (
        f"accuracy {mean:.2f} ± {spread:.2f} over 3 folds; 0.7 (95% interval {low:.4g} to"
        f" {high:.4g}) over all 10 rows, each predicted once: {sweep / FILE}.jsonl"
    )
    rows = [json.loads(line) for line in (sweep / f"{FILE}.jsonl").read_text().splitlines()]
    assert [row["ticket"] for row in rows] == [f"T-{n}" for n in range(ROWS)]
    assert {n for n, row in enumerate(rows) if row["guess"] != row["label"]} == WRONG
    assert {row["fold"] for row in rows} == {0, 1, 2}
    assert make_table(jobs)[1][-1][1:3] == ["mean ± deviation", "3 ok"]
    assert describe_end(jobs) == []  # no fold is the best one

    _, about, table = panel(find_subject([Path(job["dir"]) for job in jobs]))
    assert isinstance(about, Paragraph)
    assert isinstance(table, TableBlock)
    own = ["all", "3 folds", "accuracy", f"{mean:.2f} ± {spread:.2f}"]
    assert table.rows == [[*own, "0.7", f"{low:.4g} to {high:.4g}", "10"]]


def test_settings_with_folds_and_folds_that_are_missing(swept: tuple[Path, list[Any]]) -> None:
    sweep, jobs = swept

    def at(rate: int, change: float, of: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {
                **job,
                "varied": [f"optim.lr={rate}", *job["varied"]],
                "metrics": {"valid/accuracy": job["metrics"]["valid/accuracy"] + change},
            }
            for job in of
        ]

    lines = conclude_folds([*at(1, 0, jobs), *at(2, 0.1, jobs), *at(3, 0.2, jobs[:2])], sweep)
    mean = sum(job["metrics"]["valid/accuracy"] for job in jobs) / FOLDS
    assert [line.partition(":")[0] for line in lines[:3]] == [f"optim.lr={n}" for n in (1, 2, 3)]
    assert lines[1].endswith(f"{FILE}-1.jsonl")
    assert lines[2].endswith("over 2 of 3 folds; the score of all rows together needs every fold")
    assert lines[3:] == [f"best mean over folds: accuracy {mean + 0.1:.4g}: optim.lr=2"]
    less = at(2, 0.1, [{**job, "dir": jobs[0]["dir"]} for job in jobs])
    assert (
        "no setting is the best: scored on different"
        in conclude_folds([*at(1, 0, jobs), *less], sweep)[-1]
    )
    twice = [*jobs[:2], {**jobs[2], "dir": jobs[0]["dir"]}]
    assert "its folds do not predict every row once" in conclude_folds(twice, sweep)[0]
    seeds = [{**job, "varied": [f"seed={job['job']}"]} for job in jobs]
    assert conclude_folds(seeds, sweep) == []


def test_folds_of_bundles_name_their_number(swept: tuple[Path, list[Any]]) -> None:
    sweep, jobs = swept
    for file in sweep.glob("*/predictions/dev.jsonl"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        named = [{**row, "bundle": str(int(row["id"]) // 2)} for row in rows]
        file.write_text("".join(f"{json.dumps(row)}\n" for row in named))
    (line,) = conclude_folds(jobs, sweep)
    assert "over all 10 rows in 5 bundles, each predicted once" in line
