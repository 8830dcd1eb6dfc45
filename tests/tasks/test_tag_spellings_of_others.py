"""Tags as other programs write them: numbers with names apart, BMEWO, types alone in one split; and
tables of sentences and of questions.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.config.build import build
from plmctl.config.compose import compose
from plmctl.core.errors import ConfigError, DataError
from plmctl.tasks.readers.conll import Columns
from plmctl.tasks.readers.squad import MISPLACED, SquadFiles

NAMES = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
WORDS = ["Ann Lee saw Rome", "in New York Bob sat", "it rains"]
TAGS = [[1, 2, 0, 3], [0, 3, 4, 1, 0], [0, 0]]
MARKED = [[NAMES[tag] for tag in tags] for tags in TAGS]


def write_rows(file: Path, tags: list[list[Any]]) -> None:
    rows = ({"tokens": w.split(), "tags": t} for w, t in zip(WORDS, tags, strict=True))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def tagging(path: Path, *words: str) -> Any:
    spec = compose("finetune", None, ["task=tagging", f"task.path={path}", "checkpoint=a", *words])
    return build(spec.task, {"pooling": "first"}, path="task")


def read(task: Any, split: str) -> list[list[str]]:
    return [list(example.label) for example in task.read(split)]


@pytest.mark.parametrize("spelled", [NAMES, ["0", "PER-B", "PER-I", "LOC-B", "LOC-I"]])
def test_tags_that_are_numbers_have_the_names_that_are_stated(
    spelled: list[str], tmp_path: Path
) -> None:
    write_rows(tmp_path / "train.jsonl", TAGS)
    write_rows(tmp_path / "dev.jsonl", TAGS)
    task = tagging(tmp_path, "task.label_names=[" + ",".join(f"'{name}'" for name in spelled) + "]")
    examples = task.read("train")
    assert [list(example.label) for example in examples] == MARKED
    task.fit_labels(examples)
    assert read(task, "dev") == MARKED
    assert task.metrics == ["f1", "precision", "recall"]


def test_bmes_is_a_name_of_bioes(tmp_path: Path) -> None:
    write_rows(tmp_path / "train.jsonl", [["B-PER", "E-PER", "O", "S-LOC"], ["O"] * 5, ["O"] * 2])
    one, other = (tagging(tmp_path, f"task.scheme={name}") for name in ("bmes", "bioes"))
    assert read(one, "train") == read(other, "train")
    assert one.answer.scheme == "bioes"


def test_a_number_without_a_name_is_refused(tmp_path: Path) -> None:
    write_rows(tmp_path / "train.jsonl", TAGS)
    with pytest.raises(ConfigError, match="a name for each of the numbers from 0 to 4"):
        tagging(tmp_path, "task.label_names=[O,B-PER,I-PER]").read("train")
    task = tagging(tmp_path)
    assert read(task, "train")[0] == ["1", "2", "0", "3"]
    assert "task.label_names=[O,...]" in task.describe_scoring(task.read("train"))


@pytest.mark.parametrize(
    ("given", "read_as"),
    [
        ("W-PER O B-LOC M-LOC E-LOC", "S-PER O B-LOC I-LOC E-LOC"),
        ("w_PER O b_LOC m_LOC e_LOC", "S-PER O B-LOC I-LOC E-LOC"),
        ("PER-W O LOC-B LOC-M LOC-E", "S-PER O B-LOC I-LOC E-LOC"),
    ],
)
def test_bmewo_has_w_for_an_entity_of_one_word(given: str, read_as: str, tmp_path: Path) -> None:
    lines = (f"w{n} {tag}\n" for n, tag in enumerate(given.split()))
    (tmp_path / "train.txt").write_text("".join(lines))
    reader = Columns(splits={"train": ["train.*"]}, scheme="auto")
    (example,) = reader.read(tmp_path, "train", {"tokens": 0, "tags": -1})
    assert " ".join(example.label) == read_as


@pytest.mark.parametrize("bare", ["train", "dev"])
def test_types_alone_in_one_split_and_marks_in_the_other(bare: str, tmp_path: Path) -> None:
    alone = [[tag.rpartition("-")[2] for tag in tags] for tags in MARKED]
    for split in ("train", "dev"):
        write_rows(tmp_path / f"{split}.jsonl", alone if split == bare else MARKED)
    task = tagging(tmp_path)
    task.fit_labels(task.read("train"))
    with pytest.raises(DataError, match=r"is a type alone.*\n  fix: task.reader.scheme=io  #"):
        task.read("dev")
    task = tagging(tmp_path, "task.reader.scheme=io")
    task.fit_labels(task.read("train"))
    assert read(task, "train") == read(task, "dev") == MARKED


@pytest.mark.parametrize("names", [("tokens", "tags"), ("words", "ner tags"), ("text", "labels")])
def test_a_table_with_commas_is_read_as_a_table(names: tuple[str, str], tmp_path: Path) -> None:
    with (tmp_path / "train.csv").open("w", newline="") as file:
        rows = [[w, " ".join(t)] for w, t in zip(WORDS, MARKED, strict=True)]
        csv.writer(file).writerows([names, *rows * 9])
    words = ["data", "check", "task=tagging", f"task.path={tmp_path / 'train.csv'}"]
    done = CliRunner().invoke(make_app(), words)
    if "does the first line" in done.output:  # the only question
        done = CliRunner().invoke(make_app(), [*words, "task.reader.header=true"])
    assert done.exit_code in (0, 1), done.output
    assert "B-PER" in done.output


def test_a_table_of_words_is_told_with_a_line_that_mends_it(tmp_path: Path) -> None:
    pairs = [(w, t) for n in range(3) for w, t in zip(WORDS[n].split(), MARKED[n], strict=True)]
    (tmp_path / "a.csv").write_text("word,tag\n" + "".join(f"{w},{t}\n" for w, t in pairs))
    reader = Columns(splits={}, scheme="auto", header=True)
    with pytest.raises(DataError, match=r"every row is one word.*\n  fix: tr "):
        reader.read_file(tmp_path / "a.csv", {"tokens": 0, "tags": -1})


CONTEXT = 'Bob, who is "old", lives in Rome.'
ANSWERS = [
    json.dumps({"text": ["Rome"], "answer_start": [28]}),
    "{'text': ['Rome'], 'answer_start': [28]}",
    "{'text': array(['Rome'], dtype=object), 'answer_start': array([28], dtype=int32)}",
    "[{'text': 'Rome', 'answer_start': 28}]",
]


def write_questions(file: Path, rows: list[dict[str, Any]]) -> Path:
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return file


@pytest.mark.parametrize("answers", ANSWERS)
def test_questions_in_a_table(answers: str, tmp_path: Path) -> None:
    asked = {"id": "7", "context": CONTEXT, "question": "Where?"}
    rows = [{**asked, "answers": answers}, {**asked, "answers": ""}]
    file = write_questions(tmp_path / "train.csv", rows)
    first, second = SquadFiles(splits={}).read_file(file, {})
    assert (first.id, first.label, first.fields["answers"]) == ("7", (28, 32), ["Rome"])
    assert first.fields["context"] == CONTEXT
    assert (second.label, second.fields["answers"]) == (None, [])


def test_questions_in_a_table_with_the_answer_in_columns(tmp_path: Path) -> None:
    asked = {"context": CONTEXT, "question": "Where?"}
    rows = [
        {**asked, "answer_text": "Rome", "answer_start": 28},
        {**asked, "answer_text": "Rome", "answer_start": 2},
        {**asked, "answer_text": "", "answer_start": ""},
    ]
    reader = SquadFiles(splits={})
    found = reader.read_file(write_questions(tmp_path / "a.csv", rows), {})
    assert [each.label for each in found] == [(28, 32), MISPLACED, None]
    rows[0]["answer_start"] = "x"
    with pytest.raises(DataError, match=r"a.csv:2: answer_start is 'x'"):
        reader.read_file(write_questions(tmp_path / "a.csv", rows), {})
    (tmp_path / "b.csv").write_text("passage,query\na,b\n")
    with pytest.raises(DataError, match="no columns question and context; found passage, query"):
        reader.read_file(tmp_path / "b.csv", {})
