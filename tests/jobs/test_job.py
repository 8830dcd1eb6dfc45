"""A job: what it needs, its line, and the key of all that decides its result."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from plmctl.jobs.job import Job, resolve
from plmctl.jobs.key import key
from plmctl.run.format_1 import TARGETS

RUNS = {"tokenize-1": "/a", "pretrain-2": "/b c"}


def test_it_needs_the_jobs_that_its_config_names() -> None:
    config = {"checkpoint": "job:pretrain-2", "data": {"path": ["job:tokenize-1"]}, "seed": 1}
    job = Job("eval-3", "eval", "an evaluation", {**config, "teacher": "job:pretrain-2"})
    assert job.needs == ("pretrain-2", "tokenize-1")
    assert job.reference == "job:eval-3"


def test_references_become_folders_in_configs_and_words() -> None:
    config = {"n": 1, "checkpoint": "job:pretrain-2", "more": [{"path": "job:tokenize-1"}, "job"]}
    assert resolve(config, RUNS) == {"n": 1, "checkpoint": "/b c", "more": [{"path": "/a"}, "job"]}
    assert resolve(("teacher=[job:pretrain-2,x]", "n=1"), RUNS) == ["teacher=[/b c,x]", "n=1"]


def test_its_line_can_be_typed() -> None:
    words, dirs = ("data.path=job:tokenize-1", "init=job:pretrain-2"), ("own",)
    job = Job("p-3", "pretrain", "one", {}, "bert", words, ("mine",), dirs)
    assert job.line({**RUNS, "p-3": "out/p-3/run"}) == (
        "plmctl pretrain bert data.path=/a 'init=/b c' run.dir=out/p-3/run"
        " --config-dir own --plugin mine"
    )
    job = Job("t-4", "tokenize", "other", {})
    assert job.line({"t-4": "tokens"}) == "plmctl tokenize out=tokens"


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "text.txt").write_text("one")
    return {
        "data": {"path": str(tmp_path / "text.txt"), "cache_dir": "here", "valid_share": 0.1},
        "train": {"steps": 3, "log_every": 2, "threads": 2},
        "optim": {"_target_": "plmctl.training.optim.adamw.AdamW", "lr": 0.1},
        "run": {"dir": "x"},
    }


def changed(config: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    made = copy.deepcopy(config)
    *groups, name = path.split(".")
    node = made
    for group in groups:
        node = node[group]
    node[name] = value
    return made


@pytest.mark.parametrize(
    ("path", "value", "same"),
    [
        ("optim.lr", 0.2, False),
        ("train.steps", 4, False),
        ("data.valid_share", 0.2, False),
        ("train.log_every", 9, True),
        ("train.threads", 1, True),
        ("data.cache_dir", "there", True),
        ("run.dir", "y", True),
    ],
)
def test_the_key_follows_what_decides_the_result(
    config: dict[str, Any], path: str, value: Any, same: bool
) -> None:
    assert (key("pretrain", changed(config, path, value)) == key("pretrain", config)) == same


def test_the_key_follows_the_content_of_files_not_their_place(
    config: dict[str, Any], tmp_path: Path
) -> None:
    before = key("pretrain", config)
    assert len(before) == 16
    assert int(before, 16) >= 0
    assert key("finetune", config) != before
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "text.txt").rename(tmp_path / "elsewhere/text.txt")
    moved = changed(config, "data.path", str(tmp_path / "elsewhere/text.txt"))
    assert key("pretrain", moved) == before
    (tmp_path / "elsewhere/text.txt").write_text("two")
    assert key("pretrain", moved) != before


@pytest.mark.parametrize("former", TARGETS)
def test_a_part_that_was_renamed_keeps_the_keys_of_older_folders(
    config: dict[str, Any], former: str
) -> None:
    old, new = (changed(config, "optim._target_", name) for name in (former, TARGETS[former]))
    assert key("pretrain", old) == key("pretrain", new)
