"""Labels as people's files have them: lists in brackets, 0 and 1 for each label, spellings that
differ in case alone, and values that are missing.
"""

from __future__ import annotations

import json
import math
import random
import shlex
from pathlib import Path
from typing import Any

import pytest

from plmctl.config.build import build
from plmctl.config.compose import compose
from plmctl.core.errors import DataError, PlmctlError
from plmctl.tasks.answers.label_ids import label_ids
from plmctl.tasks.check import check_task
from plmctl.tasks.readers.label_lists import count_places, is_list, read_list
from plmctl.tasks.readers.label_text import describe_names, group_alike
from tests.command import plmctl

NAMES = ["toxic", "very bad", "insult"]
SIGNS = {"hot digits": "", "hot spaces": " ", "hot commas": ",", "hot bars": "|"}


def make(path: object, *words: str, task: str = "multilabel") -> Any:
    own = [f"task={task}", f"task.path={path}", "checkpoint=null", *words]
    return build(compose("finetune", None, own).task, {"pooling": "first"}, path="task")


def labels_of(task: Any) -> list[Any]:
    task.splits = task.splits.whole()
    return [example.label for example in task.read("train")]


@pytest.mark.parametrize("labels", [["a"], ["a", "b c"], ["it's", 'say "x"'], ["a,b", "c"], []])
def test_lists_in_brackets_are_those_that_python_and_json_write(labels: list[str]) -> None:
    assert read_list(str(labels)) == labels
    assert read_list(json.dumps(labels)) == labels


def test_other_lists_in_brackets() -> None:
    np = pytest.importorskip("numpy")
    assert read_list(str(np.array([0, 1, 1]))) == ["0", "1", "1"]
    assert read_list(str(np.array(["a", "b c"]))) == ["a", "b c"]
    assert read_list("[joy, not sad]") == ["joy", "not sad"]
    assert read_list("('a',)") == ["a"]
    assert read_list("['a'") is None
    assert [is_list(text) for text in ("['a']", "[0,1]", "[OTHER]", "[not sure]", "a,b")] == [
        *(True, True, False, False, False)
    ]


def test_places_are_told_from_names() -> None:
    assert count_places([["0", "1", "1"], ["1", "0", "0"]]) == 3
    assert count_places([["0", "0"]]) == 2
    assert count_places([["0", "1"]]) == 0  # two names
    assert count_places([["0"], ["1"]]) == 0
    assert count_places([["0", "1"], ["1"]]) == 0
    assert count_places([["0", "2"], ["1", "2"]]) == 0


def draw(rows: int = 24) -> list[list[int]]:
    chance = random.Random(3)
    return [[int(chance.random() < 0.4) for _ in NAMES[:-1]] + [0] for _ in range(rows)]


def write(folder: Path, layout: str, rows: list[list[int]]) -> tuple[Path, list[str]]:
    """A file in one layout, and the settings that read it with names."""
    named = f"task.label_names=[{','.join(NAMES)}]"
    flags = [*map(str, NAMES)]
    texts = [f"text {n}" for n in range(len(rows))]
    own = [[name for name, each in zip(NAMES, row, strict=True) if each] for row in rows]
    if layout in ("columns", "objects", "words"):
        settings = [f"task.columns.labels=[{','.join(flags)}]"]
        if layout == "objects":
            lines = [
                json.dumps({"text": t, **{n: bool(v) for n, v in zip(NAMES, r, strict=True)}})
                for t, r in zip(texts, rows, strict=True)
            ]
            return _file(folder, "jsonl", lines), settings
        shown = [[("no", "Yes")[v] if layout == "words" else str(v) for v in r] for r in rows]
        lines = [f"{t},{','.join(r)}" for t, r in zip(texts, shown, strict=True)]
        return _file(folder, "csv", [f"text,{','.join(flags)}", *lines]), settings
    if layout in SIGNS:
        cells = [SIGNS[layout].join(map(str, r)) for r in rows]
        lines = [f"{t}\t{cell}" for t, cell in zip(texts, cells, strict=True)]
        return _file(folder, "tsv", ["text\tlabels", *lines]), [named]
    if layout == "maps":
        maps = [dict(zip(NAMES, row, strict=True)) for row in rows]
        lines = [json.dumps({"text": t, "labels": m}) for t, m in zip(texts, maps, strict=True)]
        return _file(folder, "jsonl", lines), []
    lists = {"hot": rows, "hot cells": rows, "brackets": own, "quoted": own}[layout]
    if layout == "hot":
        lines = [json.dumps({"text": t, "labels": r}) for t, r in zip(texts, lists, strict=True)]
        return _file(folder, "jsonl", lines), [named]
    spell = str if layout != "quoted" else json.dumps
    cells = ['"{}"'.format(spell(r).replace('"', '""')) for r in lists]
    lines = [f"{t},{cell}" for t, cell in zip(texts, cells, strict=True)]
    return _file(folder, "csv", ["text,labels", *lines]), [named] if "hot" in layout else []


