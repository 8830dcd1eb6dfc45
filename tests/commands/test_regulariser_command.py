"""Adversarial training from the command line: several kinds of heads, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plmctl.storage.reading import read_tensors
from plmctl.training.log import read_metrics
from tests.command import plmctl

SMALL = [
    *("size=tiny", "size.width=32", "size.inner_width=64", "tokenizer=char", "checkpoint=null"),
    *("train.precision=fp32", "train.threads=1", "train.epochs=null", "train.steps=4"),
    *("train.batch_size=4", "optim.lr=1e-2", "train.log_every=1", "train.eval_every=0"),
]
TABLES = {
    "classification": ["text\tlabel", "a fine film\tgood", "a poor film\tbad"],
    "regression": ["text\tlabel", "a fine film\t0.9", "a poor film\t0.1"],
    "seq2seq": ["source\ttarget", "a fine film\tfine", "a poor film\tpoor"],
}


def write(folder: Path, task: str) -> Path:
    header, *rows = TABLES[task]
    for name in ("train", "dev"):
        (folder / f"{name}.tsv").write_text("\n".join([header, *(rows * 4)]) + "\n")
    return folder


def finetune(folder: Path, task: str, *words: str) -> Path:
    run = folder / "run"
    made = write(folder, task)
    plmctl("finetune", f"task={task}", f"task.path={made}", f"run.dir={run}", *SMALL, *words)
    return run


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("task", "regulariser"),
    [("classification", "freelb"), ("regression", "smart"), ("classification", "pgd")],
)
def test_it_trains_and_says_so(tmp_path: Path, task: str, regulariser: str) -> None:
    run = finetune(tmp_path, task, f"regulariser={regulariser}", "task.max_length=16")
    lines = [line for line in read_metrics(run / "metrics.jsonl") if "loss" in line]
    assert len(lines) >= 4
    smooth = [name for line in lines for name in line if name.startswith("loss/smoothness/")]
    assert bool(smooth) is (regulariser == "smart")
    assert json.loads((run / "result.json").read_text())["metrics"]["dev"]


@pytest.mark.slow  # test_it_trains_and_says_so stays
def test_the_encoder_and_the_decoder_of_a_writer_are_moved(tmp_path: Path) -> None:
    runs = []
    for name in ("none", "fgm"):
        (tmp_path / name).mkdir()
        words = [f"regulariser={name}", "model=encoder_decoder", "task.max_length=16"]
        run = finetune(tmp_path / name, "seq2seq", *words, "train.steps=1")
        runs.append(read_tensors(run / "checkpoints" / "step-1" / "model.safetensors"))
    changed = [name for name in runs[0] if not bool((runs[0][name] == runs[1][name]).all())]
    assert {name.split(".")[1] for name in changed} >= {"encoder", "decoder"}


def test_a_compiled_model_and_one_without_words_are_refused(tmp_path: Path) -> None:
    words = ["task=classification", f"task.path={write(tmp_path, 'classification')}", *SMALL]
    for more, reason in (
        (["train.compile=true"], "changes what a compiled model reads"),
        (["train.frozen_outputs=once", "train.frozen=[backbone]"], "frozen layers read"),
        (["model=bilm", "tokenizer=word"], "regulariser='fgm': none: this model reads characters"),
    ):
        asked = [*words, "regulariser=fgm", f"run.dir={tmp_path / 'run'}", *more]
        assert reason in " ".join(plmctl("finetune", *asked, code=2).split())


def test_pretraining_has_it_too(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"a film of {n} stars, and of more" for n in range(60)))
    words = [word for word in SMALL if not word.startswith("checkpoint")]
    run = f"run.dir={tmp_path / 'run'}"
    plmctl(
        "pretrain", "roberta", f"data.path={text}", run, *words, "regulariser=alum",
        "regulariser.weight=10", "format.max_length=24", "data.valid_share=0.1",
    )  # fmt: skip
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert any("loss/smoothness/mlm" in line for line in lines)
