"""Labelled tables without what `data check` finds: the rows that stay, in the form of the table,
and their parts.
"""

from __future__ import annotations

import gzip
import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from plmctl.config.command import perform
from plmctl.config.compose import compose
from plmctl.core.errors import ConfigError, DataError
from plmctl.data.check.finding import shorten
from plmctl.tasks.check import check_task
from plmctl.tasks.classification import Classification
from plmctl.tasks.cleaned import (
    BETWEEN,
    choose_rows,
    clean_table,
    describe_part,
    describe_shares,
    divide_table,
    extend_parts,
    read_parts,
)
from plmctl.tasks.readers.tables import Table
from plmctl.tasks.record import Example
from tests.command import plmctl

COLUMNS = {"text": "Text", "label": "Art", "bundle": "Kunde"}
ROWS = [
    'K1;"Wo ist; das ""Paket""";Versand',
    "K1;=Straße 5;Versand",
    "K2;=STRASSE 5;versand ",  # a copy: the label differs in its spelling alone
    "K2;Danke;Lob",
    "K3;Danke;Rechnung",
    "",
    "K3; ;Lob",
    "K4;Ohne Art;",
    'K4;"Zwei\nZeilen";versand',
]
KEPT = [ROWS[0], ROWS[1], ROWS[8]]
HEAD = "\ufeffKunde;Text;Art"


def open_task(
    file: Path, *, columns: object = COLUMNS, dev_share: float | None = None, **settings: object
) -> Classification:
    reader = Table(splits={"train": ["train.*"]}, **settings)
    how = {"name": "t", "max_length": 9, "metrics": ["accuracy"], "path": str(file)}
    how["dev_share"] = dev_share
    return Classification(reader=reader, columns=columns, **how)


def write(file: Path, rows: list[str], end: str = "\r\n") -> Path:
    content = "".join(f"{row}{end}" for row in rows)
    file.write_bytes(gzip.compress(content.encode()) if file.suffix == ".gz" else content.encode())
    return file


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_rows_stay_byte_for_byte(tmp_path: Path, name: str) -> None:
    file = write(tmp_path / name, [HEAD, *ROWS])
    table = clean_table(open_task(file))
    assert table.spell(table.kept) == "".join(f"{row}\r\n" for row in [HEAD, *KEPT])
    lines = {reason: [line for line, _ in rows] for reason, rows in table.dropped.items()}
    assert lines == {
        "rows passed over": [9],
        "empty texts": [8],
        "contradictory labels": [5, 6],
        "copies, but for case": [4],
    }
    assert "    line 4: '=STRASSE 5' (versand), as line 3" in table.describe()
    kept = clean_table(open_task(file), keep_disputed=True).kept
    assert [each.label for each in kept] == ["Versand", "Versand", "Lob", "Rechnung", "versand"]


def test_labels_of_a_table_are_merged_and_nothing_else_changes(tmp_path: Path) -> None:
    merged = write(tmp_path / "merged.csv", ["versand,Versand"], "\n")
    file = write(tmp_path / "t.csv", [HEAD, *ROWS])
    table = clean_table(open_task(file, merged_by=str(merged)))
    last = KEPT[-1].replace("versand", "Versand")
    assert table.spell(table.kept) == "".join(f"{row}\r\n" for row in [HEAD, *KEPT[:2], last])
    rows = ['b\tsay "hi\tversand\t=2', "c\td\tLob\t", 'a\t"x\ty"\tversand\t-1']
    file = write(tmp_path / "t.tsv", rows, "\n")
    task = open_task(file, columns={"text": 1, "label": -2}, merged_by=str(merged))
    table = clean_table(task)  # no line has names; the quote in the first row is a letter
    assert table.spell(table.kept) == "".join(f"{row}\n" for row in rows).replace("v", "V")
    objects = [{"Text": "ä", "Art": "versand", "n": [1]}, {"Text": "b", "Art": "Lob"}]
    lines = [json.dumps(each) for each in objects]
    file = write(tmp_path / "t.jsonl", lines)
    columns = {"text": "Text", "label": "Art"}
    table = clean_table(open_task(file, columns=columns, merged_by=str(merged)))
    first, second = table.spell(table.kept).split("\r\n")[:2]
    assert (json.loads(first), second) == ({**objects[0], "Art": "Versand"}, lines[1])


