"""Parts that moved are found by the names that they had, in a run that the code of before wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.config.saved import read_saved
from plmctl.config.walks import targets_in
from plmctl.core.locate import locate
from plmctl.core.moved import MOVED, find_moved, name_before

SAVED = Path(__file__).parents[1] / "fixtures" / "earlier"  # its README says how it was made
LOSS = 0.6931469  # of dev after the second epoch, by the code that wrote the run


@pytest.mark.parametrize("before", MOVED)
def test_a_part_is_found_by_both_names(before: str) -> None:
    now = MOVED[before]
    assert now not in MOVED
    assert locate(before) is locate(now)
    assert find_moved(before) == find_moved(now) == now
    assert name_before(now) == before


def test_saved_settings_have_the_names_of_today() -> None:
    text = (SAVED / "finetuned" / "config.yaml").read_text(encoding="utf-8")
    assert "plmctl.tasks.tables.Table" in text
    names = set(targets_in(read_saved(SAVED / "finetuned" / "config.yaml")))
    assert "plmctl.tasks.readers.tables.Table" in names
    assert not names & MOVED.keys()
    assert {find_moved(name) for name in targets_in(yaml.safe_load(text))} == names


def plmctl_says(*words: str) -> str:
    done = CliRunner().invoke(make_app(), list(words))
    assert done.exit_code == 0, done.output
    return str(done.stdout)


def test_an_earlier_run_is_evaluated_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(SAVED, tmp_path / "runs")
    monkeypatch.chdir(tmp_path / "runs")
    stored = json.loads((SAVED / "finetuned" / "result.json").read_text(encoding="utf-8"))
    found = json.loads(plmctl_says("eval", "checkpoint=finetuned", "--json", "device=cpu"))
    assert found["metrics"]["dev"] == pytest.approx(stored["metrics"]["dev"], rel=1e-5)
    plmctl_says("finetune", "--resume", "run.dir=finetuned", "train.epochs=2")
    lines = Path("finetuned", "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    last = [json.loads(line) for line in lines if '"valid/loss"' in line][-1]
    assert last["step"] == 8
    assert last["valid/loss"] == pytest.approx(LOSS, rel=1e-5)
