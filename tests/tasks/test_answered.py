"""What `plmctl eval input=...` writes: the columns of the user, and what the model says."""

from __future__ import annotations

import csv
import io
import json
import sys
import tracemalloc
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from plmctl.config import compose as config
from plmctl.config.build import build
from plmctl.core.errors import DataError
from plmctl.storage.spool import Spool
from plmctl.tasks.predictions import (
    OwnColumns,
    PredictedColumns,
    beside,
    describe_doubled,
    describe_renamed,
    join_columns,
    write_rows,
)
from plmctl.tasks.record import Example
from plmctl.tasks.task import Task
from plmctl.tasks.unlabelled import read_unlabelled, stream_unlabelled
from plmctl.text.tabular import cells_of
from plmctl.use.asked_task import Destination, write_split

SAID = {"guess": "good", "probabilities": {"bad": 0.25, "good": 0.75}}


def task(name: str = "classification", *words: str) -> Task:
    cfg = config.compose(
        "finetune", None, [f"task={name}", "task.path=x", "checkpoint=null", *words]
    )
    made: Task = build(cfg.task, {"pooling": "first"}, path="task")
    return made


def said(examples: list[Example], **more: Any) -> list[dict[str, Any]]:
    return [{"id": example.id, "gold": None, **SAID, **more} for example in examples]


def test_lines_stand_beside_their_answers(tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("a fine film\n很好\n", encoding="utf-8")
    name, examples = read_unlabelled(task(), str(tmp_path / "new.txt"))
    assert name == "new"
    assert beside(None, examples[:1], [{"text": "a fine film", "guess": "x"}]) == [
        {"text": "a fine film", "guess": "x"}
    ]
    assert beside(str(tmp_path / "new.txt"), examples, said(examples)) == [
        {"text": "a fine film", "id": "0", **SAID},
        {"text": "很好", "id": "1", **SAID},
    ]


def test_columns_of_a_table_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "new.csv"
    file.write_text('id,when,body\n7,"May, 2nd","two\nlines"\n8,June,other\n', encoding="utf-8")
    _, examples = read_unlabelled(task("classification", "task.columns.text=body"), str(file))
    rows, names = join_columns(str(file), examples, said(examples, when="never"))
    assert rows[0] == {
        "id": "7",
        "when": "May, 2nd",
        "body": "two\nlines",
        **SAID,
        "predicted_when": "never",
    }
    assert describe_renamed(names) == (
        "'when' of the input is kept, the prediction is 'predicted_when'"
    )
    assert describe_renamed(join_columns(str(file), examples, said(examples))[1]) == ""
    write_rows(tmp_path / "out.csv", rows)
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as stream:
        found = list(csv.DictReader(stream))
    assert [row["body"] for row in found] == ["two\nlines", "other"]
    assert found[1]["probabilities.good"] == "0.75"


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "number,text\nq7,fine\nq9,poor\n"),
        ("a.jsonl", '{"number": "q7", "text": "fine"}\n{"number": "q9", "text": "poor"}\n'),
    ],
)
def test_ids_are_those_of_their_column(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    known = task("classification", "task.columns.id=number")
    _, examples = read_unlabelled(known, str(tmp_path / name))
    assert [each.id for each in examples] == ["q7", "q9"]
    (tmp_path / name).write_text(content.replace("number", "other"))
    _, examples = read_unlabelled(known, str(tmp_path / name))
    assert [each.id for each in examples] == ["0", "1"]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "txt"])
