"""Whatever is wrong with a command, its settings or what they start from, one message tells it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app

WRONG = {  # three models and files that are not there
    "pretrain": ["init=no/model", "teacher=[no/first,no/second]", "distill=kd"],
    "finetune": ["task=sst2", "task.path=no/data", "checkpoint=no/model", "teacher=no/teacher"],
}
TYPES = ["train.batch_size=0", "optim.lr=many"]  # that no setting of these can have


def problems(verb: str, *words: str) -> list[str]:
    """The problems that a command tells of."""
    done = CliRunner().invoke(make_app(), [verb, *words, "train.device=cpu"])
    assert done.exit_code == 2, done.output
    text = done.output + (done.stderr if done.stderr_bytes else "")
    lines = dict.fromkeys(line[2:] for line in text.splitlines() if line.startswith("- "))
    assert f"{len(lines)} problems" in text
    return list(lines)


@pytest.mark.parametrize("verb", WRONG)
def test_three_wrong_parents_and_two_wrong_settings(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = problems(verb, *WRONG[verb], *TYPES)
    assert len(told) == 5
    assert sum(line.startswith(("train.batch_size", "optim.lr")) for line in told) == 2
    assert sum("no/" in line for line in told) == 3
    assert not list(tmp_path.iterdir())


def test_wrong_parents_beside_settings_that_do_not_fit_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = problems("pretrain", *WRONG["pretrain"], "train.micro_batch_size=5", "init_into=front")
    assert sum("no/" in line for line in told) == 3
    assert sum(line.startswith("train.") for line in told) == 1


def test_one_wrong_parent_is_told_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(make_app(), ["pretrain", "init=no/model"])
    assert done.exit_code == 3
    assert "problems" not in done.output + done.stderr
