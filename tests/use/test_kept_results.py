"""Results of other files never take the place of a run's own, and say which files they are of."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from plmctl.analysis.scored import ScoredFiles, find_tested, keep_scored, read_scored
from plmctl.use.answering import AnsweredSplit
from plmctl.use.asked_task import Destination
from plmctl.use.kept_results import keep_result, name_result
from tests.tasks.test_asked_task import asked, model

TORCH = SimpleNamespace(describe=lambda: "")


def make(folder: Path) -> Path:
    folder.mkdir()
    for split in ("train", "dev", "test"):
        (folder / f"{split}.tsv").write_text("text\tlabel\na\t0\nb\t1\n")
    return folder


def test_only_the_files_of_the_run_have_the_names_of_its_splits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = make(tmp_path / "own"), make(tmp_path / "other")
    (tmp_path / "new.tsv").write_text("text\tlabel\na\t0\n")
    monkeypatch.chdir(tmp_path)
    loaded = model(own, run=tmp_path)

    def name(path: object, split: str = "test", texts: str | None = None) -> str:
        return name_result(asked(path)[1], loaded.source, split, texts)  # type: ignore[arg-type]

    assert [name(own), name("own"), name("own/"), name(own, "dev")] == ["test"] * 3 + ["dev"]
    assert [name(other), name("other", "dev")] == ["other-test", "other-dev"]
    assert [name(other / "test.tsv"), name(own / "test.tsv")] == ["other-test", "own-test"]
    assert [name("new.tsv", "dev"), name(own, texts="new.tsv")] == ["new", "new"]
    assert name(own, texts="other/test.tsv") == "other-test"
    mapped: Any = SimpleNamespace(**vars(loaded.source))
    mapped.own_task = lambda: {"path": {"train": "a.tsv", "test": str(own / "test.tsv")}}
    task = asked(other)[1]
    task.splits = SimpleNamespace(
        path={"test": str(other / "test.tsv")}, reader=task.splits.reader, divided={}
    )
    assert name_result(task, mapped, "test") == "other-test"


def test_the_own_test_counts_else_the_newest_other_one(tmp_path: Path) -> None:
    (folder := tmp_path / "eval").mkdir()
    for number, name in enumerate(["b-test", "a-test", "a-test-unseen"]):
        (folder / f"{name}.jsonl").write_text("{}")
        files, only = {f"{name}.csv": "5f" * 32}, "unseen" if number == 2 else ""
        scored = ScoredFiles("test", False, files, 3, only, time=f"2026-01-0{number + 1}")
        keep_scored(tmp_path, name, scored)
    assert find_tested(tmp_path) == folder / "a-test.jsonl"
    (folder / "test.jsonl").write_text("{}")
    assert find_tested(tmp_path) == folder / "test.jsonl"
    assert [*read_scored(tmp_path)] == ["b-test", "a-test", "a-test-unseen"]
    (folder / "scored.json").write_text(json.dumps([1]))
    assert read_scored(tmp_path) == {}


def test_what_differs_from_the_own_split_is_named() -> None:
    own = ScoredFiles("test", True, {"a/test.csv": "5f" * 32}, 3, checkpoint="step-4")
    assert own.describe(best="step-4") == ""
    assert own.describe(best="step-8") == "checkpoint step-4"
    other = ScoredFiles(
        "test", False, {"a/test.csv": "5f" * 32}, 3, "unseen", ["task.x=1"], precision="bf16"
    )
    said = "3 rows of a/test.csv (SHA-256 5f5f5f5f5f5f), no file of the run, only=unseen, task.x=1"
    assert other.describe() == f"{said}, bf16"
    assert "of test.csv (SHA" in other.describe(public=True)


def test_the_record_has_the_file_with_its_hash_and_the_settings(tmp_path: Path) -> None:
    own, held = make(tmp_path / "own"), make(tmp_path / "held") / "test.tsv"
    task = asked(held)[1]
    task.splits = task.splits.whole()
    examples = task.read("dev")
    answered = AnsweredSplit("dev", examples, [], {}, {})
    how: Any = {"precision": SimpleNamespace(name="bf16"), "runtime": TORCH}
    output = Destination(tmp_path / "eval", run=tmp_path)
    words = [f"task.path={held}", "task.columns.text=text", "batch_size=3"]
    loaded = model(own, run=tmp_path)
    keep_result(output, "held-test", task, loaded.source, answered, how, words, only="")
    (record,) = read_scored(tmp_path).values()
    known = hashlib.sha256(held.read_bytes()).hexdigest()
    assert (record.split, record.own, record.rows) == ("test", False, 2)
    assert record.files == {str(held): known}
    keep_result(output, "again", task, loaded.source, answered, how, words, only="")
    texts = [replace(each, fields={"text": f"{n}"}) for n, each in enumerate(examples)]
    for name, own_rows in (("turned", examples[::-1]), ("other", texts)):
        changed = replace(answered, examples=own_rows)
        keep_result(output, name, task, loaded.source, changed, how, words, only="")
    found = {name: each.texts for name, each in read_scored(tmp_path).items()}
    assert found["again"] == found["held-test"] == found["turned"] != found["other"]
    assert (record.settings, record.precision) == (["task.columns.text=text"], "bf16")
    keep_result(
        Destination(tmp_path / "mine"), "x", task, loaded.source, answered, how, words, only=""
    )
    assert not (tmp_path / "mine").exists()
