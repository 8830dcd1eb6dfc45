"""A job: what it needs, its line, and the key of all that decides its result."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from plmctl.config.format_1 import ADDED, TARGETS
from plmctl.config.spec import Provenance
from plmctl.jobs.configs import Configs
from plmctl.jobs.job import Job, resolve
from plmctl.jobs.key import compute_key

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
        node = node.setdefault(group, {})
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
    assert (
        compute_key("pretrain", changed(config, path, value)) == compute_key("pretrain", config)
    ) == same


def test_the_key_follows_the_content_of_files_not_their_place(
    config: dict[str, Any], tmp_path: Path
) -> None:
    before = compute_key("pretrain", config)
    assert len(before) == 16
    assert int(before, 16) >= 0
    assert compute_key("finetune", config) != before
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "text.txt").rename(tmp_path / "elsewhere/text.txt")
    moved = changed(config, "data.path", str(tmp_path / "elsewhere/text.txt"))
    assert compute_key("pretrain", moved) == before
    (tmp_path / "elsewhere/text.txt").write_text("two")
    assert compute_key("pretrain", moved) != before


@pytest.mark.parametrize("key", ["task.weights_from", "first_vectors"])
def test_the_key_follows_the_content_of_every_file(
    config: dict[str, Any], tmp_path: Path, key: str
) -> None:
    (tmp_path / "other.txt").write_text("one")
    given = changed(config, key, str(tmp_path / "other.txt"))
    before = compute_key("eval", given)
    (tmp_path / "other.txt").write_text("two")
    assert compute_key("eval", given) != before


@pytest.mark.parametrize("former", TARGETS)
def test_a_part_that_was_renamed_keeps_the_keys_of_older_folders(
    config: dict[str, Any], former: str
) -> None:
    old, new = (changed(config, "optim._target_", name) for name in (former, TARGETS[former]))
    assert compute_key("pretrain", old) == compute_key("pretrain", new)


@pytest.mark.parametrize("name", ADDED)
def test_a_setting_that_came_later_counts_where_it_changes_something(
    config: dict[str, Any], name: str
) -> None:
    before = compute_key("pretrain", config)
    assert compute_key("pretrain", changed(config, f"train.{name}", ADDED[name])) == before
    assert compute_key("pretrain", changed(config, f"train.{name}", "another")) != before


def test_a_cell_that_came_later_counts_where_a_layout_runs_it(config: dict[str, Any]) -> None:
    def key(layout: str, kernel: int | None) -> str:
        cells = {"a": {"bias": True}} | ({} if kernel is None else {"s": {"kernel": kernel}})
        return compute_key("pretrain", changed(config, "stack", {"layout": layout, "cells": cells}))

    assert key("af*2", 3) == key("af*2", None)
    assert key("saf*2", 3) != key("saf*2", 4)


# of the first format; they name the folders that half-done studies and chains go on with
KEYS = {
    "pretrain bert": "d3bc76df78dbede0",
    "pretrain gpt2": "79e39c14f87ee80d",
    "pretrain xlnet": "d9ae9b8f5394b715",
    "pretrain electra": "cfa8e6f7df20bee6",
    "pretrain transformer": "d09ec5ac0f612ec7",
    "pretrain elmo": "918c2491b8dcaf28",
    "pretrain mass": "9f6d810b423dceef",
    "pretrain transformer_xl": "d41452d01247c295",
    "pretrain structbert": "3d41ed8d38d2d1b8",
    "tokenize out=x": "68133eda40e764fe",
    "tokenize tokenizer=byte_bpe out=x": "443dc825c3e8abb4",
    "finetune task=sst2 task.path=null checkpoint=null": "cdb97682a0d30e0a",
    # since its files may also be JSON lines and Parquet
    "finetune task=squad task.path=null checkpoint=null distill=kd": "9a45b34a22808f48",
    "eval checkpoint=x": "b6fce487b64148ad",
    "eval checkpoint=x task=lm": "87b46d7a3a4f7cdd",
    "eval checkpoint=x task=sts task.path=y": "e41e229786185976",
}


@pytest.mark.parametrize("line", KEYS)
def test_keys_stay_what_they_were(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where this fails, a part was renamed or a setting was added: plmctl/config/format_1.py says
    which.
    """
    monkeypatch.chdir(tmp_path)
    verb, *words = line.split()
    recipe = words.pop(0) if verb == "pretrain" else None
    assert compute_key(verb, Configs(Provenance(verb)).compose(verb, words, recipe)) == KEYS[line]
