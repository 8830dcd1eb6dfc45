"""`plmctl pretrain` as a user runs it: resume bit for bit, two processes, signals, stages,
further pretraining.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.training.checkpoint import Checkpoints
from plmctl.training.rundir import lock_folder

TINY = [
    "size=tiny",
    "size.width=32",
    "size.inner_width=64",
    "format.max_length=48",
    "train.batch_size=8",
    "eval.rows=8",
]
# of a record: differ from run to run
SPEED = ("tokens_per_second", "data_wait", "mfu", "seconds", "slowest_rank", "slowest_over")
RUNS = {
    "bert": ("wordpiece", []),
    "roberta": ("byte_bpe", []),
    "gpt": ("byte_bpe", ["tokenizer.specials=gpt2"]),
}


def pretrain(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(make_app(), ["pretrain", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


def curve(run: Path) -> list[dict]:
    """The logged records without what depends on the clock."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [
        {key: value for key, value in json.loads(line).items() if key not in SPEED}
        for line in lines
    ]


def state(checkpoint: Path) -> dict[str, torch.Tensor]:
    files = sorted(checkpoint.glob("*.safetensors"))
    return {
        f"{file.stem}/{name}": tensor for file in files for name, tensor in load_file(file).items()
    }


def same(left: Path, right: Path) -> bool:
    one, other = state(left), state(right)
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def tokens(recipe: str, tokens_of: Callable[..., Path]) -> str:
    kind, settings = RUNS[recipe]
    return f"data.path={tokens_of(kind, *settings)}"


