"""`plmctl eval task=held_out`: the figures of a run's own validation, and of other rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.config.compose import compose
from plmctl.config.spec import thaw
from plmctl.runs.replaying import is_other_text

SHAPE = (
    "size=tiny",
    "size.width=16",
    "size.inner_width=32",
    "size.num_heads=2",
    "format.max_length=24",
    "format.lone_rate=0",
)


@pytest.fixture(scope="module")
def run(tokens_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("held") / "run"
    words = [
        f"data.path={tokens_of('wordpiece')}",
        "train.steps=3",
        "eval.rows=null",
        f"run.dir={folder}",
        *SHAPE,
    ]
    assert CliRunner().invoke(make_app(), ["pretrain", "bert", *words]).exit_code == 0
    return folder


def scores(run: Path, *words: str) -> dict[str, float]:
    done = CliRunner().invoke(
        make_app(), ["eval", f"checkpoint={run}", "task=held_out", "--json", *words]
    )
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)["metrics"]
    return found["text"]


def test_without_other_words_it_is_the_validation_of_the_run(run: Path) -> None:
    records = [
        json.loads(line)
        for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    last = [record for record in records if "valid/loss" in record][-1]
    found = scores(run)
    assert {name for name in found if name.startswith(("loss", "acc"))} == {
        "loss",
        "loss/mlm",
        "loss/nsp",
        "acc/mlm",
        "acc/nsp",
    }
    for name, value in found.items():
        assert value == pytest.approx(last[f"valid/{name}"], rel=1e-3)


def test_other_rows_and_other_noise(run: Path) -> None:
    own = scores(run)
    swapped = scores(run, "format=sentence_order", "format.lone_rate=0")
    assert swapped.keys() == own.keys()
    assert swapped != own
    assert scores(run, "noise=[whole_word_mask]")["loss/mlm"] != own["loss/mlm"]
    alone = scores(run, "task.objectives=[mlm]", "format=full_sentences", "task.rows=64")
    assert set(alone) == {"loss", "loss/mlm", "acc/mlm"}
    assert alone["loss"] == alone["loss/mlm"]


@pytest.mark.slow  # test_other_rows_and_other_noise stays
def test_other_settings_of_an_objective(tokens_of: Callable[..., Path], tmp_path: Path) -> None:
    """As a run has that was trained with them: nothing is learned here."""
    for share in (1.0, 0.5):
        words = [f"data.path={tokens_of('wordpiece')}", "train.steps=1", "optim.lr=0", *SHAPE[:-1]]
        words += [f"objective.clm.asked={share}", f"run.dir={tmp_path / str(share)}"]
        assert CliRunner().invoke(make_app(), ["pretrain", "gpt2", *words]).exit_code == 0
    whole, half = (scores(tmp_path / name)["loss/clm"] for name in ("1.0", "0.5"))
    assert scores(tmp_path / "1.0", "task.settings={asked: 0.5}")["loss/clm"] == half
    assert whole != half


def test_exact_rows(run: Path) -> None:
    plain, exact = scores(run, "task.rows=64"), scores(run, "task.rows=64", "task.exact=true")
    assert set(exact) - set(plain) == {"exact/mlm", "exact/nsp"}
    assert exact["acc/mlm"] == pytest.approx(plain["acc/mlm"], rel=0.2)
    assert exact["exact/nsp"] == exact["acc/nsp"]  # one answer a row
    assert 0 <= exact["exact/mlm"] <= exact["acc/mlm"]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("task.settings={asked: 0.5}",), "settings of objective.mlm: it has none"),
        (("task.objectives=[nps]",), "did you mean 'nsp'"),
        (("task.objectives=[]",), "those of the run: mlm, nsp"),
        (("format=blocks",), "objective.nsp: needs 'labels.pair'"),
        (("noise=[autoencode]",), "noise.autoencode turns into a source"),
    ],
)
def test_what_does_not_fit_is_answered(run: Path, words: tuple[str, ...], answer: str) -> None:
    done = CliRunner().invoke(make_app(), ["eval", f"checkpoint={run}", "task=held_out", *words])
    assert done.exit_code == 2
    assert answer in " ".join(done.output.split())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("recipe", ["electra", "simcse"])
def test_what_an_objective_draws_follows_from_the_seed(
    recipe: str, tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    """A generator's samples, and dropout that stays on: whatever was drawn before."""
    run = tmp_path / recipe
    tokens = f"data.path={tokens_of('wordpiece')}"
    words = [tokens, "train.steps=1", "eval.rows=32", f"run.dir={run}", *SHAPE[:-1]]
    words += ["init=null"] if recipe == "simcse" else []
    assert CliRunner().invoke(make_app(), ["pretrain", recipe, *words]).exit_code == 0
    torch.manual_seed(1)
    first = scores(run)
    torch.manual_seed(2)
    assert scores(run) == first
    assert scores(run, "task.seed=1") != first