def test_a_number_and_its_negative_are_no_copies() -> None:
    rows = [Example("", {"text": "a"}, label, f"t:{n}") for n, label in enumerate([-1.0, 1.0, "x"])]
    assert [*choose_rows(rows)[1]] == ["contradictory labels"]
    assert choose_rows(rows, keep_disputed=True) == (rows, {})


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_labels_lose_the_spaces_around_them(tmp_path: Path, kind: str) -> None:
    rows = [
        ("one, two", "top-up"),
        (" three", "cards "),
        ("four", "\u3000cards"),
        ("five", "cards"),
    ]
    spell = {
        "csv": lambda text, label: f'"{text}",{label}',
        "tsv": lambda text, label: f"{text}\t{label}",
        "jsonl": lambda text, label: json.dumps({"text": text, "label": label}),
    }[kind]
    head = [] if kind == "jsonl" else [spell("text", "label").replace('"', "")]
    file = write(tmp_path / f"t.{kind}", [*head, *(spell(*row) for row in rows)])
    table = clean_table(open_task(file, columns={"text": "text", "label": "label"}))
    lines = table.spell(table.kept).split("\r\n")[len(head) : -1]
    for line, (_, label) in zip(lines, rows, strict=True):
        assert line.strip('"}').endswith(label.strip())
    assert (lines[0], lines[3]) == (spell(*rows[0]), spell(*rows[3])), "others are as they were"
    assert [label for _, label in table.trimmed] == ["cards ", "\u3000cards"]
    said = table.describe()
    assert "  labels with spaces around, written without: 2 rows" in said
    assert f"    line {len(head) + 2}: 'cards '" in said
    again = write(tmp_path / f"again.{kind}", [*head, *lines])
    assert not clean_table(open_task(again, columns={"text": "text", "label": "label"})).trimmed


def test_an_open_quote_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", ["Kunde,Text,Art", 'a,"open,x', "b,c,y", "d,e,z"])
    with pytest.raises(DataError, match="quote"):
        clean_table(open_task(file))


def test_parts_are_files_and_the_command_shows_before_it_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"K{n % 40};text {n};{'Lob' if n % 3 else 'Versand'}" for n in range(200)]
    file = write(tmp_path / "t.csv", [HEAD, *rows])
    columns = [f"task.columns.{role}={name}" for role, name in COLUMNS.items()]
    words = ["task=classification", f"task.path={file}", *columns]
    assert perform(compose("clean", None, words)) == 0
    assert "nothing is written" in capsys.readouterr().out
    shares = ["task.dev_share=0.1", "task.test_share=0.2"]
    assert perform(compose("clean", None, [*words, *shares, f"out={tmp_path / 'parts'}"])) == 0
    read = {f.stem: f.read_bytes().decode() for f in (tmp_path / "parts").glob("*.csv")}
    assert all(text.startswith(f"{HEAD}\r\n") for text in read.values())
    parts = {name: text.splitlines()[1:] for name, text in read.items()}
    assert sorted(row for own in parts.values() for row in own) == sorted(rows)
    assert {name: len(own) for name, own in parts.items()} == {"train": 145, "dev": 15, "test": 40}
    of = [{row.partition(";")[0] for row in own} for own in parts.values()]
    assert sum(map(len, of)) == 40
    with pytest.raises(ConfigError, match="out"):
        perform(compose("clean", None, [*words, f"out={tmp_path / 'other.tsv'}"]))