@pytest.mark.parametrize(
    ("recipe", "precision", "micro"),
    [
        pytest.param("bert", "bf16", 50, marks=pytest.mark.slow),
        ("roberta", "fp32", 50),
        pytest.param("gpt", "fp32", 200, marks=pytest.mark.slow),
    ],
)
def test_resume_continues_bit_for_bit(
    recipe: str, precision: str, micro: int, tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    """Dropout on, over the end of an epoch: the weights, moments, generators and the curve of a
    run that was never stopped.
    """
    whole, part = tmp_path / "whole", tmp_path / "part"
    words = [
        recipe,
        *TINY,
        tokens(recipe, tokens_of),
        f"train.precision={precision}",
        f"train.micro_batch_size={micro}",
        "train.batch_size=200",
    ]
    pretrain(
        *words,
        "train.steps=8",
        "train.save_every=5",
        "train.keep_last=9",
        "train.log_every=3",
        f"run.dir={whole}",
    )
    progress = json.loads((whole / "checkpoints/step-8/trainer.json").read_text())
    assert progress["reader"]["sources"]["text"]["epoch"] >= 1, (
        "the run must cross an epoch boundary"
    )
    shutil.copytree(whole, part)
    shutil.rmtree(part / "checkpoints/step-8")
    output = pretrain("--resume", f"run.dir={part}")
    assert same(whole / "checkpoints/step-8", part / "checkpoints/step-8"), output
    assert curve(whole) == curve(part)


def test_evaluation_and_saving_change_no_bit(
    tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    words = ["bert", *TINY, tokens("bert", tokens_of), "train.steps=6", "train.log_every=2"]
    pretrain(*words, "train.eval_every=0", "train.save_every=0", f"run.dir={tmp_path / 'bare'}")
    pretrain(*words, "train.eval_every=1", "train.save_every=2", f"run.dir={tmp_path / 'busy'}")
    assert same(tmp_path / "bare/checkpoints/step-6", tmp_path / "busy/checkpoints/step-6")


def test_validation_does_not_depend_on_the_noise_of_the_run(
    tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    """`eval.noise` and `eval.seed`: two runs whose weights are the same (rate 0) validate the
    same.
    """
    words = [
        "roberta",
        *TINY,
        tokens("roberta", tokens_of),
        "train.steps=1",
        "optim.lr=0",
        "optim.weight_decay=0",
    ]
    found = []
    for name, extra in {"a": ["noise.rate=0.15"], "b": ["noise.rate=0.5"]}.items():
        pretrain(*words, *extra, f"run.dir={tmp_path / name}")
        found.append(next(r["valid/loss"] for r in curve(tmp_path / name) if "valid/loss" in r))
    assert found[0] == found[1]


def test_two_processes_make_the_same_run(tokens_of: Callable[..., Path], tmp_path: Path) -> None:
    """The losses of one process at the same global batch, to rounding, dropout 0; then one
    process resumes the run of two.
    """
    words = [
        "gpt",
        *TINY,
        tokens("gpt", tokens_of),
        "model.embedding.dropout=0.0",
        "train.precision=fp32",
        "train.log_every=1",
    ]
    # the rate must not depend on the length of the run
    words += ["schedule=constant", "schedule.warmup_steps=0"]
    one, two = tmp_path / "one", tmp_path / "two"
    pretrain(*words, "train.steps=4", f"run.dir={one}")
    pretrain(*words, "train.steps=3", "train.processes=2", f"run.dir={two}")
    losses = [[r["loss"] for r in curve(run) if "loss" in r][:3] for run in (one, two)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    pretrain("--resume", f"run.dir={two}", "train.processes=1", "train.steps=4")
    last = [[r["loss"] for r in curve(run) if "loss" in r][-1] for run in (one, two)]
    assert last[0] == pytest.approx(last[1], rel=1e-4)


@pytest.mark.slow  # test_tokenize_command.py has one Ctrl-C
def test_ctrl_c_saves_and_says_how_to_go_on(tokens_of: Callable[..., Path], tmp_path: Path) -> None:
    run = tmp_path / "my run"
    words = [
        "gpt",
        *TINY,
        tokens("gpt", tokens_of),
        "train.steps=100000",
        "train.log_every=1",
        "train.eval_every=0",
        f"run.dir={run}",
    ]
    child = subprocess.Popen(
        [sys.executable, "-m", "plmctl", "pretrain", *words], stderr=subprocess.PIPE, text=True
    )
    for _ in range(600):
        if (run / "metrics.jsonl").exists() and len(curve(run)) > 3:
            break
        time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 130
    assert (
        f"plmctl pretrain --resume run.dir='{run}'" in errors
        or f"plmctl pretrain --resume 'run.dir={run}'" in errors
    )
    saved = Checkpoints(run / "checkpoints").newest()
    assert saved is not None
    step = int(saved.name.removeprefix("step-"))
    pretrain("--resume", f"run.dir={run}", f"train.steps={step + 2}")
    assert [r["step"] for r in curve(run) if "loss" in r] == list(range(1, step + 3))


def test_stages_change_the_length(tokens_of: Callable[..., Path], tmp_path: Path) -> None:
    stages = (
        "train.stages=[{share:0.5,format.max_length:24},"
        "{share:0.5,format.max_length:96,train.batch_size:4}]"
    )
    pretrain(
        "bert",
        *TINY,
        tokens("bert", tokens_of),
        "train.steps=4",
        "train.log_every=1",
        stages,
        f"run.dir={tmp_path / 'run'}",
    )
    records = [r for r in curve(tmp_path / "run") if "loss" in r]
    assert [r["stage"] for r in records] == [0, 0, 1, 1]
    table = state(tmp_path / "run/checkpoints/step-4")["model/backbone.position.table.weight"]
    assert len(table) == 96  # sized for the longest


def test_further_pretraining_with_another_objective(
    tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    pretrain("bert", *TINY, tokens("bert", tokens_of), "train.steps=2", f"run.dir={first}")
    words = [
        f"init={first}/checkpoints/step-2",
        "objective=[mlm]",
        "format=blocks",
        "format.max_length=40",
        "optim.lr=0",
        "optim.weight_decay=0",
    ]
    output = pretrain(
        "bert",
        *words,
        tokens("bert", tokens_of),
        "train.steps=1",
        "train.batch_size=4",
        f"run.dir={second}",
    )
    one, other = (state(run / f"checkpoints/step-{n}") for run, n in ((first, 2), (second, 1)))
    shared = [name for name in one if name.startswith("model/backbone.") and name in other]
    assert shared
    assert all(torch.equal(one[name], other[name]) for name in shared)
    assert "pooler" in output or "heads" in output  # says what was taken and what was not
    # killed before its first save: it begins again, from the same weights
    shutil.rmtree(second / "checkpoints")
    pretrain("--resume", f"run.dir={second}")
    again = state(second / "checkpoints/step-1")
    assert all(torch.equal(one[name], again[name]) for name in shared)
    # a fresh optimizer
    assert (
        json.loads((second / "checkpoints/step-1/trainer.json").read_text())["progress"]["step"]
        == 1
    )


def test_a_second_run_in_the_same_folder_is_refused(
    tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    words = ["gpt", *TINY, tokens("gpt", tokens_of), "train.steps=1", f"run.dir={tmp_path / 'run'}"]
    pretrain(*words)
    assert "not empty" in pretrain(*words, code=2)
    with lock_folder(tmp_path / "run"):
        assert "a run is going on there" in pretrain(*words, code=2)
    assert "finished" in pretrain("--resume", f"run.dir={tmp_path / 'run'}")


def test_what_fails_before_the_first_update_can_be_corrected(
    tokens_of: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that was there stays, empty; a later failure keeps what was made."""
    run = tmp_path / "run"
    words = ["gpt", *TINY, tokens("gpt", tokens_of), "train.steps=2", f"run.dir={run}"]
    run.mkdir()
    assert "is filled by" in pretrain(*words, "format.max_length=900000", code=3)
    assert list(run.iterdir()) == []

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("plmctl.runs.pretraining_plan.describe_run", stopped)
        pretrain(*words, code=130)
    assert list(run.iterdir()) == []
    with monkeypatch.context() as patch:
        patch.setattr("plmctl.runs.session._say_farewell", stopped)
        pretrain(*words, code=130)
    assert (run / "checkpoints/step-2").is_dir()
    assert (run / "config.yaml").is_file()


# the code of a failed process: tests/training/test_distributed.py; the folder: above
@pytest.mark.slow
def test_what_fails_before_the_first_update_of_two_processes(
    tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    words = [
        "gpt",
        *TINY,
        tokens("gpt", tokens_of),
        "train.steps=2",
        f"run.dir={tmp_path}",
        "format.max_length=900000",
    ]
    command = [sys.executable, "-m", "plmctl", "pretrain", *words, "train.processes=2"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 3, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_finished_run_can_be_made_longer(tokens_of: Callable[..., Path], tmp_path: Path) -> None:
    words = [
        "gpt",
        *TINY,
        tokens("gpt", tokens_of),
        "schedule=constant",
        f"run.dir={tmp_path / 'run'}",
    ]
    pretrain(*words, "train.steps=1")
    output = pretrain("--resume", f"run.dir={tmp_path / 'run'}", "train.steps=3")
    assert "train.steps: 1 -> 3" in output
    assert "noise.rate" not in output
    refused = pretrain("--resume", f"run.dir={tmp_path / 'run'}", "optim.lr=0.5", code=2)
    assert "optim.lr" in refused


def test_preview_and_dry_run_write_nothing(
    tokens_of: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["bert", *TINY, tokens("bert", tokens_of)]
    assert pretrain(*words, "--preview", "3").count(" of text: ") == 3
    report = json.loads(pretrain(*words, "--dry-run", "--json"))
    assert report["run"]["updates"] == 2000
    assert "transformers" not in report["run"]  # BertForPreTraining has this structure
    other = json.loads(pretrain(*words, "model.stack.layout=fa", "--dry-run", "--json"))
    assert other["run"]["transformers"].startswith("has no class for this model (")
    epochs = ["train.steps=null", "train.epochs=2", "--dry-run", "--json"]
    run = json.loads(pretrain(*words, *epochs))["run"]
    assert run["updates"] == run["tokens"] == "known once the tokens are cut into rows"
    raw = [*(word for word in words if not word.startswith("data.path=")), "data.path=builtin"]
    assert (
        "at most 1,048,576 characters of it" in json.loads(pretrain(*raw, *epochs))["run"]["tokens"]
    )
    assert list(tmp_path.iterdir()) == []