def _file(folder: Path, kind: str, lines: list[str]) -> Path:
    file = folder / f"all.{kind}"
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.mark.parametrize(
    "layout",
    ["columns", "objects", "words", "maps", "hot", "hot cells", "brackets", "quoted", *SIGNS],
)
def test_every_layout_gives_the_same_labels(layout: str, tmp_path: Path) -> None:
    rows = draw()
    file, settings = write(tmp_path, layout, rows)
    task = make(file, *settings)
    wanted = [[name for name, each in zip(NAMES, row, strict=True) if each] for row in rows]
    assert labels_of(task) == wanted
    task.fit_labels(task.read("train"))
    if layout in ("columns", "objects", "words") or "hot" in layout:
        assert task.names == NAMES  # in the order of the file, with those that nothing has
    if "hot" in layout:  # without names these are places
        bare = make(file)
        assert labels_of(bare) == [[str(NAMES.index(n)) for n in own] for own in wanted]
        assert bare.names == ["0", "1", "2"]
        assert "task.label_names=[...] names them" in bare.splits.reader.notes[str(file)]


def told_fix(task: Any) -> list[str]:
    with pytest.raises(PlmctlError) as caught:
        labels_of(task)
    return shlex.split(str(caught.value).rpartition("\n  fix: ")[2])


@pytest.mark.parametrize("task", ["classification", "multilabel"])
@pytest.mark.parametrize("layout", ["columns", "objects", "words"])
def test_columns_of_flags_are_named_with_the_right_way(
    layout: str, task: str, tmp_path: Path
) -> None:
    rows = draw()
    file, _ = write(tmp_path, layout, rows)
    words = told_fix(make(file, task=task))
    assert ("task=multilabel" in words) == (task == "classification")
    read = labels_of(make(file, *(word for word in words if word != "task=multilabel")))
    assert read == [[n for n, each in zip(NAMES, row, strict=True) if each] for row in rows]


@pytest.mark.parametrize("layout", ["hot", "brackets", *SIGNS])
def test_lists_are_no_classes(layout: str, tmp_path: Path) -> None:
    file, _ = write(tmp_path, layout, draw())
    words = told_fix(make(file, "task.columns.label=labels", task="classification"))
    assert words == ["task=multilabel", "task.columns.labels=labels"]


@pytest.mark.parametrize(
    "labels", [["10", "100", "110"], ["0", "1", "0"], ["01", "1", "10"], ["01", "01"], ["01", "02"]]
)
def test_numbers_that_name_classes_stay_classes(labels: list[str], tmp_path: Path) -> None:
    rows = [f"text {n}\t{label}" for n, label in enumerate(labels)]
    file = _file(tmp_path, "tsv", ["text\tlabel", *rows])
    assert labels_of(make(file, task="classification")) == labels


def test_other_values_than_0_and_1_are_refused(tmp_path: Path) -> None:
    file = _file(tmp_path, "csv", ["text,a,b", "x,1,0", "y,-1,0"])
    with pytest.raises(DataError, match=r"all.csv:3: column a .* is neither 0 nor 1"):
        labels_of(make(file, "task.columns.labels=[a,b]"))
    file = _file(tmp_path, "jsonl", ['{"text": "x", "labels": {"a": 0.3}}'])
    with pytest.raises(DataError, match="an object whose a is neither 0 nor 1"):
        labels_of(make(file))