def test_memory_of_reading_does_not_grow_with_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("plmctl.tasks.unlabelled.PIECE", 200)
    monkeypatch.setattr("plmctl.text.quotes.SAMPLE", 200)
    line = {"csv": "a fine film,me\n", "jsonl": '{"text": "a fine film"}\n', "txt": "a film\n"}
    peaks = []
    for rows in (2_500, 10_000):
        file = tmp_path / f"new.{kind}"
        file.write_text("text,who\n" * (kind == "csv") + line[kind] * rows)
        tracemalloc.start()
        _, pieces = stream_unlabelled(task(), str(file))
        first = next(pieces)
        own, columns, read = OwnColumns(str(file), first), PredictedColumns(), 0
        for piece in chain([first], pieces):
            for row, example in zip(own.take(piece), piece, strict=True):
                columns.add(row, example, SAID)
                assert row["text"].startswith("a f")
                read += 1
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert read == rows
    assert peaks[1] < 1.2 * peaks[0] + 100_000


def test_rows_on_disk_are_read_again_and_again(tmp_path: Path) -> None:
    with Spool(tmp_path) as rows:
        for n in range(3):
            rows.append([{"text": "\ud800 很好"}, {"p": 0.1 + n}])
        assert (
            list(rows)
            == list(rows)
            == [[{"text": "\ud800 很好"}, {"p": 0.1 + n}] for n in range(3)]
        )
        assert len(rows) == 3
        assert not list(tmp_path.iterdir())  # a killed process leaves nothing


def test_columns_with_the_same_name_are_kept_apart(tmp_path: Path) -> None:
    file = tmp_path / "new.csv"
    file.write_text("note,body,note\na,fine,b\n", encoding="utf-8")
    _, examples = read_unlabelled(task("classification", "task.columns.text=body"), str(file))
    rows, _ = join_columns(str(file), examples, said(examples))
    assert [*rows] == [{"note": "a", "body": "fine", "note_2": "b", "id": "0", **SAID}]
    assert describe_doubled(str(file), examples) == "'note' comes again: it is 'note_2'"


