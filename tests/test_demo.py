"""The demo's judgement, and its care for folders that it did not make; the demo itself is `make
demo`.
"""

import json
import math

import pytest

from plmctl.chain.demo import MARK, Claim, accuracy, main, prepare, task_claim
from plmctl.core.errors import PlmctlError, UsageError
from plmctl.report.runs import RunLog


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


def test_the_majority_is_that_of_the_tested_examples(tmp_path):
    (tmp_path / "dev.tsv").write_text(
        "text\tlabel\tmodule\na b\txml\tm\nc\txml\tm\nd\thttp\tm\ne\turllib\tm\n"
    )
    claim = task_claim(tmp_path, run_log(tmp_path / "run", **{"valid/accuracy": 0.6}))
    assert (claim.floor, claim.value, claim.holds) == (0.5, 0.6, True)
    assert "3 packages" in claim.what


def test_a_metric_that_is_missing_is_named(tmp_path):
    with pytest.raises(PlmctlError, match="no 'valid/accuracy'; it has loss"):
        accuracy(run_log(tmp_path / "run", loss=1.0))