def test_spellings_of_one_label_are_told_as_that(tmp_path: Path) -> None:
    assert describe_names({"pos": 3, "neg": 2}) == []
    assert describe_names({"Very Bad": 3, "very_bad": 2, "x": 1}) == [
        "the labels 'Very Bad' (3) and 'very_bad' (2) differ in case, spaces, - or _ alone: are"
        " they one?"
    ]
    assert group_alike(["topup", "top-up", "Top up", "1-0", "10", "-1", "1", "lvl 1", "lvl1"]) == [
        ["topup", "top-up", "Top up"],
        ["lvl 1", "lvl1"],
    ]
    lines = [f"text {n // 2}\t{('pos', 'Pos')[n % 2]}" for n in range(12)] + ["other\tneg"]
    file = _file(tmp_path, "tsv", ["text\tlabel", *lines])
    report = check_task(make(file, task="classification"), None)
    findings = {each.name: each for each in report.findings}
    assert findings["names of labels"].verdict == "look"
    assert findings["contradictory labels"].verdict == "ok"
    dev = tmp_path / "dev.tsv"
    dev.write_text("text\tlabel\nx\tNeg\n")
    out = plmctl(
        *("finetune", "task=classification", f"task.path=[{file},{dev}]", "--dry-run"),
        "checkpoint=null",
        code=3,
    )
    assert "label 'Neg' differs from 'neg' in case, spaces, - or _ alone" in out
    assert "fix: # spell it 'neg'" in out


@pytest.mark.parametrize("labels", [["top up", "card", "Top-up"], ["TOPUP", "card", "top_up"]])
def test_a_file_with_two_spellings_of_a_label_gets_a_table(labels: list[str]) -> None:
    """Other names for the rows of the head would have one of both spellings alone."""
    pairs = [(label, f"new.csv:{line}") for line, label in enumerate(labels, 2)]
    with pytest.raises(DataError) as found:
        label_ids(pairs, ["card", "top up"], merged=True)
    command, _, then = str(found.value).partition("fix: ")[2].partition("  # ")
    assert then == "then task.reader.merged_by=labels.csv"
    rows = shlex.split(command)
    assert rows[2:-2] == [f"{label},top up" for label in labels if label not in ("card", "top up")]


def test_values_that_are_none_are_no_labels(tmp_path: Path) -> None:
    (line,) = describe_names({"nan": 3, "None": 1, "no": 5})
    assert line == "the label 'nan' (3), 'None' (1) may stand for one that is missing"
    rows = [{"text": "a", "label": "x"}, {"text": "b", "label": math.nan}]
    file = _file(tmp_path, "jsonl", [*map(json.dumps, rows)])
    with pytest.raises(DataError, match=r"all.jsonl:2: the label is empty"):
        labels_of(make(file, task="classification"))
    rows = [{"text": math.nan, "label": "x"}]
    file = _file(tmp_path, "jsonl", [*map(json.dumps, rows)])
    with pytest.raises(DataError, match="field text is NaN, not a text"):
        labels_of(make(file, task="classification"))
    file = _file(tmp_path, "jsonl", ['{"text": "x", "labels": ["a", NaN]}'])
    with pytest.raises(DataError, match="a list with NaN in it"):
        labels_of(make(file))
    for tags in ('["O", null]', '["O", NaN]'):
        file = _file(tmp_path, "jsonl", [f'{{"tokens": ["a", "b"], "tags": {tags}}}'])
        with pytest.raises(DataError, match=r"tag 2 is (null|NaN)"):
            labels_of(make(file, task="tagging"))


def test_parquet_has_missing_labels_too(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pa.table({"text": ["a", "b"], "label": pa.array([1.0, math.nan])})
    parquet.write_table(table, tmp_path / "all.parquet")
    with pytest.raises(DataError, match="the label is empty"):
        labels_of(make(tmp_path / "all.parquet", task="classification"))
    hot = pa.table({"text": ["a", "b"], "labels": [[0, 1, 1], [1, 0, 0]]})
    parquet.write_table(hot, tmp_path / "hot.parquet")
    assert labels_of(make(tmp_path / "hot.parquet")) == [["1", "2"], ["0"]]


@pytest.mark.parametrize("kind", ["tsv", "jsonl"])
def test_a_check_names_all_rows_without_a_label(tmp_path: Path, kind: str) -> None:
    """The command that one uses first shows what it finds in the others, too."""
    rows = [("text caf\u00c3\u00a9", "ab"[n % 2] if n % 5 else "") for n in range(20)]
    lines = ["text\tlabel", *map("\t".join, rows)]
    if kind == "jsonl":
        lines = [json.dumps({"text": text, "label": label}) for text, label in rows]
    file = _file(tmp_path, kind, lines)
    task = make(file, task="classification")
    found = {each.name: each for each in check_task(task, None).findings}
    first = 2 if kind == "tsv" else 1
    numbers = ", ".join(str(first + 5 * n) for n in range(4))
    assert found["broken rows"].verdict == "bad"
    assert f"4 rows passed over: the label is empty in 4 lines ({numbers})" in str(found)
    assert found["wrongly decoded characters"].verdict == "bad"
