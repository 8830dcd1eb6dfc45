"""The demo's judgement, and its care for folders that it did not make; the demo itself is `make
demo`.
"""

import json
import math

import pytest

from plmctl.analysis.runs import RunLog
from plmctl.chain.demo import (
    MARK,
    Claim,
    describe_tuning,
    last,
    main,
    masked_claim,
    prepare,
    task_claim,
)
from plmctl.core.errors import PlmctlError, UsageError


def run_log(folder, **metrics):
    folder.mkdir()
    (folder / "metrics.jsonl").write_text(json.dumps({"step": 7, **metrics}) + "\n")
    return RunLog.read(folder)


def test_a_folder_of_somebody_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UsageError, match="not from an earlier demo"):
        prepare(tmp_path)
    assert (tmp_path / "thesis.tex").exists()
    assert main([str(tmp_path)]) == 2


def test_an_earlier_demo_is_replaced(tmp_path):
    prepare(tmp_path / "demo")
    (tmp_path / "demo" / "old").touch()
    prepare(tmp_path / "demo")
    assert {file.name for file in (tmp_path / "demo").iterdir()} == {MARK}


@pytest.mark.parametrize(
    ("value", "margin", "holds"),
    [
        (1.0, -0.5, True),
        (2.0, -0.5, False),
        (1.9, -0.5, False),
        (math.nan, -0.5, False),
        (3.0, 0.5, True),
        (2.0, 0.5, False),
    ],
)
def test_a_claim_holds_only_if_it_wins(value, margin, holds):
    claim = Claim("loss", value, 2.0, "floor", margin)
    assert claim.holds is holds
    assert claim.cells[-1] == ("yes" if holds else "NO")


def row(arm: str, low: float | None) -> dict:
    return {"arm": arm, "low": low, "difference": 0.1}


@pytest.mark.parametrize(("low", "holds"), [(0.02, True), (0.0, False), (-0.01, False)])
def test_pretraining_helps_only_if_the_whole_interval_says_so(low, holds):
    claim = task_claim({"rows": [row("scratch", None), row("pretrained", low)]})
    assert (claim.value, claim.holds) == (low, holds)
    assert "+0.100" in claim.what


def test_a_comparison_that_failed_is_no_success():
    with pytest.raises(PlmctlError, match="no seed"):
        task_claim({"rows": [row("scratch", None), row("pretrained", None)]})


@pytest.mark.parametrize(("loss", "holds"), [(4.9, True), (5.48, False), (6.0, False)])
def test_the_loss_must_beat_pairs_of_words(loss, holds, tmp_path):
    metrics = {"valid/loss/mlm": loss, "valid/bigram/mlm": 5.5, "valid/unigram/mlm": 7.0}
    assert masked_claim(run_log(tmp_path / "run", **metrics)).holds is holds


def test_a_metric_that_is_missing_is_named(tmp_path):
    with pytest.raises(PlmctlError, match="no 'valid/accuracy'; it has loss"):
        last(run_log(tmp_path / "run", loss=1.0), "valid/accuracy")


def test_the_picture_says_that_its_runs_have_several_learning_rates():
    runs = [[(25.0, 25.0, 0.5)]] * 10
    title = describe_tuning({"scratch": runs, "pretrained": runs}, seeds=5)
    assert title == "Accuracy on dev: 5 seeds at 2 learning rates, mean and range"
