"""What calibration kept in a checkpoint counts in every report of the run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plmctl import read_run, read_runs
from plmctl.analysis.runs import RunLog
from plmctl.analysis.scored import ScoredFiles, keep_scored
from plmctl.artifacts.kept_decision import write_decision
from plmctl.report.card import make_card
from plmctl.report.decided import DecidedRun, decide_run
from plmctl.report.subject import find_subject
from plmctl.report.text import format_number
from plmctl.storage.atomic import write_json
from plmctl.tasks.calibration import BINS, LabelDecision
from plmctl.tasks.predictions import write_predictions
from plmctl.tasks.scores.below import FILE as BASELINES
from plmctl.tasks.scores.below import folder_of
from tests.command import plmctl
from tests.report import fabricated

TASK = {
    "_target_": "plmctl.tasks.classification.Classification",
    "name": "tickets",
    "reader": {"_target_": "plmctl.tasks.readers.tables.Table", "splits": {"dev": ["dev.tsv"]}},
    "columns": {"text": "text", "label": "label"},
    "max_length": 8,
    "metrics": ["accuracy"],
    "path": "nowhere",
}
SHARES, GOLD = [0.45, 0.3, 0.1, 0.6], "yyny"  # of y: a threshold of 0.25 makes all right
HOW = "threshold 0.25 of y, fitted on dev"
THRESHOLD = LabelDecision.fitted_on("dev", 1.0, 0.25, "y")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    rows = [
        {
            "id": str(n),
            "gold": gold,
            "guess": "y" if share >= 0.5 else "n",
            "probabilities": {"n": 1 - share, "y": share},
        }
        for n, (share, gold) in enumerate(zip(SHARES, GOLD, strict=True))
    ]
    metrics = {"dev": {"accuracy": 0.5, "loss": 0.7}}
    return fabricated.tuned(tmp_path / "run", TASK, metrics, rows)


def calibrate(
    run: Path, monkeypatch: pytest.MonkeyPatch, decision: LabelDecision = THRESHOLD
) -> None:
    folder = run / "checkpoints/step-10"
    folder.mkdir(parents=True)
    write_decision(decision, folder)
    monkeypatch.setattr(
        "plmctl.report.decided.find", lambda path: Path(path) / "checkpoints/step-10"
    )


def compare(*words: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(plmctl("compare", *map(str, words), "--json"))
    return found


def test_a_run_without_a_decision_is_as_training_left_it(run: Path) -> None:
    assert decide_run(run) is None
    read = read_run(run)
    assert (read.scores["dev"]["accuracy"], read.decision) == (0.5, "")
    file = run / "predictions/dev.jsonl"
    found = compare(run, file)
    assert "decided" not in found
    assert found["metrics"]["accuracy"]["first"] == 0.5


def test_reports_card_and_comparison_have_the_scores_of_the_decision(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrate(run, monkeypatch)
    reported = find_subject([run]).runs[0]
    assert reported.result is not None
    scores = reported.result["metrics"]["dev"]
    assert (scores["accuracy"], scores["loss"]) == (1.0, 0.7)
    assert [row["guess"] for row in reported.predictions["dev"]] == [*GOLD]
    plmctl("report", str(run), "--out", f"{run}/page.md")
    page = (run / "page.md").read_text()
    assert (
        f"Scores of run are those of its calibrated answers: {HOW}; the loss is without that."
        in page
    )
    card = make_card(run, RunLog.read_started(run).config)
    assert f"Scores are those of calibrated answers: {HOW}; the loss is without that." in card
    assert "value: 1.0" in card
    read = read_run(run)
    assert (read.scores, read.decision) == (reported.result["metrics"], HOW)
    assert [row["guess"] for row in read.predictions["dev"]] == [*GOLD]
    (row,) = read_runs(run)
    assert (row["dev/accuracy"], row["dev/loss"]) == (1.0, 0.7)
    found = compare(run / "predictions/dev.jsonl", run)
    assert found["metrics"]["accuracy"]["first"] == 0.5
    assert found["metrics"]["accuracy"]["second"] == 1
    assert found["decided"] == {"b": HOW}
    assert f"dev.jsonl, decided anew: {HOW}" in plmctl("compare", str(run), str(run))


def test_the_sheet_has_the_test_split_that_was_scored_later(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guesses of 0.6, 0.7, 0.9 and 0.8, of which the last is wrong: 3 of 4 are right."""
    sure = [0.6, 0.7, 0.9, 0.8]
    rows = [
        {"id": str(n), "gold": "yyyn"[n], "guess": "y", "probabilities": {"n": 1 - p, "y": p}}
        for n, p in enumerate(sure)
    ]
    (run / "eval").mkdir()
    (run / "eval/test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    error = (0.4 + 0.3 + 0.1 + 0.8) / 4  # each in an interval of its own
    told = f"Expected calibration error: {100 * error:.1f}%, of 4 examples of test"
    plmctl("report", str(run), "--brief", "--out", f"{run}/sheet.md")
    sheet = (run / "sheet.md").read_text()
    wilson = "accuracy 0.75 on test, 95% interval 0.3006 to 0.9544, of 4 examples"
    assert wilson in sheet
    assert told in sheet
    assert "too good" not in sheet
    assert make_card(run, RunLog.read_started(run).config).count("value: 0.75") == 1
    calibrate(run, monkeypatch)
    plmctl("report", str(run), "--out", f"{run}/page.md")
    page = (run / "page.md").read_text()
    assert "answers to test are from before calibration; plmctl eval" in page
    assert told in page
    assert f"of dev in {BINS} intervals of the probability of the guess, on the rows" in page
    (run / "eval/test.jsonl").touch()  # scored again
    assert "before calibration" not in words_of(run)


def test_the_verdict_on_decided_answers_has_their_own_test(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 of 4 guesses are wrong, and a model of words has none: p = 2 (1 / 2)^2."""
    rows = [{"id": str(n), "gold": gold, "guess": gold} for n, gold in enumerate(GOLD)]
    write_predictions(folder_of(run, "words"), "dev", rows)
    write_json(run / BASELINES, {"dev": {"words": {"accuracy": 1.0}}})
    calibrate(run, monkeypatch, LabelDecision.fitted_on("dev", 2.0))
    told = "is below that without pretraining (words 1.0000, p 0.5000; p by swaps: exact, not"
    assert told in words_of(run)
    assert told in make_card(run, RunLog.read_started(run).config)
    assert "no test" not in words_of(run)


def words_of(run: Path) -> str:
    plmctl("report", str(run), "--brief", "--out", f"{run}/sheet.md")
    return (run / "sheet.md").read_text()


def test_from_python_a_decision_is_one_by_which_scores_are(
    run: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calibrate(run, monkeypatch)
    config = (run / "config.yaml").read_text()
    gone = config.replace("classification.Classification", "classification.Gone")
    assert gone != config
    (run / "config.yaml").write_text(gone)
    read = read_run(run)
    assert (read.scores["dev"]["accuracy"], read.decision) == (0.5, "")
    how = f"from before calibration; plmctl eval checkpoint={run} has those with it"
    assert caplog.text.count(f"{run}: its scores are {how}") == 1


def test_scores_that_are_not_decided_are_not_called_calibrated() -> None:
    found = DecidedRun({}, {}, "from before calibration", applied=False)
    assert found.describe() == "from before calibration"
    told = f"those of calibrated answers: {HOW}; the loss is without that"
    assert DecidedRun({}, {}, HOW, applied=True).describe() == told
    assert DecidedRun({}, {}, "", applied=True).describe() == ""


def test_sheet_card_and_comparison_name_the_file_of_another_test(run: Path) -> None:
    rows = [{"id": str(n), "gold": gold, "guess": "y"} for n, gold in enumerate("yyyn")]
    write_predictions(run / "eval", "held-test", rows)
    keep_scored(run, "held-test", ScoredFiles("test", False, {"held/test.csv": "5f" * 32}, 4))
    told = "4 rows of {}test.csv (SHA-256 5f5f5f5f5f5f), no file of the run"
    assert f"test is {told.format('held/')}" in words_of(run)
    card = make_card(run, RunLog.read_started(run).config)
    assert f"Test is {told.format('')}." in card
    file = run / "eval/held-test.jsonl"
    assert compare(file, file)["scored"]["a"] == told.format("held/")


def test_sheet_page_and_card_say_the_kind_of_a_metric(run: Path) -> None:
    result = json.loads((run / "result.json").read_text())
    write_json(run / "result.json", result | {"meanings": {"accuracy": "share of rows"}})
    plmctl("report", str(run), "--out", f"{run}/page.md")
    said = "accuracy: share of rows."
    page, card = (run / "page.md").read_text(), make_card(run, RunLog.read_started(run).config)
    assert f"Metrics: {said}" in words_of(run)
    assert f"tickets: {said}" in page
    assert f"Metrics: {said}" in card


def test_page_and_card_list_scores_of_other_files_with_their_intervals(run: Path) -> None:
    rows = [
        {"id": str(n), "gold": gold, "guess": "y", "probabilities": {"n": 0.4, "y": 0.6}}
        for n, gold in enumerate("yyyn" * 5)
    ]
    for name, split in {"new": "dev", "old": "dev", "held-test": "test"}.items():
        write_predictions(run / "eval", name, rows)
        own, place = name == "old", f"ours/{name}.csv"
        keep_scored(run, name, ScoredFiles(split, own, {place: "5f" * 32}, len(rows)))
    ends = find_score_interval(run)
    told = f"new: accuracy 0.75 ({ends}), 20 rows of {{}}new.csv (SHA-256 5f5f5f5f5f5f), no file of"
    assert told.format("ours/") in words_of(run)
    card = make_card(run, RunLog.read_started(run).config)
    assert told.replace("new", "New", 1).format("") in card
    assert "old: " not in card
    assert "held-test: " not in card, "it is the test of the run"


def find_score_interval(run: Path) -> str:
    found = decide_run(run)
    assert found is not None
    (other,) = found.others
    assert other.interval is not None
    low, high = other.interval
    assert 0.4 < low < 0.75 < high < 1
    return " to ".join(map(format_number, other.interval))


def test_sheet_and_card_judge_the_goal_of_a_bound(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guesses of 0.55, 0.7, 0.9 and 0.6: one is of at least 0.8, and right."""
    own = replace(LabelDecision.fitted_on("dev", sure=0.8), goal=0.95)
    calibrate(run, monkeypatch, own)
    told = "nswered of dev: 1 of 4 rows (25.0%), accuracy 1.0000"
    for page in (words_of(run), make_card(run, RunLog.read_started(run).config)):
        assert told in page
        assert "of these, goal 0.95 undecided; the others are unsure" in page
