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


@pytest.mark.parametrize(
    "words",
    [
        ["pretrain", "bert", "data.path=nothere.txt"],
        ["pretrain", "bert", "data.valid_path=nothere.txt"],
        ["pretrain", "tlm", "data.path=nothere.txt", "data.target_path=nothere.txt"],
        ["finetune", "task=sst2", "task.path=nothere.txt", "checkpoint=null"],
        ["distill", "bert", "data.path=nothere.txt", "teacher=nothere.txt"],
    ],
)
def test_a_dry_run_finds_the_files_that_the_run_reads(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the message of the run itself."""
    monkeypatch.chdir(tmp_path)
    dry, real = (
        CliRunner().invoke(make_app(), [*words, "train.device=cpu", *more])
        for more in (["--dry-run"], [])
    )
    assert (dry.exit_code, dry.output) == (real.exit_code, real.output)
    assert dry.exit_code in (2, 3)
    assert "nothere.txt: " in dry.output
    assert not list(tmp_path.iterdir())


def test_every_corpus_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = problems("pretrain", "data.mixture={a:{path:no/a},b:{path:no/b}}", "--dry-run")
    assert [line.partition(":")[0] for line in told] == ["no/a", "no/b"]


def test_types_and_ranges_and_files_in_one_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one part refuses is told whatever is wrong elsewhere, each with its full key."""
    monkeypatch.chdir(tmp_path)
    words = ["train.batch_size=many", "train.clip=x", "model.embedding.dropout=2", "optim.lr=-1"]
    words += ["noise.rate=2", "schedule.warmup_share=3", "format.max_length=2", "data.path=no/text"]
    words += ["pattern=window", "pattern.reach=-1"]
    told = problems("pretrain", "bert", *words)
    keys = [line.partition(": ")[0].partition("=")[0] for line in told]
    assert sorted(keys) == sorted(
        [
            *("train.batch_size", "train.clip", "model.embedding.dropout", "optim.lr"),
            *("noise.token_mask.rate", "schedule.warmup_share", "format.max_length", "no/text"),
            "pattern.reach",
        ]
    )


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("model.embedding.dropout=2", "model.embedding.dropout=2: must be 0 or more, and less"),
        ("model.embedding.dropout=x", "model.embedding.dropout='x': must be a number"),
        ("model.stack.cells.f.activation=no", "model.stack.cells.f.activation='no': one of gelu"),
        ("model.stack.cells.k.kernel=0 model.stack.layout=kf*2", "model.stack.cells.k.kernel=0: "),
        ("heads.mlm.transform=no", "heads.mlm.transform="),
    ],
)
def test_a_mistake_is_told_once_and_with_its_full_key(word: str, answer: str) -> None:
    """Also of a part that another part makes, and of a value that other settings refer to."""
    done = CliRunner().invoke(make_app(), ["pretrain", "bert", *word.split(), "--dry-run"])
    assert done.exit_code == 2
    assert done.output.startswith(f"plmctl: {answer}")
    assert "problems" not in done.output


@pytest.mark.parametrize("words", [["eval"], ["generate"], ["embed", "input=a.txt", "out=a.npz"]])
def test_a_checkpoint_that_was_not_given_is_said_once(words: list[str]) -> None:
    done = CliRunner().invoke(make_app(), words)
    assert done.exit_code == 2
    assert done.stderr == "plmctl: checkpoint: must be given\n  fix: checkpoint=...\n"
