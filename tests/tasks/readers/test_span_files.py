"""Files of annotation tools: whatever is written is read again, with the same entities."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from plmctl.core.errors import DataError
from plmctl.tasks.readers.span_files import (
    LAYOUTS,
    NamedText,
    SpanNotes,
    read_spans,
    spell_brat,
    spell_file,
)
from plmctl.tasks.readers.span_rows import TextSpan, count_units, find_characters
from tests.command import plmctl

TEXTS = [
    NamedText("Anna Berg\nsaw 📉📰 Rome.", [TextSpan(0, 9, "PER"), TextSpan(17, 21, "LOC")], "a"),
    NamedText("小明住在北京。", [TextSpan(0, 2, "PER"), TextSpan(4, 6, "LOC")], "b"),
    NamedText("Nothing.\r\nNobody.", [], "c"),
    NamedText("New York Times", [TextSpan(0, 8, "LOC"), TextSpan(0, 14, "ORG")], "d"),
]


def contents(texts: Any) -> list[tuple[str, list[TextSpan]]]:
    return [(each.text, each.spans) for each in texts]


@pytest.mark.parametrize("name", ["x.jsonl", "x.json"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_written_file_is_read_again(layout: str, name: str, tmp_path: Path) -> None:
    file, notes = tmp_path / name, SpanNotes()
    file.write_text("".join(spell_file(name, TEXTS, layout)), encoding="utf-8")
    found = contents(read_spans(file, notes))
    if layout == "label_studio_guesses":  # nobody has looked at them: they are no labels
        assert [spans for _, spans in found] == [[]] * 4
        assert notes.unmarked == 4
        guesses = json.loads(next(spell_file("", TEXTS, layout)))["predictions"][0]["result"]
        assert [guess["value"]["start"] for guess in guesses] == [0, 19]  # two emoji: two more
        return
    assert found == contents(TEXTS)
    assert (notes.texts, notes.overlapped) == (4, 1)
    assert notes.labels == {"PER": 2, "LOC": 3, "ORG": 1}


def test_a_written_folder_of_brat_is_read_again(tmp_path: Path) -> None:
    lines = NamedText("Hans\nBerg", [TextSpan(0, 9, "PER")], "e")
    for name, content in spell_brat([*TEXTS, lines], ["LOC", "ORG", "PER"]):
        (tmp_path / name).write_bytes(content.encode())
    assert (tmp_path / "00004.ann").read_text() == "T1\tPER 0 4;5 9\tHans Berg\n"
    assert "LOC" in (tmp_path / "annotation.conf").read_text().partition("[relations]")[0]
    with (tmp_path / "00000.ann").open("a") as file:
        file.write("R1\tin Arg1:T1 Arg2:T2\nT3\tPER 0 4;10 13\tAnna saw\n")
    notes = SpanNotes()
    assert contents(read_spans(tmp_path, notes)) == contents([*TEXTS, lines])
    left = [line for line in notes.describe() if line.startswith("left out")]
    assert len(left) == 2
    with pytest.raises(DataError, match="no labels with spaces, such as 'A B'"):
        list(spell_brat([NamedText("x", [TextSpan(0, 1, "A B")], "f:3")], ["A B"]))


@pytest.mark.parametrize("layout", ["spacy", "prodigy", "doccano", "label_studio"])
def test_other_fields_of_a_row_stay(layout: str, tmp_path: Path) -> None:
    file, again = tmp_path / "x.jsonl", tmp_path / "y.jsonl"
    row = {"id": 7, "text": "Anna", "label": [[0, 4, "PER"]], "meta": {"from": "b"}}
    file.write_text(json.dumps(row) + "\n")
    (found,) = read_spans(file, SpanNotes())
    again.write_text("".join(spell_file("y.jsonl", [found], layout)))
    (found,) = read_spans(again, SpanNotes())
    assert found.more == {"id": 7, "meta": {"from": "b"}}
    assert found.spans == [TextSpan(0, 4, "PER")]


@pytest.mark.parametrize(
    ("mark", "told"),
    [
        ("T1\tPER 0 99\tAnna", "is no part of a text of 10 characters"),
        ("T1\tPER 0 4\tBerg", "is 'Anna', not 'Berg'"),
        ("T1\tPER", "is no entity"),
    ],
)
def test_marks_of_another_text_are_refused(mark: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Anna Berg.")
    (tmp_path / "a.ann").write_text(f"\n{mark}\n")
    with pytest.raises(DataError, match=rf"a.ann:2: .*{told}") as caught:
        list(read_spans(tmp_path, SpanNotes()))
    assert "fix: " in str(caught.value)


def test_all_wrong_rows_are_named(tmp_path: Path) -> None:
    rows = [{"text": "Anna", "label": [[0, 40, "PER"]]}] * 12 + [{"text": "Anna", "label": []}]
    (tmp_path / "x.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with pytest.raises(DataError, match=r"x\.jsonl: 12 rows are wrong:\n") as caught:
        list(read_spans(tmp_path / "x.jsonl", SpanNotes()))
    lines = str(caught.value).splitlines()
    assert [line.partition(": ")[0] for line in lines[1:-2]] == [
        f"- {tmp_path / 'x.jsonl'}:{number}" for number in range(1, 11)
    ]
    assert lines[-2] == "- and 2 more"
    assert lines[-1].startswith("  fix: ")
    for number in (1, 2):
        (tmp_path / f"{number}.txt").write_text("Anna")
        (tmp_path / f"{number}.ann").write_text("T1\tPER")
    with pytest.raises(DataError, match=r"2 rows are wrong:\n- .*1\.ann:1: .*\n- .*2\.ann:1: "):
        list(read_spans(tmp_path, SpanNotes()))


def test_units_of_javascript_are_found_among_characters() -> None:
    draws = random.Random(0)
    for _ in range(200):
        text = "".join(draws.choices("ab 北𝒳📉é", k=draws.randrange(1, 20)))
        place = draws.randrange(len(text) + 1)
        units = sum(1 + (ord(sign) > 0xFFFF) for sign in text[:place])
        assert count_units(text[:place]) == units
        assert find_characters(text, units) == place
    assert find_characters("📉", 5) == 4  # beyond the end it stays beyond


def test_the_command_shows_writes_and_refuses(tmp_path: Path) -> None:
    source = tmp_path / "marked.jsonl"
    source.write_text("".join(spell_file("x.jsonl", TEXTS, "label_studio")), encoding="utf-8")
    words = ["data", "spans", str(source)]
    shown = plmctl(*words, f"out={tmp_path}/x.jsonl", "--dry-run")
    assert "6 entities in 4 texts: LOC 3, PER 2, ORG 1" in shown
    assert "'Rome' LOC" in shown
    assert "1 entity overlaps" in shown
    assert not (tmp_path / "x.jsonl").exists()
    plmctl(*words, f"out={tmp_path}/x.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert rows[0]["label"] == [[0, 9, "PER"], [17, 21, "LOC"]]
    assert "overwrite=true" in plmctl(*words, f"out={tmp_path}/x.jsonl", code=2)
    plmctl(*words, "layout=brat", f"out={tmp_path}/brat")
    plmctl("data", "spans", f"{tmp_path}/brat", "layout=spacy", f"out={tmp_path}/y.json")
    assert len(json.loads((tmp_path / "y.json").read_text())) == 4
    assert ".jsonl" in plmctl(*words, f"out={tmp_path}/x.txt", code=2)
    assert "fix: input=" in plmctl("data", "spans", f"{tmp_path}/markt.jsonl", "out=z", code=3)
    source.write_text('{"body": "x"}\n')
    assert "marked.jsonl:1: a row has no text in the field text" in plmctl(
        *words, f"out={tmp_path}/z.jsonl", code=3
    )
