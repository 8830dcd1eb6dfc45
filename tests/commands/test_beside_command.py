"""Fine-tuning on several tasks at once, from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from plmctl.artifacts.loading import find, load, open_source
from plmctl.config.compose import compose
from plmctl.jobs.sweep_job import SweepJob, read_last_metrics, score
from plmctl.jobs.work import Outcome
from plmctl.report import sweeps
from plmctl.storage.reading import read_tensors
from plmctl.training.log import read_metrics
from tests.command import plmctl

SHORT = [
    *("train.epochs=null", "train.steps=6", "train.eval_every=3", "train.save_every=3"),
    *("train.precision=fp32", "train.threads=1", "train.batch_size=8", "optim.lr=1e-3"),
    "train.log_every=1",
    *("task.max_length=32", "task=classification"),
]
MORE = ["beside.more.task=classification", "beside.more.path=nowhere"]
SCRATCH = ["size=tiny", "tokenizer.vocab_size=40", "checkpoint=null"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three tables and tagged sentences, `many` with twice as many examples."""
    folder = tmp_path_factory.mktemp("data")
    for task, labels, size in (("films", "bad good", 32), ("many", "a b c", 64), ("few", "x y", 8)):
        (folder / task).mkdir()
        for name, count in (("train", size), ("dev", 12)):
            names = labels.split()
            rows = [f"a film {n} of {names[n % len(names)]}\t{names[n % len(names)]}"
                for n in range(count)]  # fmt: skip
            text = "\n".join(["text\tlabel", *rows]) + "\n"
            (folder / task / f"{name}.tsv").write_text(text)
    (folder / "tags").mkdir()
    sentence = "Anna B-PER\nsaw O\nBern B-LOC\n\n"
    (folder / "tags" / "train.txt").write_text(sentence * 16)
    (folder / "tags" / "dev.txt").write_text(sentence)
    return folder


def beside(data: Path, name: str, task: str = "classification", *overrides: str) -> list[str]:
    words = [f"beside.{name}.task={task}", f"beside.{name}.path={data}/{name}"]
    length = ["task.max_length=32", *overrides]
    return [*words, f"beside.{name}.overrides=[{','.join(length)}]"]


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "together"
    others = [*beside(data, "many"), *beside(data, "tags", "conll2003")]
    words = [f"task.path={data}/films", f"run.dir={folder}", "train.best_metric=many/loss"]
    plmctl("finetune", *SCRATCH, *SHORT, *words, *others)
    return folder


def read_result(run: Path) -> dict[str, Any]:
    return json.loads((run / "result.json").read_text())


def test_its_files_may_be_a_list(data: Path, tmp_path: Path) -> None:
    files = ",".join(f"{data}/many/{name}.tsv" for name in ("train", "dev"))
    other = ["beside.many.task=classification", f"beside.many.path=[{files}]"]
    words = [f"task.path={data}/films", f"run.dir={tmp_path}/run", "task.max_length=32"]
    assert "many_class" in plmctl("finetune", *SCRATCH, *SHORT, *words, *other, "--dry-run")


def test_each_task_has_its_head_its_scores_and_its_predictions(run: Path) -> None:
    heads = load(run).model.heads
    assert {"class", "many_class", "tags_tag"} <= set(heads)
    assert heads["many_class"].linear.weight.shape[0] == 3
    result = read_result(run)
    assert set(result["beside"]) == {"many", "tags"}
    assert "accuracy" in result["beside"]["many"]["metrics"]["dev"]
    assert "f1" in result["beside"]["tags"]["metrics"]["dev"]
    lines = (run / "predictions" / "many.dev.jsonl").read_text().splitlines()
    assert {json.loads(line)["gold"] for line in lines} == {"a", "b", "c"}


def test_a_metric_of_a_task_beside_chooses_the_checkpoint(run: Path, data: Path) -> None:
    lines = list(read_metrics(run / "metrics.jsonl"))
    measured = [line["valid/many/loss"] for line in lines if "valid/many/loss" in line]
    state = json.loads((find(run) / "trainer.json").read_text())
    assert len(measured) == 2
    assert state["progress"]["best"] == pytest.approx(min(measured), rel=1e-4)
    words = [f"task.path={data}/films", *beside(data, "many"), "train.best_metric=many/los"]
    said = plmctl("finetune", *SCRATCH, *SHORT, *words, code=2)
    assert "many/accuracy" in said
    assert "fix: train.best_metric=many/loss" in said


def test_a_sweep_ranks_by_the_metric_of_a_task_beside(
    run: Path, data: Path, tmp_path: Path
) -> None:
    words = [*beside(data, "many"), *beside(data, "tags", "conll2003")]
    words += [f"task.path={data}/films", f"run.dir={run}", "train.best_metric=many/loss"]
    spec = compose("finetune", None, [*SCRATCH, *SHORT, *words])
    job, metrics = SweepJob(tmp_path, 0, tmp_path, (), (), spec), read_last_metrics(run)
    job.write_end(Outcome(0), metrics)
    best = sweeps.read_record(tmp_path)["best"]
    assert best == ["valid/many/loss", False]
    loss = read_result(run)["beside"]["many"]["metrics"]["dev"]["loss"]
    assert score(metrics, (best[0], best[1])) == loss