@pytest.mark.slow  # test_other_rows_and_other_noise stays
def test_of_another_text_all_is_read_and_of_its_own_what_was_held_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the other text were the validation text of a run on a third one."""
    monkeypatch.chdir(tmp_path)
    for name, start in (("own.txt", 0), ("other.txt", 300), ("third.txt", 600)):
        lines = (f"The number {start + n} and {n * n % 97} words.\n\n" for n in range(60))
        Path(name).write_text("".join(lines))
    words = ["data.path=own.txt", "data.valid_share=0.2", "train.steps=1", "run.dir=run"]
    words += ["tokenizer=byte_bpe", "tokenizer.vocab_size=300", "objective=[mlm]", "format=blocks"]
    done = CliRunner().invoke(make_app(), ["pretrain", "bert", *words, *SHAPE[:-1]])
    assert done.exit_code == 0, done.output
    assert "plmctl eval task=held_out checkpoint=run" in done.output
    run = Path("run")
    assert scores(run, "data.path=other.txt") == pytest.approx(
        scores(run, "data.path=third.txt", "data.valid_path=other.txt")
    )
    assert scores(run, f"data.path={tmp_path / 'own.txt'}", "data.valid_share=0.2") == scores(run)
    part = scores(run, "data.path=other.txt", "data.valid_share=0.1")
    assert part != scores(run, "data.path=other.txt")
    assert scores(run, f"data.path={tmp_path / 'own.txt'}") != scores(run, "data.path=other.txt")


def test_a_run_that_held_nothing_out_is_asked_for_a_text(
    tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    text, folder = tmp_path / "one.txt", tmp_path / "run"
    text.write_text("a cat saw one dog on that mat .\n" * 40)
    words = [f"data.path={text}", "data.lines=running", "train.steps=1", f"run.dir={folder}"]
    tokenizer = f"tokenizer.path={tokens_of('wordpiece')}"
    done = CliRunner().invoke(make_app(), ["pretrain", "bert", *words, tokenizer, *SHAPE])
    assert done.exit_code == 0, done.output
    assert "plmctl report" in done.output
    assert "task=held_out" not in done.output
    asked = CliRunner().invoke(make_app(), ["eval", f"checkpoint={folder}", "task=held_out"])
    assert asked.exit_code == 3
    assert "has held no document out" in asked.output
    assert "data.path=" in asked.output


@pytest.mark.parametrize(
    ("words", "whole"),
    [
        ([], False),
        (["data.path=a.txt"], False),
        (["data.path=./a.txt"], False),
        (["data.path=b.txt"], True),
        (["data.path=[a.txt,b.txt]"], True),
        (["data.path=b.txt", "data.valid_share=0.5"], False),
        (["data.path=b.txt", "data.valid_path=c.txt"], False),
        (["data.path=strings:copy:5"], True),
    ],
)
def test_which_text_is_another_one(words: list[str], whole: bool) -> None:
    own = thaw(compose("pretrain", "bert", ["data.path=a.txt"]))
    spec = compose("eval", None, ["checkpoint=run", "task=held_out", *words])
    assert is_other_text(spec.data.path, spec.provenance.keys, own) == whole
