"""`plmctl finetune --dry-run`: what the tuning would cost, against its formula written out."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.runs import estimate

WIDTH, INNER, LAYERS, LENGTH, VOCAB, ROWS = 32, 64, 2, 16, 300, 40
SMALL = [
    f"size.width={WIDTH}",
    f"size.inner_width={INNER}",
    f"size.num_layers={LAYERS}",
    "size.num_heads=2",
    f"task.max_length={LENGTH}",
    f"tokenizer.vocab_size={VOCAB}",
    "train.batch_size=8",
    "train.precision=fp32",
]


@pytest.fixture
def glue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    for split in ("train", "dev"):
        rows = "".join(f"text {n} of {split}\t{n % 2}\n" for n in range(ROWS))
        Path(f"{split}.tsv").write_text(f"sentence\tlabel\n{rows}")
    return [
        "finetune",
        "task=sst2",
        "task.path=.",
        "checkpoint=null",
        "size=tiny",
        *SMALL,
        "--dry-run",
    ]


def said(words: list[str]) -> str:
    done = CliRunner().invoke(make_app(), words, env={"COLUMNS": "100"})
    assert done.exit_code == 0, done.output
    assert not Path("runs").exists()
    return done.stdout


def report(words: list[str]) -> dict[str, Any]:
    return json.loads(said([*words, "--json"]))  # type: ignore[no-any-return]


def test_cost_of_a_classifier(glue: list[str]) -> None:
    found = report(glue)
    matrices = LAYERS * (4 * WIDTH**2 + 2 * WIDTH * INNER)
    heads = (WIDTH**2 + 2 * WIDTH) / LENGTH  # once a row
    flops = 6 * matrices + 12 * LAYERS * LENGTH * WIDTH + 6 * heads
    run, updates = found["run"], 3 * ROWS // 8  # three epochs
    assert run["training FLOPs per token"] == round(flops)
    assert (run["updates"], run["tokens per update, at most"], run["tokens"]) == (
        updates,
        8 * LENGTH,
        updates * 8 * LENGTH,
    )
    assert run["training FLOPs"] == f"{flops * updates * 8 * LENGTH:.3g}"
    assert run["validations"] == f"4, of at most about {ROWS} rows each"
    total = sum(found["parameters"].values())
    assert (
        run["parameters that are trained"]
        == total
        == sum(
            value
            for name, value in found["metrics"]["train"].items()
            if name.startswith("parameters of")
        )
    )
    memory = found["memory"]
    assert (memory["weights"], memory["gradients"]) == (4 * total, 4 * total)
    # two moments; those of spare rows of tables, and a step of each tensor, are in it
    assert 8 * total < memory["optimizer"] < 8.5 * total
    assert memory["activations"] > 0
    costs = found["costs"]
    assert f"{costs['flops']:.3g}" == run["training FLOPs"]
    assert costs["bytes"] == sum(memory.values())
    assert costs["seconds"] > 0.01 * updates  # each of its updates takes that at least


def test_what_is_frozen_keeps_no_gradients(glue: list[str]) -> None:
    found = report([*glue, "train.frozen=[backbone]"])
    heads = (WIDTH + 1) * WIDTH + 2 * (WIDTH + 1)
    assert found["run"]["parameters that are trained"] == heads
    steps = 4 * 4  # bytes: the number of updates, of two matrices and two biases
    assert found["memory"]["gradients"] == 4 * heads
    assert found["memory"]["optimizer"] == 8 * heads + steps


def test_the_time_counts_rows_as_long_as_their_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of 2, 2, 4 and 6 tokens in batches of two: 2 * 2 + 2 * 6 of 4 * 10 tokens."""
    train = SimpleNamespace(batch_tokens=None, batch_size=2)
    spec: Any = SimpleNamespace(tokenizer={"path": "x"}, train=train, checkpoint=None, seed=0)
    lengths, requires = SimpleNamespace(sides=(8, 2)), SimpleNamespace(new_tokens=0)
    task: Any = SimpleNamespace(lengths=lengths, requires=requires, read=lambda name: [*range(4)])
    monkeypatch.setattr(estimate.Tokenizer, "load", lambda path: None)
    rows = SimpleNamespace(rows=None)
    monkeypatch.setattr(estimate.inference, "encode_piece", lambda *given: rows)
    units = SimpleNamespace(length=np.array([6, 2, 4, 2]))
    monkeypatch.setattr(estimate.batches.BatchUnits, "of", lambda rows: units)
    assert estimate._measure_fill(spec, task) == 0.4
    spec.tokenizer = {}  # it is trained later
    assert estimate._measure_fill(spec, task) == 1.0


def test_it_is_shown_as_tables(glue: list[str]) -> None:
    text = said(glue)
    for words in (
        "updates an epoch, at least",
        "Multiply-adds per token",
        "Memory of one process",
        "The run",
        "activations",
    ):
        assert words in text


def test_the_memory_of_several_processes_is_shown_where_it_is_a_question(
    glue: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    divided = "processes that divide the model"
    assert divided not in said(glue)
    assert f"each of 2 {divided}" in " ".join(said([*glue, "train.processes=2"]).split())
    monkeypatch.setattr(estimate, "find_memory", lambda: 1 << 20)
    assert f"each of 8 {divided}" in " ".join(said(glue).split())


def test_a_task_that_writes_counts_sources_and_targets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.tsv").write_text(
        "source\ttarget\n" + "".join(f"a {n}\tb {n}\n" for n in range(ROWS))
    )
    words = [
        "finetune",
        "task=seq2seq",
        "task.path=.",
        "checkpoint=null",
        "size=tiny",
        "model=encoder_decoder",
        *SMALL,
        "task.max_target=8",
        "task.metrics=[exact]",
        "train.steps=5",
        "--dry-run",
    ]
    run = report(words)["run"]
    assert (run["tokens per update, at most"], run["updates"]) == (8 * (LENGTH + 8), 5)


@pytest.mark.slow  # test_remarks.py chooses kernels
def test_a_kernel_is_chosen_for_the_run_whatever_the_checkpoint(glue: list[str]) -> None:
    window = ["pattern=window", "pattern.reach=2"]
    words = ["size=tiny", *SMALL[:4], *window, "tokenizer=char", "train.steps=1"]
    words += ["data.path=train.tsv", "format=blocks", "objective=[mlm]", "format.max_length=16"]
    done = CliRunner().invoke(make_app(), ["pretrain", *words, "run.dir=run"])
    assert done.exit_code == 0, done.output
    words = ["finetune", "task=sst2", "task.path=.", "checkpoint=run", f"task.max_length={LENGTH}"]
    assert "attention" not in report([*words, "--dry-run"])
    shown = report([*words, "kernel=banded", "kernel.block=4", "--dry-run"])["attention"]
    assert shown == "kernel banded: 75% of the scores are computed"  # 3 of 4 blocks
