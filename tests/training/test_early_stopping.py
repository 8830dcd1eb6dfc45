"""`train.patience` ends a run that gets no better; `train.best_metric` says what better is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from plmctl.config.groups import Train
from plmctl.runs.spacing import count_validations, space_validations
from plmctl.training.budget import Budget
from tests.command import plmctl

SMALL = [
    *("task=classification", "size=tiny", "size.width=32", "size.inner_width=64", "tokenizer=char"),
    *("train.precision=fp32", "train.threads=1", "train.batch_size=8", "task.max_length=32"),
    *("train.epochs=null", "train.steps=40", "train.eval_every=2", "checkpoint=null"),
    *("schedule=constant", "optim.lr=1e-9", "train.save_every=4", "train.log_every=10"),
]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table")
    for split in ("train", "dev"):
        lines = [f"a {'fine' if n % 2 else 'dull'} film\t{n % 2}" for n in range(16)]
        (folder / f"{split}.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    return folder


def tune(run: Path, table: Path, *words: str, code: int = 0) -> str:
    return plmctl("finetune", *SMALL, f"task.path={table}", f"run.dir={run}", *words, code=code)


def validations(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "valid/accuracy" in line]


@pytest.mark.slow  # test_any_metric_chooses_the_checkpoint stays
def test_a_run_ends_when_nothing_gets_better(table: Path, tmp_path: Path) -> None:
    tune(tmp_path / "run", table, "train.patience=3")
    # at a rate of nearly 0 the score stays what it was first: three more validations, and the end
    found = validations(tmp_path / "run")
    best = max(
        range(len(found)), key=lambda n: (found[n]["valid/accuracy"], -found[n]["valid/loss"])
    )
    assert found[-1]["step"] == found[best]["step"] + 3 * 2
    assert (tmp_path / f"run/checkpoints/step-{found[best]['step']}").is_dir()
    assert (tmp_path / "run/result.json").exists()
    log = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    trained = [line["step"] for line in log if "lr" in line]
    assert trained == [1, found[-1]["step"]]  # as a run that goes to its end
    half = tmp_path / "half"  # the count goes on in a resumed run
    shutil.copytree(tmp_path / "run", half)
    for folder in (half / "checkpoints").iterdir():
        if int(folder.name[5:]) == found[-1]["step"]:
            shutil.rmtree(folder)
    plmctl("finetune", "--resume", f"run.dir={half}")
    assert validations(half)[-1]["step"] == found[-1]["step"]
    again = plmctl("finetune", "--resume", f"run.dir={half}")
    assert validations(half)[-1]["step"] == found[-1]["step"], again


def test_any_metric_chooses_the_checkpoint(table: Path, tmp_path: Path) -> None:
    words = ("train.best_metric=loss", "optim.lr=3e-3", "train.steps=12", "train.save_every=12")
    tune(tmp_path / "run", table, *words)
    found = validations(tmp_path / "run")
    best = min(found, key=lambda record: record["valid/loss"])["step"]
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["checkpoint"].endswith(f"step-{best}")


def test_mistakes_are_named_before_any_work(table: Path, tmp_path: Path) -> None:
    said = tune(tmp_path / "x", table, "train.best_metric=macro_f", code=2)
    assert "train.best_metric=macro_f" in said.replace("'", "")
    assert "fix: train.best_metric=macro_f1" in said
    said = tune(tmp_path / "x", table, "train.patience=2", "train.keep_best=false", code=2)
    assert "train.keep_best=false" in said
    assert "fix: train.patience=null" in said
    said = tune(tmp_path / "x", table, "train.patience=2", "train.eval_every=0", code=2)
    assert "fix: train.eval_every=null" in said
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("steps", "validations"), [(1, 1), (5, 5), (10, 5), (20, 5), (49, 5), (50, 10), (1000, 10)]
)
def test_a_short_run_is_validated_five_times(steps: int, validations: int) -> None:
    every = space_validations(steps)
    assert len({*range(every, steps + 1, every), steps}) == validations
    assert count_validations(Train(), steps) == validations
    assert count_validations(Train(eval_every=0), steps) == 1
    assert count_validations(Train(eval_every=3), steps) == -(-steps // 3)


@pytest.mark.parametrize(
    ("steps", "lines"), [(1, 1), (5, 5), (12, 12), (30, 11), (48, 13), (99, 12), (100, 11)]
)
def test_a_short_run_has_about_ten_lines(steps: int, lines: int) -> None:
    """The first, each `space_lines` and the last one."""
    every = Budget(steps=steps).space_lines()
    assert len({1, *range(every, steps + 1, every), steps}) == lines
    others = (Budget(steps=100), Budget(steps=5000), Budget(tokens=20), Budget(minutes=0.1))
    assert {budget.space_lines() for budget in others} == {10}