def test_a_task_beside_is_a_checkpoint_of_its_own(run: Path, data: Path) -> None:
    alone = load(run / "beside" / "many")
    assert "many_class" not in alone.model.heads
    whole = load(run).model
    assert torch.equal(
        alone.model.heads["class"].linear.weight, whole.heads["many_class"].linear.weight
    )
    out = run.parent / "again.jsonl"
    plmctl("eval", f"checkpoint={run}/beside/many", f"out={out}", "split=dev")
    again = [json.loads(line) for line in out.read_text().splitlines()]
    kept = (run / "predictions" / "many.dev.jsonl").read_text().splitlines()
    assert [row["guess"] for row in again] == [json.loads(line)["guess"] for line in kept]
    # and it is trained further alone, with the head that it has
    further = run.parent / "further"
    words = [f"task.path={data}/many", f"checkpoint={run}/beside/many", f"run.dir={further}"]
    plmctl("finetune", *SHORT, *words, "optim.lr=0")
    taken = open_source(further).tensors["heads.class.linear.weight"]
    assert torch.equal(taken, whole.heads["many_class"].linear.weight)


@pytest.mark.slow  # test_pretrain_command.py resumes
def test_stopped_and_resumed_it_is_the_same(data: Path, run: Path) -> None:
    again = run.parent / "resumed"
    others = [*beside(data, "many"), *beside(data, "tags", "conll2003")]
    words = [f"task.path={data}/films", f"run.dir={again}"]
    plmctl("finetune", *SCRATCH, *SHORT, *words, *others)
    for last in ("step-6",):
        for file in sorted((again / "checkpoints" / last).rglob("*"), reverse=True):
            file.unlink() if file.is_file() else file.rmdir()
        (again / "checkpoints" / last).rmdir()
    plmctl("finetune", "--resume", f"run.dir={again}")
    first, second = (
        read_tensors(folder / "checkpoints" / "step-6" / "model.safetensors")
        for folder in (run, again)
    )
    assert all(torch.equal(value, second[name]) for name, value in first.items())


def test_the_loss_of_an_update_is_that_of_its_task(run: Path) -> None:
    """An update logs the loss of one task and no other."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [{name for name in line if name.startswith("loss/")} for line in lines]
    names = {"loss/class", "loss/many_class", "loss/tags_tag"}
    assert all(len(seen & names) == 1 for seen in losses if seen)
    assert set().union(*losses) == names


@pytest.mark.parametrize(
    ("code", "words", "told"),
    [
        (
            2,
            ["beside.more.task=clasification", "beside.more.path=x"],
            ["beside.more", "classification"],
        ),
        (
            3,
            ["beside.more.task=classification", "beside.more.path=nowhere"],
            ["beside.more", "nowhere"],
        ),
        (2, ["beside.more.tsk=classification"], ["beside", "must have 'task'"]),
        (
            2,
            [*MORE, "train.frozen=[backbone]", "train.frozen_outputs=once"],
            ["train.frozen_outputs", "rows of one task"],
        ),
        (2, ["mixing=temperature"], ["mixing", "no side task", "beside.sst2={task: sst2"]),
        (
            2,
            ["beside.more.task=classification", "beside.more.overrides=[optim.lr=1]"],
            ["optim.lr=1", "the run's own"],
        ),
        (2, ["beside.text.task=classification"], ["beside.text", "name"]),
    ],
)
def test_what_is_wrong_is_told_before_work(
    data: Path, tmp_path: Path, code: int, words: list[str], told: list[str]
) -> None:
    given = [f"task.path={data}/films", f"run.dir={tmp_path}/run"]
    output = plmctl("finetune", *SCRATCH, *SHORT, *given, *words, code=code)
    assert all(word in output for word in told), output
    assert not (tmp_path / "run").exists()


@pytest.mark.slow  # test_a_task_beside_is_a_checkpoint_of_its_own stays
def test_tasks_beside_start_from_a_checkpoint_and_share_its_pooling(run: Path, data: Path) -> None:
    others = [*beside(data, "many"), *beside(data, "tags", "conll2003")]
    given = [f"task.path={data}/films", f"checkpoint={run}", f"run.dir={run.parent}/pooled"]
    plmctl("finetune", *SHORT, *given, *others, "row_pooling=concat", "train.steps=1")
    heads = load(run.parent / "pooled").model.heads
    width = heads["tags_tag"].linear.weight.shape[1]
    assert heads["many_class"].dense.weight.shape == (width, 3 * width)


def test_fixes_are_settings_of_the_task_beside(data: Path, tmp_path: Path) -> None:
    given = [f"task.path={data}/films", f"run.dir={tmp_path}/run", "beside.more.path=x"]
    wrong = plmctl("finetune", *SCRATCH, *SHORT, *given, "beside.more.task=clasification", code=2)
    assert "fix: beside.more.task=classification" in wrong
    words = ["beside.more.task=classification", "beside.more.overrides=[task.max_lenght=64]"]
    wrong = plmctl("finetune", *SCRATCH, *SHORT, *given, *words, code=2)
    assert "fix: 'beside.more.overrides=[task.max_length=64]'" in wrong