def test_new_rows_leave_the_old_ones_in_their_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Old rows stand first, as they were; rows of a known customer go to the part of that one."""
    old = [f"K{n % 40};text {n};{'Lob' if n % 3 else 'Versand'}" for n in range(200)]
    file = write(tmp_path / "t.csv", [HEAD, *old])
    columns = [f"task.columns.{role}={name}" for role, name in COLUMNS.items()]
    words = ["task=classification", *columns]
    shares = ["task.dev_share=0.1", "task.test_share=0.2", f"task.path={file}"]
    assert perform(compose("clean", None, [*words, *shares, f"out={tmp_path / 'parts'}"])) == 0
    before = {f.stem: f.read_bytes().decode() for f in (tmp_path / "parts").glob("*.csv")}
    added = [f"K{n % 80};more {n};{'Lob' if n % 3 else 'Versand'}" for n in range(160)]
    gone = ["K99;TEXT 5;Lob", "K98;text 6;Lob"]  # a copy, and another label than the old one
    new = write(tmp_path / "new.csv", [HEAD.removeprefix("\ufeff"), *added, *gone], "\n")
    words += [f"task.path={new}", f"keep_parts={tmp_path / 'parts'}"]
    capsys.readouterr()
    assert perform(compose("clean", None, [*words, f"out={tmp_path / 'next'}"])) == 0
    said = capsys.readouterr().out
    assert "162 rows, of which 160 stay" in said
    line = next(n for n, row in enumerate(before["train"].splitlines(), 1) if ";text 5;" in row)
    assert f"'TEXT 5' (Lob), as line {line} of {tmp_path / 'parts' / 'train.csv'}" in said
    assert "contradictory labels: 1" in said
    after = {f.stem: f.read_bytes().decode() for f in (tmp_path / "next").glob("*.csv")}
    part_of, of_new, counts = dict[str, str](), dict[str, str](), dict[str, int]()
    for name, text in after.items():
        assert text.startswith(before[name])
        part_of |= {row.partition(";")[0]: name for row in before[name].splitlines()[1:]}
        rows = text.removeprefix(before[name]).split("\r\n")
        counts[name] = len(rows) - 1
        for row in rows[:-1]:
            assert of_new.setdefault(row.partition(";")[0], name) == name
    assert sum(counts.values()) == 160
    assert {customer: of_new[customer] for customer in part_of} == part_of
    fresh = [name for customer, name in of_new.items() if customer not in part_of]
    assert len(fresh) == 40  # of two rows each, divided as the old ones: 20% test, 9.4% dev
    assert (fresh.count("test"), fresh.count("dev")) == (8, 3)
    assert f", {counts['test']} of them new" in said
    zero = ["task.dev_share=0", "task.test_share=0", f"out={tmp_path / 'train'}"]
    assert perform(compose("clean", None, [*words, *zero])) == 0
    rows = (tmp_path / "train/test.csv").read_text().splitlines()
    assert {row.partition(";")[0] for row in rows[1:]} <= part_of.keys()
    with pytest.raises(ConfigError, match="keep_parts"):
        perform(compose("clean", None, [*words, f"keep_parts={tmp_path}"]))


LONG = "the box of order {} was broken when the man of the post gave it to me on {}"


def test_new_near_copies_go_to_the_part_of_the_old_row(tmp_path: Path) -> None:
    """One that is near rows in two parts leaves; near new ones are in one part."""
    old = {
        "train": ["please send the bill of may once more to our new office in {} street", "a b"],
        "dev": ["c d"],
        "test": [LONG],
    }
    for name, texts in old.items():
        rows = [f"{text.format(1, 'Monday')},{'xy'[n]}" for n, text in enumerate(texts)]
        write(tmp_path / f"{name}.csv", ["text,label", *rows], "\n")
    new = [old["train"][0].format(22), LONG.format(333, "Monday"), LONG.format(4, "Sunday")]
    many = [f"nothing of what you sent in week {n} fits into this house of ours" for n in range(30)]
    rows = [f"{text},y" for text in [*new, *many, "e f", "g h"]]
    file = write(tmp_path / "new.csv", ["text,label", *rows], "\n")
    task = open_task(file, columns={"text": "text", "label": "label"})
    known = read_parts(task, tmp_path)
    table = clean_table(task, known=[each for own in known.values() for each in own.examples])
    table, parts = extend_parts(replace(task.splits, dev_share=0.3), table, known)
    of = {each.fields["text"]: name for name, own in parts.items() for each in own}
    assert [of[text] for text in new] == ["train", "test", "test"]
    assert len({of[text] for text in many}) == 1
    assert len(of) == len(rows)
    write(tmp_path / "dev.csv", ["text,label", f"{LONG.format(9, 'Monday')},x"], "\n")
    known = read_parts(task, tmp_path)
    table, parts = extend_parts(task.splits, table, known)
    assert table.dropped[BETWEEN] == [
        (line, f"'{shorten(text)}' (y)") for line, text in enumerate(new[1:], 3)
    ]
    assert sum(map(len, parts.values())) == len(table.kept) == len(rows) - 2


def test_data_check_counts_near_copies_by_the_rule_of_dedup(tmp_path: Path) -> None:
    for name, numbers in {"train": [1, 2], "dev": [3], "test": [4, 5]}.items():
        rows = [f"{LONG.format(n, 'Monday')},x" for n in numbers]
        write(tmp_path / f"{name}.csv", ["text,label", *rows, f"{name},y"], "\n")
    task = open_task(tmp_path, columns={"text": "text", "label": "label"})
    task.splits.reader.splits.update(dev=["dev.*"], test=["test.*"])
    found = {each.name: each for each in check_task(task, None).findings}
    assert found["test in train"].numbers["count"] == 0
    near = found["near copies across parts"]
    assert near.found.startswith("dev 1 of 2, test 2 of 3 have one in an earlier part: ")
    assert near.verdict == "bad"


def test_new_rows_are_read_as_the_parts_were(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Settings of the first call count, columns stand as there, and new labels are named."""
    merged = write(tmp_path / "labels.csv", ["lob,Lob"], "\n")
    old = [f"K{n % 40};text {n};{'Lob' if n % 3 else 'Versand'}" for n in range(80)]
    file = write(tmp_path / "t.csv", [HEAD, *old])
    columns = [f"task.columns.{role}={name}" for role, name in COLUMNS.items()]
    made = ["task=classification", *columns, f"task.reader.merged_by={merged}"]
    shares = ["task.dev_share=0.2", f"task.path={file}", f"out={tmp_path / 'parts'}"]
    assert perform(compose("clean", None, [*made, *shares])) == 0
    rows = [f'"new, {n}",{label},K{n},0.5' for n, label in enumerate(["lob", "odd", "odd"])]
    new = write(tmp_path / "new.csv", ["Text,Art,Kunde,guess", *rows], "\n")
    words = [made[0], f"task.path={new}", f"keep_parts={tmp_path / 'parts'}"]
    capsys.readouterr()
    assert perform(compose("clean", None, [*words, f"out={tmp_path / 'next'}"])) == 0
    said = capsys.readouterr().out
    assert f"settings of {tmp_path / 'parts' / 'made.json'}: {' '.join(made[1:])}\n" in said
    assert "new labels: 'odd' (2 rows)\n" in said
    assert "parts/train.csv: " not in said, "its labels are merged already"
    assert "columns that the parts lack, left out: guess" in said
    assert "task.columns.bundle=Kunde checkpoint=" in said.partition("next:")[2]
    added, where = dict[str, str](), dict[str, set[str]]()
    for part in (tmp_path / "next").glob("*.csv"):
        for row in part.read_text().splitlines()[1:]:
            where.setdefault(row.partition(";")[0], set()).add(part.stem)
            added |= {row: part.stem} if ';"new, ' in row else {}
    assert sorted(added) == ['K0;"new, 0";Lob', 'K1;"new, 1";odd', 'K2;"new, 2";odd']
    assert all(len(parts) == 1 for parts in where.values())
    settings = json.loads((tmp_path / "next/made.json").read_text())["settings"]
    assert set(made) < set(settings), "the next call finds them, too"
    (tmp_path / "parts/made.json").unlink()
    assert perform(compose("clean", None, [*made[1:3], *words])) == 0
    said = capsys.readouterr().out
    assert "made.json has no settings of data clean" in said
    assert "task.columns.bundle=<a column>" in said
    other = write(tmp_path / "other.csv", ["Text,Art", "a,Lob"], "\n")
    with pytest.raises(DataError, match=r"no column Kunde, which .*train\.csv has"):
        perform(compose("clean", None, [*made[1:3], *words, f"task.path={other}"]))


