"""RACE, ARC, CODAH, HellaSwag and Cosmos QA in the layouts that they are published in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plmctl.core.errors import DataError
from tests.tasks.superglue_files import (
    ARTICLE,
    HELLASWAG,
    assert_refused,
    make_task,
    read_one,
    write,
)

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "multiple_choice"
QUESTION = {
    "article": "He runs.",
    "question": "What does he do?",
    "options": ["runs", "sits"],
    "answer": "A",
    "example_id": "middle12.txt",
}


def race(folder: Path) -> Path:
    """RACE/<split>/<school>/<number>.txt."""
    for split in ("train", "dev", "test"):
        for school in ("middle", "high"):
            place = folder / "RACE" / split / school
            place.mkdir(parents=True)
            article = {**ARTICLE, "id": f"{school}7.txt"}
            (place / "7.txt").write_text(json.dumps(article))
    return folder


def test_race_in_folders(tmp_path: Path) -> None:
    task = make_task("race", race(tmp_path))
    examples = task.read("train")
    assert [(e.id, e.slices, e.label) for e in examples] == [
        ("high7.txt-0", ("high",), "B"),
        ("high7.txt-1", ("high",), "A"),
        ("middle7.txt-0", ("middle",), "B"),
        ("middle7.txt-1", ("middle",), "A"),
    ]
    assert examples[0].fields == {
        "text": "He likes dogs. He has one.",
        "choices": [f"He likes {name} best." for name in ("cats", "dogs", "cows", "pigs")],
    }
    assert examples[1].fields["choices"][0] == "How many? 1"
    assert {e.bundle for e in examples} == {"high7.txt", "middle7.txt"}
    assert all(task.splits.has(split) for split in ("train", "dev", "test"))
    inside = make_task("race", tmp_path / "RACE")
    assert len(inside.read("dev")) == 4
    one = make_task("race", {"train": f"{tmp_path}/RACE/train/high"})
    assert {e.slices for e in one.read("train")} == {("high",)}


def test_race_as_lines(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", ARTICLE, QUESTION)
    examples = make_task("race", tmp_path).read("train")
    assert [e.slices for e in examples] == [("high",), ("high",), ("middle",)]
    assert (examples[2].id, examples[2].label) == ("middle12.txt-1", "A")
    assert examples[2].fields["choices"] == ["What does he do? runs", "What does he do? sits"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**ARTICLE, "answers": ["B"]}, "2 questions, 2 lists of options, 1 answers"),
        ({**ARTICLE, "options": [["x"], ["y", "z"]]}, "question 0 has 1 options"),
        ({**ARTICLE, "article": 3 * [""]}, "'article' must be text"),
        ({"question": "q", "options": ["x", "y"]}, "must have 'article'"),
        ({**QUESTION, "answer": None}, "the label is missing"),
        (["x"], "another object was expected"),
    ],
)
def test_broken_rows_of_race(tmp_path: Path, row: Any, message: str) -> None:
    assert_refused("race", tmp_path, row, message)


def test_broken_files_of_race(tmp_path: Path) -> None:
    place = race(tmp_path) / "RACE" / "train" / "high"
    (place / "8.txt").write_text("{")
    with pytest.raises(DataError, match=r"high.8\.txt"):
        make_task("race", tmp_path).read("train")
    (place / "8.txt").write_bytes(b"\xff\xfe{")
    with pytest.raises(DataError, match=r"8\.txt.*UTF-8"):
        make_task("race", tmp_path).read("train")
    for split in ("dev", "test"):
        for file in (tmp_path / "RACE" / split).rglob("*.txt"):
            file.unlink()
    with pytest.raises(DataError, match=r"no articles: no \*.txt is inside"):
        make_task("race", tmp_path).read("dev")
    letter = {**ARTICLE, "answers": ["B", "E"]}
    write(tmp_path / "one" / "train.jsonl", letter)
    task = make_task("race", tmp_path / "one")
    with pytest.raises(DataError, match=r"train\.jsonl:1.*label 'E' of 4 choices"):
        task.fit_labels(task.read("train"))


def arc_row(key: str, labels: str = "ABCD") -> dict[str, Any]:
    choices = [{"text": f"option {label}", "label": label} for label in labels]
    return {"id": "Mercury_1", "question": {"stem": "Which?", "choices": choices}, "answerKey": key}


def test_arc(tmp_path: Path) -> None:
    root = tmp_path / "ARC-V1"
    write(root / "ARC-Easy" / "ARC-Easy-Train.jsonl", arc_row("C"), arc_row("2", "1234"))
    write(root / "ARC-Challenge" / "ARC-Challenge-Train.jsonl", arc_row("E", "ABCDE"))
    write(root / "ARC-Challenge" / "ARC-Challenge-Dev.jsonl", arc_row("A", "ABC"))
    (root / "ARC-Easy" / "ARC-Easy-Train.csv").write_text("questionID,question\n1,x (A) y\n")
    task = make_task("arc", root)
    train = task.read("train")
    task.fit_labels(train)
    assert [(e.slices, e.label, len(e.fields["choices"])) for e in train] == [
        (("challenge",), "E", 5),
        (("easy",), "C", 4),
        (("easy",), "B", 4),
    ]
    assert train[0].fields["text"] == "Which?"
    assert len(task.read("dev")) == 1
    assert len(make_task("arc", root, "task.reader.sets=[easy]").read("train")) == 2
    packed = {
        "id": "x",
        "question": "Which?",
        "choices": {"text": ["a", "b", "c"], "label": ["1", "2", "3"]},
        "answerKey": "3",
    }
    example = read_one("arc", tmp_path / "packed", packed)
    assert (example.fields, example.label) == ({"text": "Which?", "choices": ["a", "b", "c"]}, "C")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (arc_row("F"), "the answer 'F' is none of the options A, B, C, D"),
        (arc_row("A", "A"), "1 options, where 2 to 8"),
        (arc_row("A", "AAB"), "3 options, where 2 to 8 with labels of their own"),
        ({"id": "x", "question": 3.5}, "1 options|0 options|'question' must be"),
        ({"question": "x"}, "must have 'id'"),
        ({**arc_row("A"), "answerKey": None}, "the label is missing"),
    ],
)
def test_broken_rows_of_arc(tmp_path: Path, row: Any, message: str) -> None:
    assert_refused("arc", tmp_path, row, message)


def test_codah(tmp_path: Path) -> None:
    for fold in range(2):
        place = tmp_path / "cv_split" / f"fold_{fold}"
        place.mkdir(parents=True)
        row = f"n\tHens cannot fly. Hen {fold}\truns.\tflies.\tsings.\treads.\t0\n"
        (place / "train.tsv").write_text(row)
    (example,) = make_task("codah", tmp_path / "cv_split", "task.reader.folder=fold_1").read(
        "train"
    )
    assert example.fields["text"] == "Hens cannot fly. Hen 1"
    assert example.fields["choices"] == ["runs.", "flies.", "sings.", "reads."]
    assert (example.slices, example.label) == (("n",), "0")
    (tmp_path / "train.tsv").write_text("n\tHens\truns.\n")
    with pytest.raises(DataError, match="expected columns 6, 3, 4, 5; found 0, 1, 2"):
        make_task("codah", tmp_path).read("train")


def test_hellaswag(tmp_path: Path) -> None:
    row = HELLASWAG
    write(tmp_path / "hellaswag_val.jsonl", row, {**row, "ctx_b": "", "split_type": "indomain"})
    first, second = make_task("hellaswag", tmp_path).read("dev")
    assert first.fields == {"text": "A man sits.", "choices": ["he a.", "he b.", "he c.", "he d."]}
    assert (first.id, first.label, first.slices) == ("24", "3", ("zeroshot",))
    assert second.fields["choices"] == ["a.", "b.", "c.", "d."]
    assert_refused("hellaswag", tmp_path, {**row, "endings": ["a."]}, "1 choices: two are needed")
    assert_refused("hellaswag", tmp_path, {"ctx": "x"}, "no field ctx_a")


def test_cosmosqa(tmp_path: Path) -> None:
    names = "id,context,question,answer0,answer1,answer2,answer3,label"
    (tmp_path / "train.csv").write_text(f'{names}\nx##1,"It rained, again.",Why ?,a,b,c,d,2\n')
    task = make_task("cosmosqa", tmp_path)
    (example,) = task.read("train")
    assert example.fields["text"] == "It rained, again."
    assert example.fields["choices"] == ["Why ? a", "Why ? b", "Why ? c", "Why ? d"]
    assert (example.id, example.label) == ("x##1", "2")
    write(tmp_path / "test.jsonl", {n: "x" for n in names.split(",") if n != "label"})
    assert task.read("test")[0].label is None
    (tmp_path / "train.csv").write_text(f"{names.replace('answer3', 'answer4')}\na,b,c,d,e,f,g,1\n")
    with pytest.raises(DataError, match="expected column answer3"):
        task.read("train")


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason="the shared data sets are not here")
def test_reads_the_distributed_files() -> None:
    codah = make_task("codah", SHARED / "codah", "task.reader.folder=")
    assert (len(codah.read("train")), len(codah.read("dev"))) == (1665, 556)
    assert {name for e in codah.read("dev") for name in e.slices} == {*"inopqr"}
    arc = make_task("arc", SHARED / "arc", "task.reader.lenient=true")
    for split, easy, challenge in (("train", 2251, 1119), ("dev", 570, 299)):
        examples = arc.read(split)
        arc.fit_labels(examples)
        # some rows lack options, or the fifth one, which is right
        assert len(examples) + sum(arc.splits.reader.skipped.values()) == easy + challenge
        assert len(examples) > 0.96 * (easy + challenge)
        arc.splits.reader.skipped.clear()
