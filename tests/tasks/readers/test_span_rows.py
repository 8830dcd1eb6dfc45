"""Entities by their characters: every layout of annotation tools gives the same tags, and
predictions have the characters again.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from plmctl.core.errors import DataError
from plmctl.tasks.check import check_task
from plmctl.tasks.inference import describe_reading
from plmctl.tasks.readers.conll import Columns
from plmctl.tasks.readers.span_rows import TextSpan, list_marked, tag_text
from plmctl.tasks.tagged_sheet import TaggedSheet
from tests.command import plmctl
from tests.tasks.readers.test_schemes import COLUMNS, SPLITS, make_task

TEXTS: list[tuple[str, list[tuple[int, int, str]]]] = [
    ("Anna Berg went to Rome, then home.", [(0, 9, "PER"), (18, 22, "LOC")]),
    ("It rained.", []),
    ("Emil saw New York (NY) today", [(9, 17, "LOC"), (19, 21, "LOC"), (0, 4, "PER")]),
]
TAGS = [
    ["B-PER", "I-PER", "O", "O", "B-LOC", "O", "O", "O", "O"],
    ["O", "O", "O"],
    ["B-PER", "O", "B-LOC", "I-LOC", "O", "B-LOC", "O", "O"],
]


def studio(text: str, spans: list[tuple[int, int, str]]) -> dict[str, Any]:
    """An export of Label Studio."""
    result = [
        {"type": "labels", "value": {"start": s, "end": e, "text": text[s:e], "labels": [kind]}}
        for s, e, kind in spans
    ]
    return {
        "id": 7,
        "data": {"text": text},
        "annotations": [{"was_cancelled": True, "result": []}, {"result": result}],
    }


LAYOUTS: dict[str, Any] = {
    "spacy": lambda t, s: {"text": t, "entities": [list(own) for own in s]},
    "spacy pairs": lambda t, s: [t, {"entities": [list(own) for own in s]}],
    "doccano": lambda t, s: {"id": 1, "text": t, "label": [list(own) for own in s]},
    "doccano labels": lambda t, s: {"text": t, "labels": [list(own) for own in s]},
    "doccano objects": lambda t, s: {
        "text": t,
        "entities": [
            {"id": n, "label": kind, "start_offset": a, "end_offset": b}
            for n, (a, b, kind) in enumerate(s)
        ],
        "relations": [],
    },
    "prodigy": lambda t, s: {
        "text": t,
        "tokens": [{"text": t, "start": 0, "end": len(t), "id": 0}],
        "spans": [{"start": a, "end": b, "label": kind} for a, b, kind in s],
        "answer": "accept",
    },
    "studio": studio,
    "studio min": lambda t, s: {
        "text": t,
        "label": [{"start": a, "end": b, "text": t[a:b], "labels": [k]} for a, b, k in s],
    },
}


def write(folder: Path, layout: str, name: str = "train.jsonl") -> Path:
    rows = [LAYOUTS[layout](text, spans) for text, spans in TEXTS]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    file = folder / name
    file.write_text(lines if name.endswith("l") else json.dumps(rows, indent=1))
    return file


def test_an_empty_text_has_no_entity() -> None:
    assert list_marked(["B-PER"], [(0, 0)], "") == []


@pytest.mark.parametrize("name", ["train.jsonl", "train.json"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_tags_of_its_words(layout: str, name: str, tmp_path: Path) -> None:
    reader = Columns(splits=SPLITS, scheme="auto")
    file = write(tmp_path, layout, name)
    examples = reader.read_file(file, COLUMNS)
    assert [example.label for example in examples] == TAGS
    assert examples[0].fields["words"][:2] == ["Anna", "Berg"]
    assert "entities are read by their characters" in reader.notes[str(file)]


def test_spans_and_tags_are_each_other_again() -> None:
    """Of random spans between words: a loop over characters is the definition."""
    draw = random.Random(0)
    for _ in range(50):
        words = [draw.choice(["Ana", "to", "x", "Rome", "a-b", "née"]) for _ in range(8)]
        text = "  ".join(words)
        starts = [sum(len(w) + 2 for w in words[:n]) for n in range(8)]
        spans, at = [], 0
        while at < 8:
            size = min(draw.choice([1, 2]), 8 - at)
            if draw.random() < 0.4:
                last = at + size - 1
                end = starts[last] + len(words[last])
                spans.append(TextSpan(starts[at], end, draw.choice("AB")))
            at += size
        read = tag_text(text, spans)
        assert (read.inside, read.overlapped) == (0, 0)
        found = list_marked(read.tags or [], read.places, text)
        assert [(own["start"], own["end"], own["label"]) for own in found] == spans
        for (start, end), tag in zip(read.places, read.tags or [], strict=True):
            inside = [span for span in spans if span.start < end and span.end > start]
            assert tag == "O" if not inside else tag[2:] == inside[0].kind


def test_entities_that_are_no_words_are_counted() -> None:
    read = tag_text(
        "Newtown Roma", [TextSpan(0, 3, "A"), TextSpan(0, 7, "B"), TextSpan(8, 11, "C")]
    )
    assert read.tags == ["B-B", "B-C"]
    assert (read.inside, read.overlapped) == (1, 1)
    assert tag_text("我爱北京", [TextSpan(2, 4, "LOC")]).tags == ["O", "O", "B-LOC", "I-LOC"]


def test_words_keep_the_marks_of_their_letters() -> None:
    text = "राम हिन्दी बोलता है, மதுரை"
    read = tag_text(text, [TextSpan(4, 10, "LANGUAGE")])
    assert read.words == ["राम", "हिन्दी", "बोलता", "है", ",", "மதுரை"]
    assert read.tags == ["O", "B-LANGUAGE", *"OOOO"]
    assert not read.inside


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "Anna", "entities": [[0, 9, "PER"]]}, r"\[0, 9\) is no part of a text of 4"),
        ({"text": "Anna", "entities": [[0, 4]]}, r"\[0, 4\] is no \[start, end, label\]"),
        ({"text": "Anna", "entities": [["0", 4, "PER"]]}, "is no .start, end, label."),
        (
            {"text": "Anna", "spans": [{"start": 0, "end": 2, "label": "PER", "text": "na"}]},
            r"\[0, 2\) is 'An', not 'na'",
        ),
        ({"text": "Anna", "other": 1}, "no entities: none of the fields entities, spans"),
    ],
)
def test_what_is_wrong_is_told(row: Any, message: str, tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.write_text(json.dumps(row) + "\n")
    with pytest.raises(DataError, match=message) as caught:
        Columns(splits=SPLITS).read_file(file, COLUMNS)
    assert f"{file}:1" in str(caught.value)
    (tmp_path / "list.json").write_text(json.dumps([row]))
    with pytest.raises(DataError, match=message):
        Columns(splits=SPLITS).read_file(tmp_path / "list.json", COLUMNS)


def test_fields_of_other_names_are_settings(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.write_text(json.dumps({"body": "Anna", "ents": [[0, 4, "PER"]]}) + "\n")
    task = make_task(tmp_path, "task.columns.tokens=body", "task.columns.tags=ents")
    assert [example.label for example in task.read("train")] == [["B-PER"]]
    report = check_task(task, None)
    assert report.lengths.largest == 1  # the text counts once


def test_texts_without_words_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    rows = [{"text": "Anna", "entities": [[0, 4, "PER"]]}, {"text": " ", "entities": []}]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    task = make_task(tmp_path)
    assert len(task.read("train")) == 1
    told = "; ".join(describe_reading(task.splits.reader))
    assert "1 of 2 texts have no words and are left out" in told


def test_predictions_have_the_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("train.jsonl", "dev.jsonl"):
        write(tmp_path, "spacy", name)
    Path("new.jsonl").write_text('{"text": "Anna saw Rome.", "n": 1}\n')
    words = ["task=tagging", "task.path=.", "checkpoint=null", "size=tiny", "size.width=16"]
    small = ["size.num_heads=2", "train.epochs=null", "train.steps=1", "train.device=cpu"]
    plmctl("finetune", *words, *small, "run.dir=r")
    rows = [json.loads(line) for line in Path("r/predictions/dev.jsonl").read_text().splitlines()]
    for row, (text, _) in zip(rows, TEXTS, strict=True):
        assert row["text"] == text
        for own in row["entities"]:
            assert text[own["start"] : own["end"]] == own["text"]
    out = plmctl("eval", "checkpoint=r", "input=new.jsonl", "out=-", "device=cpu")
    (row,) = (json.loads(line) for line in out.splitlines())
    assert (row["text"], row["n"]) == ("Anna saw Rome.", 1)
    assert isinstance(row["entities"], list)
    assert row["words"] == ["Anna", "saw", "Rome", "."]
    # a line without layout is cut as the texts of training were, and keeps its characters
    Path("new.txt").write_text("Anna saw Rome, Paris.\n  Anna (Berg)\n")
    out = plmctl("eval", "checkpoint=r", "input=new.txt", "out=-", "device=cpu")
    lines = Path("new.txt").read_text().splitlines()
    for line, row in zip(lines, map(json.loads, out.splitlines()), strict=True):
        assert row["words"] == tag_text(line, None).words
        assert row["source"] == line
        assert [line[e["start"] : e["end"]] for e in row["entities"]] == [
            e["text"] for e in row["entities"]
        ]
    # and so is the column of texts of a table, which needs no column of entities
    for name, sign in (("new.csv", ","), ("new.tsv", "\t")):
        Path(name).write_text(f"n{sign}text\n1{sign}Anna saw Rome (Paris).\n2{sign}It rained.\n")
        plmctl("eval", "checkpoint=r", f"input={name}", f"out={name}.jsonl", "device=cpu")
        found = [json.loads(line) for line in Path(f"{name}.jsonl").read_text().splitlines()]
        assert [row["words"] for row in found] == [
            ["Anna", "saw", "Rome", "(", "Paris", ")", "."],
            ["It", "rained", "."],
        ]
        assert [(row["n"], isinstance(row["entities"], list)) for row in found] == [
            ("1", True),
            ("2", True),
        ]


def test_words_of_such_texts_are_not_replaced(tmp_path: Path) -> None:
    """`data augment` would move the characters of entities, so it says so before it writes."""
    write(tmp_path, "spacy", "train.jsonl")
    with pytest.raises(DataError, match="entities are given by their characters"):
        TaggedSheet.of(make_task(tmp_path), "train")