@pytest.mark.parametrize("sign", [";", "\t", "|", ","])
def test_a_csv_keeps_what_stands_between_its_cells(
    tmp_path: Path, sign: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "new.csv", tmp_path / "out.csv"
    names = ["note", "text", "note"]
    lines = [names, ["a", f'"fine{sign} this"', "b"]]
    file.write_text("".join(sign.join(line) + "\n" for line in lines), encoding="utf-8")
    _, examples = read_unlabelled(task(), str(file))
    write_split(Destination(out), "new", examples, said(examples), str(file))
    head, first = out.read_text(encoding="utf-8").splitlines()
    assert head.split(sign)[:4] == ["note", "text", "note_2", "id"]
    assert first.startswith(sign.join([*lines[1], "0"]))
    assert "column 'note' comes again: it is 'note_2'" in capsys.readouterr().err
    assert [cells[:3] for _, cells in cells_of(out)][1] == ["a", f"fine{sign} this", "b"]


@pytest.mark.parametrize("kind", ["csv", "tsv"])
@pytest.mark.parametrize(("start", "end"), [(b"\xef\xbb\xbf", b"\r\n"), (b"", b"\n")])
def test_a_table_keeps_its_mark_and_the_ends_of_its_lines(
    tmp_path: Path, kind: str, start: bytes, end: bytes
) -> None:
    file, out = tmp_path / f"new.{kind}", tmp_path / f"out.{kind}"
    sign = "," if kind == "csv" else "\t"
    file.write_bytes(start + end.join([f"text{sign}note".encode(), f"好{sign}a".encode(), b""]))
    _, examples = read_unlabelled(task(), str(file))
    write_split(Destination(out), "new", examples, said(examples), str(file))
    written = out.read_bytes()
    assert written.startswith(start + b"text")
    assert written.count(end) == written.count(b"\n") == 2
    assert written.endswith(end)


@pytest.mark.parametrize("old", [("good", "good"), ("good", "bad"), ("bad", None)])
def test_a_column_guess_of_the_user_is_kept_and_every_row_has_the_prediction(
    tmp_path: Path, old: tuple[str, str | None]
) -> None:
    file, out = tmp_path / "new.csv", tmp_path / "out.csv"
    cells = [f"{text},{guess}" if guess else text for text, guess in zip("ab", old, strict=True)]
    file.write_text("\n".join(["text,guess", *cells]) + "\n", encoding="utf-8")
    _, examples = read_unlabelled(task(), str(file))
    rows, names = join_columns(str(file), examples, said(examples))
    write_rows(out, rows)
    head, *lines = out.read_text().splitlines()
    assert head == "text,guess,id,predicted_guess,probabilities.bad,probabilities.good"
    assert [line.split(",")[1] for line in lines] == [guess or "" for guess in old]
    assert [line.split(",")[3] for line in lines] == ["good", "good"]
    assert "'guess' of the input is kept" in describe_renamed(names)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_what_was_labelled_is_labelled_again_beside_the_old(tmp_path: Path, kind: str) -> None:
    (tmp_path / "new.txt").write_text("a\nb\n", encoding="utf-8")
    file = tmp_path / "new.txt"
    for turn in range(3):
        _, examples = read_unlabelled(task(), str(file))
        share = {"probabilities": {"bad": turn / 10, "good": 1 - turn / 10}}
        rows = beside(str(file), examples, said(examples, **share))
        file = write_rows(tmp_path / f"{turn}.{kind}", rows)
    write_rows(tmp_path / "flat.csv", rows)
    with (tmp_path / "flat.csv").open(newline="", encoding="utf-8") as stream:
        found = list(csv.DictReader(stream))[1]
    new = ("probabilities", "predicted_probabilities", "predicted_probabilities_2")
    assert [found[f"{name}.bad"] for name in new] == ["0.0", "0.1", "0.2"]
    assert [found[name] for name in ("guess", "predicted_guess", "predicted_guess_2")] == 3 * [
        "good"
    ]


def test_a_tsv_is_read_again_as_it_was_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ['say ""hi""', '"all of it"', "a, b; c", " spaces "]
    out = write_rows(tmp_path / "out.tsv", [{"text": text, "note": None} for text in texts])
    assert [cells for _, cells in cells_of(out)] == [["text", "note"], *([t, ""] for t in texts)]
    assert not capsys.readouterr().err
    write_rows(out, [{"text": "two\nlines\ta\r\nb", "n": 1}, {"text": "one", "n": 2}])
    assert out.read_text() == "text\tn\ntwo lines a b\t1\none\t2\n"
    assert "1 cell with a tab or the end of a line in it" in capsys.readouterr().err


def test_a_table_without_names_has_numbers(tmp_path: Path) -> None:
    file = tmp_path / "new.csv"
    file.write_text("1,a fine film and more\n2,no\n", encoding="utf-8")
    _, examples = read_unlabelled(
        task("classification", "task.columns.text=1", "task.columns.label=2"), str(file)
    )
    assert beside(str(file), examples, said(examples))[1] == {
        "0": "2",
        "1": "no",
        "id": "1",
        **SAID,
    }


def test_objects_keep_their_fields(tmp_path: Path) -> None:
    file = tmp_path / "new.jsonl"
    file.write_text('{"text": "a", "tags": ["x", "y"]}\n\n{"text": "b"}\n', encoding="utf-8")
    _, examples = read_unlabelled(task(), str(file))
    rows = beside(str(file), examples, said(examples))
    assert [row["text"] for row in rows] == ["a", "b"]
    assert rows[0]["tags"] == ["x", "y"]
    write_rows(tmp_path / "deep" / "out.jsonl", rows)
    assert [
        json.loads(line) for line in (tmp_path / "deep" / "out.jsonl").read_text().splitlines()
    ] == rows


def test_a_tsv_of_tags(tmp_path: Path) -> None:
    rows = [
        {"words": ["in", "Rome"], "guess": ["O", "B-LOC"]},
        {"words": ["a b", "c"], "guess": ["O", "O"]},
    ]
    write_rows(tmp_path / "out.tsv", rows)
    lines = (tmp_path / "out.tsv").read_text().splitlines()
    assert lines[:2] == ["words\tguess", "in Rome\tO B-LOC"]
    assert lines[2].split("\t") == ['["a b", "c"]', "O O"]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("one\n二\n".encode())))
    name, examples = read_unlabelled(task(), "-")
    assert name == "stdin"
    assert [row["text"] for row in beside("-", examples, said(examples))] == ["one", "二"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read_unlabelled(task(), str(tmp_path / "none.txt"))


@pytest.mark.slow  # reading is measured above
def test_a_long_table_takes_no_room_of_its_own(tmp_path: Path) -> None:
    examples = [Example(str(n), {"text": f"text {n}"}) for n in range(20_000)]
    predictions = [{"guess": "yes", "probabilities": {"yes": 0.75}} for _ in examples]
    tracemalloc.start()
    rows, _ = join_columns(None, examples, predictions)
    file = write_rows(tmp_path / "a.csv", rows)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 20  # 400 bytes a row were 8 MB
    lines = file.read_text().splitlines()
    assert lines[:2] == ["text,guess,probabilities.yes", "text 0,yes,0.75"]
    assert len(lines) == 20_001


@pytest.mark.parametrize(("gold", "kept"), [(None, False), ("x", True)])
def test_the_bundle_of_new_texts_is_a_column_of_the_user(
    tmp_path: Path, gold: str | None, kept: bool
) -> None:
    """`compare` reads it of scored rows."""
    file = tmp_path / "in.csv"
    file.write_text("text,owner\na,7\nb,\n")
    examples = [
        Example(str(n), {"text": text}, bundle=owner, place=f"{file}:{n + 2}")
        for n, (text, owner) in enumerate([("a", "7"), ("b", "")])
    ]
    told = [{"id": e.id, "gold": gold, "guess": "x"} for e in examples]
    told[0]["bundle"] = examples[0].bundle  # a row without one has no such value
    rows = beside(str(file), examples, told)
    assert "bundle" not in rows[1]
    assert ("bundle" in rows[0]) == kept


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "张艺谋在北京。\n张 艺 谋\n"),
        ("a.csv", "note,text_a\nx,张艺谋在北京。\ny,张 艺 谋\n"),
        ("a.tsv", "text_a\n张艺谋在北京。\n张 艺 谋\n"),
        ("a.jsonl", '{"text_a": "张艺谋在北京。"}\n{"text_a": "张 艺 谋"}\n'),
        ("-", '{"text_a": "张艺谋在北京。"}\n{"text_a": "张 艺 谋"}\n'),
    ],
)
def test_new_sentences_are_cut_as_those_of_training_in_any_kind_of_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str
) -> None:
    settings = ("task.reader.layout=table", "task.columns.tokens=text_a", "task.joiner=''")
    (tmp_path / name).write_text(content, encoding="utf-8")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content.encode()), "utf-8"))
    source = name if name == "-" else str(tmp_path / name)
    _, examples = read_unlabelled(task("tagging", *settings), source)
    assert [each.fields["words"] for each in examples] == [[*"张艺谋在北京。"], [*"张艺谋"]]


def test_tags_and_lists_of_new_sentences_are_kept(tmp_path: Path) -> None:
    settings = ("task.columns.tokens=text_a", "task.columns.tags=label", "task.joiner=''")
    (tmp_path / "a.csv").write_text("text_a,label\n张三 在,B-PER O\n", encoding="utf-8")
    (tmp_path / "b.jsonl").write_text('{"text_a": ["张三", "在"]}\n', encoding="utf-8")
    for name, tags in (("a.csv", ["B-PER", "O"]), ("b.jsonl", None)):
        _, (example,) = read_unlabelled(task("tagging", *settings), str(tmp_path / name))
        assert (example.fields["words"], example.label) == (["张三", "在"], tags)
