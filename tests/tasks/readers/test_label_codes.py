"""Labels that files have as codes answer with names; submissions have the codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plmctl.artifacts.label_rows import find_order, labels_of, name_rows
from plmctl.config.build import build
from plmctl.config.compose import compose
from plmctl.core.errors import ConfigError, DataError
from plmctl.tasks.capabilities import submit
from plmctl.tasks.readers.label_codes import name_examples, names_of, read_codes
from plmctl.tasks.record import Example

CODES = {0: "negative", 1: "positive"}


def build_task(*words: str) -> Any:
    return build(compose("finetune", None, [*words, "checkpoint=null"]).task, path="task")


def test_codes_are_named_and_names_stay() -> None:
    codes = read_codes(CODES)
    given = ["1", "negative", ["0", "1", "x"], None]
    own = name_examples([Example(str(n), {}, label) for n, label in enumerate(given)], codes)
    assert [each.label for each in own] == [
        "positive",
        "negative",
        ["negative", "positive", "x"],
        None,
    ]
    (shared,) = name_examples([Example("0", {}, "1", shares={"0": 0.25, "1": 0.75})], codes)
    assert shared.shares == {"negative": 0.25, "positive": 0.75}


def test_names_stand_in_the_order_of_codes() -> None:
    assert names_of({10: "b", 9: "a"}) == ["b", "a"]
    assert read_codes(["b", "a"]) == {} == read_codes(None)


def test_two_codes_have_two_names() -> None:
    with pytest.raises(ConfigError, match="merged_by"):
        read_codes({0: "x", 1: "x"})


def test_a_task_reads_names_and_submits_codes(tmp_path: Path) -> None:
    rows = [
        {"sentence": "a", "label": 104, "label_desc": "news_finance", "id": 7},
        {"sentence": "b", "label": "116", "label_desc": "news_game", "id": 8},
    ]
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    (tmp_path / "train.json").write_text(lines)
    task = build_task("task=tnews", f"task.path={tmp_path}")
    train = task.read("train")
    assert [each.label for each in train] == ["news_finance", "news_game"]
    task.fit_labels(train)
    assert task.decided["label_names"]["104"] == "news_finance"
    guesses = [{"id": each.id, "guess": each.label} for each in train]
    own = submit(task, guesses, "tnews10_predict.json").splitlines()
    assert [*map(json.loads, own)] == [{"id": 7, "label": "104"}, {"id": 8, "label": "116"}]
    by_name = build_task("task=tnews", f"task.path={tmp_path}", "task.columns.label=label_desc")
    assert [each.label for each in by_name.read("train")] == ["news_finance", "news_game"]


def test_a_user_names_the_codes_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("text,label\na,0\nb,1\nc,1\n")
    task = build_task(
        "task=classification", f"task.path={tmp_path / 'own.csv'}", "task.dev_share=0",
        "task.label_names={0: no, 1: yes}",
    )  # fmt: skip
    assert [each.label for each in task.read("train")] == ["no", "yes", "yes"]


def test_rows_of_a_head_follow_names_and_codes() -> None:
    """Heads of earlier runs are called by codes, and those of Hugging Face by numbers."""
    node = {"_target_": "plmctl.tasks.classification.Classification"}
    coded = labels_of({"task": {**node, "label_names": CODES}})["class"]
    for known in (coded, ["negative", "positive"], ["0", "1"], None):
        assert find_order(known, coded, rows=2) == [0, 1]
    assert find_order(coded, ["1", "0"]) == find_order(coded, ["positive", "negative"]) == [1, 0]
    assert find_order(["POSITIVE", "NEGATIVE"], coded) == [1, 0]
    assert find_order(["good", "bad"], coded) is None


def test_a_head_without_names_is_called_by_the_names_of_the_task() -> None:
    codes = read_codes(CODES)
    with pytest.raises(ConfigError) as caught:
        name_rows(None, None, 2, place="m", coded=codes)
    assert "'task.label_names={0:negative,1:positive}'" in str(caught.value)
    assert name_rows(CODES, None, 2, place="m")[0] == codes


def test_a_stated_name_replaces_that_of_a_code() -> None:
    """Settings of a command line are merged with those of a task."""
    task = build_task("task=sst2", "task.path=x", "task.label_names={0: bad, 1: good}")
    assert task.names == ["bad", "good"]
    assert task.decided["label_names"] == {"0": "bad", "1": "good"}


def named_rows(tmp_path: Path, *rows: tuple[int, str]) -> Any:
    """TNEWS of these codes, with the names that its files have."""
    lines = (json.dumps({"sentence": "a", "label": c, "label_desc": name}) for c, name in rows)
    (tmp_path / "train.json").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return build_task("task=tnews", f"task.path={tmp_path}")


def test_the_names_of_files_replace_those_of_a_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = named_rows(tmp_path, (100, "体育"), (103, "news_story"), (104, ""))
    labels = [each.label for each in task.read("train")]
    assert labels == ["体育", "news_story", "news_finance"]
    assert task.names[:4] == ["体育", "news_culture", "news_entertainment", "news_story"]
    assert "100 is 体育, not news_story, 103 is news_story" in capsys.readouterr().err
    task.read("train")
    assert not capsys.readouterr().err
    # a name that a file gives to another code, which the file lacks
    task = named_rows(tmp_path, (112, "news_game"))
    assert [each.label for each in task.read("train")] == ["news_game"]
    assert task.names[-1] == "116"


def test_names_as_those_of_the_task_are_no_remark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = named_rows(tmp_path, (104, "news_finance"))
    task.read("train")
    assert not capsys.readouterr().err


@pytest.mark.parametrize("second", [(104, "news_game"), (116, "news_finance")])
def test_files_that_contradict_themselves_are_refused(
    tmp_path: Path, second: tuple[int, str]
) -> None:
    task = named_rows(tmp_path, (104, "news_finance"), second)
    with pytest.raises(DataError, match=r"train.json:2: label .*104 is 'news_finance' at .*:1"):
        task.read("train")


@pytest.mark.parametrize("word", ["task.label_names.112=trips", 'task.label_names={"112":trips}'])
def test_one_code_is_named(word: str) -> None:
    task = build_task("task=tnews", "task.path=x", word)
    assert (task.label_codes["112"], task.label_codes["113"]) == ("trips", "news_world")


def test_the_fix_of_two_equal_names_names_their_codes() -> None:
    with pytest.raises(ConfigError, match="5 and 12 are 'a'") as caught:
        read_codes({5: "a", 7: "b", 12: "a"})
    assert "'task.label_names={5:a_5,12:a}'" in str(caught.value)
