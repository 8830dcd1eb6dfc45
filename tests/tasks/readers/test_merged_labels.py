"""Labels that count as others, by a table of the user's own."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from plmctl.core.errors import DataError
from plmctl.tasks.readers.merged_labels import MergedLabels, propose_table
from plmctl.tasks.readers.tables import Table
from tests.command import plmctl as command

COLUMNS = {"text": "text", "label": "stars"}
STARS = {"1": "bad", "2": "bad", "3": "middling", "4": "good", "5": "good"}
SPLITS = {"train": ["train.*"], "dev": ["dev.*"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [f"text {n},{n % 5 + 1}" for n in range(60)]
    (tmp_path / "train.csv").write_text("\n".join(["text,stars", *rows]))
    (tmp_path / "dev.csv").write_text("text,stars\nnew,good\nother,5\nthird,odd\n")
    (tmp_path / "stars.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in STARS.items()))
    return tmp_path


def make_reader(folder: Path, name: str = "stars.tsv") -> Table:
    return Table(splits=SPLITS, merged_by=str(folder / name))


def test_labels_are_those_of_a_loop_over_the_rows(folder: Path) -> None:
    reader = make_reader(folder)
    plain = Table(splits=SPLITS).read(folder, "train", COLUMNS)
    merged = reader.read(folder, "train", COLUMNS)
    assert [each.label for each in merged] == [STARS[each.label] for each in plain]
    assert [each.fields for each in merged] == [each.fields for each in plain]
    (note,) = reader.notes.values()
    reader.read(folder, "train", COLUMNS)
    assert [*reader.notes.values()] == [note], "a file that is read twice has its note once"
    assert note == "5 labels as 3 (bad: 1 12, 2 12; middling: 3 12; good: 4 12, 5 12)"


def test_unused_lines_of_the_table_are_named(folder: Path) -> None:
    with (folder / "stars.tsv").open("a") as table:
        table.write("6\tgood\n")
    reader = make_reader(folder)
    reader.read(folder, "train", COLUMNS)
    (note,) = reader.notes.values()
    assert note.endswith(f"; unused in {folder / 'stars.tsv'}: '6'")


def test_labels_that_the_table_lacks_stay(folder: Path) -> None:
    merged = make_reader(folder).read(folder, "dev", COLUMNS)
    assert [each.label for each in merged] == ["good", "good", "odd"]


def test_a_file_without_labels_to_merge_has_no_note(folder: Path) -> None:
    (folder / "dev.csv").write_text("text,stars\nnew,good\nthird,odd\n")
    reader = make_reader(folder)
    merged = reader.read(folder, "dev", COLUMNS)
    assert ([each.label for each in merged], reader.notes) == (["good", "odd"], {})


def test_numbers_of_json_and_their_probabilities_are_merged(folder: Path) -> None:
    shares = {"1": 0.5, "2": 0.25, "4": 0.25}
    line = {"text": "a", "stars": 1.0, "shares": shares}
    (folder / "train.jsonl").write_text(json.dumps(line) + "\n")
    columns = {**COLUMNS, "probabilities": "shares"}
    (only,) = make_reader(folder).read(folder / "train.jsonl", "train", columns)
    assert (only.label, only.shares) == ("bad", {"bad": 0.75, "good": 0.25})


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("1\tbad\n1\tgood\n", "'1' counts as 'bad' and as 'good'"),
        ("1 bad\n", "a line has a label and the label that it counts as"),
        ("1\t\n", "a line has a label and the label that it counts as"),
        ("\n\n", "the file is empty"),
        ("one\tbad\n", "has none of these labels, such as 'one'"),
    ],
)
def test_a_wrong_table_is_refused_with_its_line(folder: Path, table: str, problem: str) -> None:
    (folder / "wrong.tsv").write_text(table)
    with pytest.raises(DataError, match=r"wrong\.tsv") as caught:
        make_reader(folder, "wrong.tsv").read(folder, "train", COLUMNS)
    assert problem in str(caught.value)
    assert "fix:" in str(caught.value)


def test_data_check_shows_the_merged_labels(folder: Path) -> None:
    words: list[Any] = [f"task.columns.{role}={name}" for role, name in COLUMNS.items()]
    words += [f"task.reader.merged_by={folder / 'stars.tsv'}", "task=classification", "--json"]
    (folder / "dev.csv").unlink()
    shown = command("data", "check", str(folder / "train.csv"), *words)
    assert "5 labels as 3" in shown
    counts = Counter(STARS[str(n % 5 + 1)] for n in range(60))
    assert all(f'"{name}": {number}' in shown for name, number in counts.items()), shown


def test_a_table_of_alike_labels_is_proposed_as_a_command(tmp_path: Path) -> None:
    """The most frequent spelling counts; the command writes what `merged_by` reads."""
    labels = {"it's, ok": 1, "It's, OK": 5, "it's,-ok": 2, "other": 9, "-1": 3, "1": 3}
    name, form, *rows = shlex.split(propose_table(labels).removesuffix(" >> labels.csv"))
    assert (name, form) == ("printf", r"%s\n")
    file = tmp_path / "labels.csv"
    file.write_text("".join(f"{row}\n" for row in rows))
    assert MergedLabels(str(file)).table == dict.fromkeys(["it's, ok", "it's,-ok"], "It's, OK")
    assert propose_table({"a": 1, "b": 2}) == ""
