"""SuperGLUE's tasks: their files as they are published, rows that are refused, what the leader
board takes.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from plmctl.core.errors import ConfigError, DataError
from plmctl.tasks.baselines import score_baselines
from plmctl.tasks.capabilities import submit
from tests.tasks.superglue_files import (
    BOOLQ,
    CB,
    COPA,
    MULTIRC,
    RECORD,
    ROWS,
    RTE,
    WSC,
    assert_refused,
    make_task,
    read_one,
    write,
)


def test_pairs_of_texts(tmp_path: Path) -> None:
    boolq = read_one("boolq", tmp_path, BOOLQ)
    assert boolq.fields == {"text": "Rain -- It fell.", "text2": "is it wet"}
    assert (boolq.id, boolq.label) == ("4", "true")
    cb = read_one("cb", tmp_path, CB)
    assert (cb.fields["text2"], cb.label, cb.id) == ("it is", "contradiction", "9")
    assert read_one("superglue_rte", tmp_path, RTE).label == "not_entailment"
    unlabelled = {name: value for name, value in RTE.items() if name != "label"}
    assert read_one("superglue_rte", tmp_path, unlabelled, "test").label is None


def test_the_published_names_of_files(tmp_path: Path) -> None:
    folder = tmp_path / "BoolQ"
    for name in ("train.jsonl", "val.jsonl", "test.jsonl"):
        write(folder / name, BOOLQ)
    task = make_task("boolq", tmp_path)
    assert all(task.splits.has(split) for split in ("train", "dev", "test"))


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("boolq", {"question": "q", "label": True}, "no field passage; found question, label"),
        ("cb", {**CB, "label": None}, "the label is empty"),
        ("cb", {**CB, "premise": ["x"]}, "field premise is a list, not a text"),
        ("copa", {**COPA, "question": "reason"}, "'question' must be one of cause, effect"),
        ("copa", {**COPA, "label": 2}, "'label' must be one of 0, 1"),
        ("copa", {**COPA, "label": None}, "the label is missing"),
        ("copa", {"premise": "x"}, "must have 'choice1'"),
        ("copa", ["x"], "must be a mapping"),
        ("wsc", {**WSC, "label": "maybe"}, "'label' must be"),
        ("wsc", {"text": "x"}, "must have 'target'"),
        ("multirc", {"idx": 0, "passage": {"text": "x"}}, "'passage.questions?'|must have"),
    ],
)
def test_broken_rows(tmp_path: Path, name: str, row: Any, message: str) -> None:
    assert_refused(name, tmp_path, row, message)


@pytest.mark.parametrize("name", ["copa", "multirc", "record", "wsc"])
def test_broken_files(tmp_path: Path, name: str) -> None:
    (tmp_path / "train.jsonl").write_text('{"idx": 0\n')
    with pytest.raises(DataError, match=r"train\.jsonl:1"):
        make_task(name, tmp_path).read("train")
    (tmp_path / "train.jsonl").write_bytes('{"text": "caf\u00e9"}\n'.encode("latin-1"))
    with pytest.raises(DataError, match=r"train\.jsonl.*UTF-8"):
        make_task(name, tmp_path).read("train")
    (tmp_path / "train.jsonl").write_text("\n")
    with pytest.raises(DataError, match="the file is empty"):
        make_task(name, tmp_path).read("train")


def test_an_unknown_label(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", CB, {**CB, "label": "neutrl"})
    task = make_task("cb", tmp_path)
    with pytest.raises(DataError, match=r"(?s)train\.jsonl:2.*'neutrl'.*neutral"):
        task.fit_labels(task.read("train"))


WORD = {"word": "bank", "sentence1": "a bank", "sentence2": "the bank", "label": True}


@pytest.mark.parametrize("name", ["copa", "multirc", "record", "wic"])
def test_public_tests_have_no_labels(name: str, tmp_path: Path) -> None:
    row = copy.deepcopy({"copa": COPA, "multirc": MULTIRC, "record": RECORD, "wic": WORD}[name])
    row.pop("label", None)
    for question in row.get("passage", {}).get("questions", ()):
        for answer in question["answers"]:
            answer.pop("label")
    for question in row.get("qas", ()):
        question.pop("answers")
    assert read_one(name, tmp_path, row, "test").label is None
    with pytest.raises(DataError, match="label is missing"):
        read_one(name, tmp_path, row, "train")


def test_copa(tmp_path: Path) -> None:
    example = read_one("copa", tmp_path, COPA)
    asked = "My body cast a shadow over the grass. What was the cause of this?"
    assert example.fields == {"text": asked, "choices": [COPA["choice1"], COPA["choice2"]]}
    effect = read_one("copa", tmp_path, {**COPA, "question": "effect", "label": 1})
    assert effect.fields["text"].endswith("What happened as a result?")
    assert effect.label == "1"


def test_multirc(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", MULTIRC)
    task = make_task("multirc", tmp_path)
    examples = task.read("train")
    assert [(e.id, e.bundle, e.label) for e in examples] == [
        ("3.7.20", "3.7", "right"),
        ("3.7.21", "3.7", "wrong"),
        ("3.8.22", "3.8", "right"),
    ]
    assert examples[1].fields == {"text": "Ana and Bo met in Paris.", "text2": "Who met? Cy"}
    assert len({task.unit(example) for example in examples}) == 1
    guesses = [{"id": e.id, "guess": "right"} for e in examples]
    assert json.loads(submit(task, guesses, "MultiRC.jsonl")) == {
        "idx": 3,
        "passage": {
            "questions": [
                {"idx": 7, "answers": [{"idx": 20, "label": 1}, {"idx": 21, "label": 1}]},
                {"idx": 8, "answers": [{"idx": 22, "label": 1}]},
            ]
        },
    }
    assert task.parse("a passage\tWho? Ana", 1).fields["text2"] == "Who? Ana"


def test_wsc(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", WSC)
    task = make_task("wsc", tmp_path)
    (example,) = task.read("train")
    text = example.fields["text"]
    assert [text[e["start"] : e["end"]] for e in example.fields["entities"]] == ["Mark", "He"]
    assert example.label == "True"
    # the quotation mark before it
    assert list(task.splits.reader.notes.values()) == [
        "1 spans differ from the text at their index"
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"span1_index": 99}, "word 99 of 'Mark' is outside of a text of 12 words"),
        ({"span2_text": "She"}, "the text has no 'She'"),
        ({"span1_text": ""}, "the text has no ''"),
        ({"span1_index": "no"}, "'target.span1_index' must be a whole number"),
    ],
)
def test_offsets_of_wsc(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    row = copy.deepcopy(WSC)
    row["target"] |= change  # type: ignore[operator]
    assert_refused("wsc", tmp_path, row, message)


def test_schemas_of_clue_have_a_task_of_their_own(tmp_path: Path) -> None:
    target = {"span1_text": "枕头", "span1_index": 7, "span2_text": "它", "span2_index": 10}
    row = {"text": "我把它放在枕头下面了", "target": target, "label": False}
    assert_refused("wsc", tmp_path, row, "fix: task=cluewsc2020")


def test_the_nearest_place_of_a_span(tmp_path: Path) -> None:
    """Of two equal names the one that the index counts; no part of a word."""
    target = {"span1_text": "he", "span1_index": 4, "span2_text": "the", "span2_index": 2}
    row = {"text": "he saw the dog he likes", "target": target, "label": False}
    places = read_one("wsc", tmp_path, row).fields["entities"]
    assert [(e["start"], e["end"]) for e in places] == [(15, 17), (7, 10)]


def test_lines_for_the_leader_board(tmp_path: Path) -> None:
    boolq = make_task("boolq", tmp_path)
    assert submit(boolq, [{"id": "7", "guess": "true"}], "BoolQ.jsonl") == (
        '{"idx": 7, "label": "true"}\n'
    )
    copa = make_task("copa", tmp_path)
    assert copa.submission == {"test": "COPA.jsonl"}
    assert submit(copa, [{"id": "0", "guess": 1}], "COPA.jsonl") == '{"idx": 0, "label": 1}\n'


def test_a_decoder_reads_wsc_from_the_row(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the states of entities stand before the end"):
        make_task("wsc", tmp_path, "task.sees_later=false")
    make_task("wsc", tmp_path, "task.sees_later=false", "task.states=row", "task.marks=symbols")


@pytest.mark.parametrize("name", ROWS)
def test_models_without_pretraining_take_the_same_scores(tmp_path: Path, name: str) -> None:
    """Their predictions are those that `score` reads; of ReCoRD there are none."""
    write(tmp_path / "train.jsonl", ROWS[name], ROWS[name])
    task = make_task(name, tmp_path)
    examples = task.read("train")
    task.fit_labels(examples)
    found = score_baselines(task, examples, {"dev": examples}).scores
    named = {metric for own in found.values() for each in own.values() for metric in each}
    assert named == (set() if name == "record" else set(task.metrics))