def test_a_part_says_its_share_where_bundles_make_it_another(tmp_path: Path) -> None:
    rows = [Example("", {"text": f"{n}"}, "x", f"t:{n}", bundle=f"{n // 9}") for n in range(40)]
    splits = open_task(write(tmp_path / "t.csv", [HEAD]), dev_share=0.15).splits
    notes = describe_shares(splits, {"train": rows[9:], "dev": rows[:9]})
    assert notes["dev"] == ", 22.5% of 40 (task.dev_share=0.15); bundles stay together"
    notes = describe_shares(splits, {"train": rows[6:], "dev": rows[:6]})
    assert notes["dev"] == ", 15.0% of 40 (task.dev_share=0.15)"


def test_the_share_of_dev_is_of_what_test_leaves(tmp_path: Path) -> None:
    rows = [Example("", {"text": f"{n}"}, "xy"[n % 2], f"t:{n}") for n in range(1000)]
    splits = open_task(write(tmp_path / "t.csv", [HEAD]), dev_share=0.1).splits
    splits = replace(splits, test_share=0.1)
    assert describe_shares(splits, divide_table(splits, rows)) == {
        "train": ", 81.0% of 1,000",
        "dev": ", 9.0% of 1,000 (task.dev_share=0.1 of the 900 without test)",
        "test": ", 10.0% of 1,000 (task.test_share=0.1)",
    }


