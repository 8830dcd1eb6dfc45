"""Runs of every kind that an earlier plmctl wrote go on to the same numbers, and are scored with
them.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import plmctl
from plmctl.cli.app import make_app

SAVED = Path(__file__).parents[1] / "fixtures" / "saved"  # its README says how they were made
VERBS = {
    **dict.fromkeys(("gpt2", "electra", "xlnet", "bart"), "pretrain"),
    **dict.fromkeys(("tagging", "squad", "choice", "seq2seq", "lora"), "finetune"),
    "distilled": "distill",
    "graph": "graph",
}
REDRAWN = ("electra",)  # its generator drew other samples then
SCORED = ("tagging", "squad", "choice", "seq2seq", "lora", "teacher", "distilled")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kinds")
    with tarfile.open(SAVED / "kinds.tar.xz") as packed:
        packed.extractall(folder)  # a file of this folder
    return folder


@pytest.fixture
def runs(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the runs and their data, in the current folder."""
    shutil.copytree(archive, tmp_path / "runs")
    monkeypatch.chdir(tmp_path / "runs")
    return tmp_path / "runs"


def plmctl_says(*words: str) -> str:
    done = CliRunner().invoke(make_app(), list(words))
    assert done.exit_code == 0, done.output
    return str(done.stdout)


def expected(archive: Path, run: str) -> dict[str, Any]:
    """The last numbers of the run that nothing stopped, by the code that wrote the folder."""
    found: dict[str, Any] = json.loads((archive / "expected.json").read_text())[run]
    return found


def near(wanted: dict[str, float]) -> Any:
    """Equal up to the order in which a processor adds."""
    return pytest.approx(wanted, rel=2e-4, abs=1e-5)


@pytest.mark.parametrize("run", VERBS)
def test_it_goes_on_to_the_same_numbers(run: str, archive: Path, runs: Path) -> None:
    wanted = expected(archive, run)
    plmctl_says(VERBS[run], "--resume", f"run.dir={run}")
    lines = (runs / run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    last = {key: value for each in records if each["step"] == 4 for key, value in each.items()}
    if run in REDRAWN:
        held = [key for key in wanted["last"] if key.startswith("valid/loss")]
        assert [last[key] for key in held] == pytest.approx(
            [wanted["last"][key] for key in held], rel=0.01
        )
        return
    assert {key: last[key] for key in wanted["last"]} == near(wanted["last"])
    if run not in SCORED:
        return
    shown = json.loads(plmctl_says("eval", f"checkpoint={run}", "--json", "device=cpu"))
    assert shown["metrics"]["dev"] == near(wanted["metrics"]["dev"])


def test_models_load_and_vectors_are_read(archive: Path, runs: Path) -> None:
    for run in (*VERBS, "bert", "teacher"):
        if run != "graph":
            assert sum(each.numel() for each in plmctl.load(run).model.parameters()) > 100
    Path("lines.txt").write_text("the cat sees a river\n")
    plmctl_says("embed", "checkpoint=words.vec", "input=lines.txt", "out=e.npz")
    table = dict(line.split(" ", 1) for line in Path("words.vec").read_text().splitlines()[1:])
    words = [table[word] for word in ["the", "cat", "sees", "river"] if word in table]
    mean = np.array([np.array(row.split(), dtype=float) for row in words]).mean(0)
    arrays = np.load("e.npz")
    assert arrays[next(iter(arrays))].reshape(-1) == pytest.approx(mean, abs=1e-5)