def test_many_labels_are_counted_and_said_where_to_see() -> None:
    few = [Example("", {"text": "a"}, str(n % 20)) for n in range(40)]
    assert describe_part("dev", few).endswith(", 19 2)")
    several = [Example("", {"text": "a"}, str(n % 50)) for n in range(100)]
    said = describe_part("dev", several)
    assert said.startswith("  dev: 100 rows (50 labels: 0 2, 1 2, ")
    assert said.endswith("19 2 and 30 more; --json lists all)")


def test_labels_that_a_part_lacks_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"text {n},{'often' if n % 3 else 'less'}" for n in range(60)]
    file = write(tmp_path / "t.csv", ["text,label", *rows, "a,rare", "b,rare", "c,once"], "\n")
    shares = ["task.dev_share=0.2", "task.test_share=0.2"]
    assert (
        perform(compose("clean", None, ["task=classification", f"task.path={file}", *shares])) == 0
    )
    train, dev, test = capsys.readouterr().out.splitlines()[1:4]
    assert dev.endswith("; it lacks once (1 row), rare (2 rows)")
    assert "rare 1), 20.6% of 63 (task.test_share=0.2)" in test  # test is held out first
    assert test.endswith("; it lacks once (1 row)")
    assert "lacks" not in train


def test_data_check_counts_what_data_clean_leaves_out(tmp_path: Path) -> None:
    """Rows of empty texts, contradictions and copies are three kinds: none counts as two."""
    rows = ["a,x", "A,y", "a,x", "b,x", "B,X", "b,x", " ,x", ",y", ",x", "c,y"]
    file = write(tmp_path / "t.csv", ["text,label", *rows], "\n")
    columns = {"text": "text", "label": "label"}
    dropped = clean_table(open_task(file, columns=columns)).dropped
    found = {
        each.name: each for each in check_task(open_task(file, columns=columns), None).findings
    }
    names = ("empty texts", "contradictory labels", "duplicate examples")
    assert [found[name].numbers["count"] for name in names] == [3, 3, 2]
    assert [len(own) for own in dropped.values()] == [3, 3, 2]


def test_a_table_of_another_form_than_the_parts_gets_the_command_that_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parts").mkdir()
    rows = [{"text": f"row {n}", "label": "ab"[n % 2]} for n in range(4)]
    Path("parts/train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("new.csv").write_text("body,label\na new text,a\n")
    words = ["task=classification", "keep_parts=parts"]
    said = plmctl("data", "clean", "new.csv", *words, "task.columns.text=body", code=2)
    fix = said.partition("fix: ")[2].partition("  # then data clean ")
    plmctl(*shlex.split(fix[0])[1:])
    said = plmctl("data", "clean", fix[2].strip(), *words)
    assert "train: 5 rows" in said
