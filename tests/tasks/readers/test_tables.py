"""Every table layout that is promised, and what a user reads when a table is not what was
promised.
"""

import gzip
import json
import re

import pytest

from plmctl.core.errors import ConfigError, DataError
from plmctl.tasks.inference import (
    describe_empty,
    describe_reading,
    describe_single,
    describe_skipped,
)
from plmctl.tasks.predictions import beside
from plmctl.tasks.readers.choices import Choices
from plmctl.tasks.readers.label_text import spell_label
from plmctl.tasks.readers.ranking import RankingFiles
from plmctl.tasks.readers.tables import Table

SPLITS = {"train": ["train.*"], "dev": ["dev.*"], "test": ["test.*"]}
NAMED = {"text": "sentence", "label": "label"}


def _read(tmp_path, name, content, columns=NAMED, split="train", **settings):
    file = tmp_path / name
    if name.endswith(".gz"):
        file.write_bytes(gzip.compress(content.encode()))
    else:
        file.write_text(content, encoding="utf-8", newline="")
    return Table(splits=SPLITS, **settings).read(tmp_path, split, columns)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        # an unmatched quote is a letter like any other
        ("train.tsv", 'sentence\tlabel\nsay "hi\t1\nbye\t0\n'),
        ("TRAIN.TSV", 'sentence\tlabel\r\nsay "hi\t1\r\nbye\t0'),
        ("train.tsv.gz", 'label\tsentence\n1\tsay "hi\n0\tbye\n'),
        ("train.csv", 'label,sentence\n1,"say ""hi"\n0,bye\n'),
        (
            "train.jsonl",
            (
                '{"sentence": "say \\"hi", "label": 1}\n\n{"sentence": "bye", "label": "0", "more":'
                " []}\n"
            ),
        ),
        ("train.tsv", '\ufeffsentence\tlabel\nsay "hi\t1\nbye\t0\n'),
    ],
)
def test_named_columns(tmp_path, name, content):
    found = _read(tmp_path, name, content)
    assert [(e.id, e.fields, e.label) for e in found] == [
        ("0", {"text": 'say "hi'}, "1"),
        ("1", {"text": "bye"}, "0"),
    ]
    assert found[0].place.startswith(f"{tmp_path / name}:")


def test_numbered_columns_have_no_header_and_may_count_from_the_right(tmp_path):
    found = _read(tmp_path, "train.tsv", "x\t1\t\tA cat.\n", {"text": 3, "label": 1})
    assert (found[0].fields["text"], found[0].label) == ("A cat.", "1")
    found = _read(
        tmp_path,
        "train.tsv",
        "h\th\th\na\tb\t5.0\n",
        {"text": 0, "text2": 1, "label": -1},
        header=True,
    )
    assert (found[0].fields, found[0].label) == ({"text": "a", "text2": "b"}, "5.0")


def test_a_line_separator_inside_text_does_not_end_the_line(tmp_path):
    assert (
        _read(tmp_path, "train.tsv", "sentence\tlabel\na\u2028b\x0bc\t1\n")[0].fields["text"]
        == "a\u2028b\x0bc"
    )


def _read_labels(tmp_path, *labels):
    rows = [{"sentence": "a", "label": label} for label in labels]
    found = _read(tmp_path, "train.jsonl", "\n".join(map(json.dumps, rows)))
    return [e.label for e in found]


def test_booleans_and_numbers_of_json_are_labels(tmp_path):
    assert _read_labels(tmp_path, True, False, "true") == ["true", "false", "true"]
    assert _read_labels(tmp_path, 1, 1.0, "1", -2.0, 0.5) == ["1", "1", "1", "-2", "0.5"]


def test_true_and_false_beside_numbers_are_refused(tmp_path):
    """Nobody knows whether true is the label 1."""
    fix = "one kind in all lines: true and false, or 1 and 0"
    for labels, is_and_was in (
        (("x", 1.0, True), "true, but 1 on line 2"),
        (("x", False, 0), "0, but false on line 2"),
    ):
        what = rf"train\.jsonl:3: the label is {is_and_was}: true and false are no numbers\n"
        with pytest.raises(DataError, match=f"{what}  fix: # {fix}"):
            _read_labels(tmp_path, *labels)


def test_label_names_of_a_setting_are_spelled_as_those_of_json():
    assert [spell_label(name) for name in (True, 1, 1.0, "1.0")] == ["true", "1", "1", "1.0"]


def test_test_files_have_their_own_columns_and_no_label(tmp_path):
    found = _read(
        tmp_path,
        "test.tsv",
        "index\tsentence\n7\tA cat.\n",
        {"text": 3, "label": 1},
        "test",
        test_columns={"id": 0, "text": 1},
    )
    assert [(e.id, e.fields, e.label) for e in found] == [("7", {"text": "A cat."}, None)]


def test_a_missing_column_shows_what_was_found_and_two_lines(tmp_path):
    with pytest.raises(DataError) as caught:
        _read(tmp_path, "train.tsv", "sentense\tlabel\nfirst row\t1\nsecond row\t0\nthird row\t1\n")
    message = str(caught.value)
    assert "expected column sentence; found sentense, label (did you mean 'sentense'?)" in message
    assert "line 2: first row\t1" in message
    assert "second row" in message
    assert "third row" not in message
    assert "task.columns.text=" in message


@pytest.mark.parametrize("name", ["train.csv", "train.jsonl"])
@pytest.mark.parametrize(("subject", "alone"), [("a bill", True), ("a late bill", False)])
def test_the_only_column_of_texts_is_the_fix(tmp_path, name, subject, alone):
    row = {"team": "x", "subject": subject, "body": "the app does not start", "label": "a"}
    table = [",".join(row), ",".join(row.values())]
    lines = table if name.endswith("csv") else [json.dumps(row)]
    with pytest.raises(DataError) as caught:
        _read(tmp_path, name, "\n".join(lines) + "\n")
    assert ("fix: task.columns.text=body" in str(caught.value)) == alone


@pytest.mark.parametrize(
    ("columns", "fix"),
    [
        ({}, "task=pair_classification task.columns.text=title task.columns.text2=body"),
        ({"text2": None}, "task.columns.text=title task.columns.text2=body"),
    ],
)
def test_several_columns_of_a_text_are_refused_with_the_pair(tmp_path, columns, fix):
    text = "title,body,label\nA cat,It sat.,1\n"
    with pytest.raises(ConfigError) as caught:
        _read(tmp_path, "train.csv", text, {"text": ["title", "body"], "label": "label"} | columns)
    assert str(caught.value) == f"task.columns.text='[title,body]': one column\n  fix: {fix}"


@pytest.mark.parametrize(
    ("names", "columns", "told", "fix"),
    [
        (
            "body,body,team",
            ("body", "team"),
            "2 columns are named 'body': numbers 0 and 1",
            "text=0",
        ),
        (
            "team,body,team",
            ("body", "team"),
            "2 columns are named 'team': numbers 0 and 2",
            "label=0",
        ),
        (
            "team,team,team",
            (1, "team"),
            "3 .* numbers 0 and 1 and 2",
            "label=0 task.reader.header=true",
        ),
    ],
)
def test_a_column_that_is_read_and_there_twice_is_refused(tmp_path, names, columns, told, fix):
    asked = dict(zip(("text", "label"), columns, strict=True))
    table = f"{names}\na,b,c\nd,e,f\n"
    with pytest.raises(DataError, match=rf"train.csv:1: {told}\n  fix: task.columns.{fix}$"):
        _read(tmp_path, "train.csv", table, asked)
    role, number = fix.split()[0].split("=")
    found = _read(tmp_path, "train.csv", table, asked | {role: int(number)}, header=True)
    assert [example.fields["text"] for example in found] in (["a", "d"], ["b", "e"])
    assert (
        len(
            _read(
                tmp_path, "train.csv", "x,body,x,team\na,b,c,d\n", {"text": "body", "label": "team"}
            )
        )
        == 1
    )


def test_a_column_of_several_that_is_there_twice_is_refused(tmp_path):
    reader = Choices(splits=SPLITS)
    (tmp_path / "train.csv").write_text("q,a,b,b,label\n1,2,3,4,0\n", encoding="utf-8")
    columns = {"text": "q", "choices": ["a", "b"], "label": "label"}
    with pytest.raises(
        DataError, match=r"csv:1: .* 2 and 3\n  fix: 'task.columns.choices=\[a,2\]'$"
    ):
        reader.read(tmp_path, "train", columns)


def test_a_reader_states_which_roles_may_be_in_several_columns(tmp_path):
    with pytest.raises(ConfigError, match=r"task.columns.id=.*\[a,b\].*one column"):
        _read(tmp_path, "train.tsv", "text\tlabel\n", {**NAMED, "id": ["a", "b"]})
    several = {part.__name__: part.several for part in (Table, Choices, RankingFiles)}
    assert several == {"Table": (), "Choices": ("choices",), "RankingFiles": ("negatives",)}


def test_a_name_that_is_alike_by_chance_is_not_proposed(tmp_path):
    with pytest.raises(DataError) as caught:
        _read(
            tmp_path, "train.csv", "utterance,intent\nhello,greet\n", {"text": "text", "label": 1}
        )
    assert "expected column text; found utterance, intent" in str(caught.value)
    assert "did you mean" not in str(caught.value)
    assert "task.columns.text=COLUMN  # COLUMN: a column of the file" in str(caught.value)


def test_a_field_that_one_line_lacks_needs_no_other_column(tmp_path):
    lines = '{"text": "a", "label": "x"}\n{"body": "b", "label": "x"}\n'
    with pytest.raises(DataError, match=r"2: no field text(.|\n)*lines before have it") as caught:
        _read(tmp_path, "train.jsonl", lines, {"text": "text", "label": "label"})
    assert "task.columns" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ('{"text": "a",\u3000"label": "x"}', r"column 14: '\\u3000' \(U\+3000 IDEOGRAPHIC SPACE\)"),
        ('{"text": "a"，"label": "x"}', r"column 13: '，' \(U\+FF0C FULLWIDTH COMMA\)"),
        ('{"text": "a" "label": "x"}', r"column 14\n"),
    ],
)
def test_a_sign_that_is_no_json_is_named(tmp_path, line, where):
    with pytest.raises(DataError, match=f"not JSON: Expecting .*, {where}"):
        _read(tmp_path, "train.jsonl", line, {"text": "text", "label": "label"})


def test_a_missing_json_field_names_line_and_nearest(tmp_path):
    with pytest.raises(
        DataError,
        match=r"jsonl:2: no field label; found sentence, labels\n  fix: # rename 'labels' to 'lab",
    ):
        _read(
            tmp_path,
            "train.jsonl",
            '{"sentence": "a", "label": 1}\n{"sentence": "b", "labels": 0}\n',
        )


def test_short_rows_are_an_error_or_counted(tmp_path):
    content = "sentence\tlabel\na\t1\nbroken\nb\t0\nno label\t\n"
    with pytest.raises(
        DataError,
        match=(
            r"(?s)train.tsv:3: 1 column where 2 are needed: 'broken'; of 4 rows,"
            r" .* in 1 line \(3\);"
            r" the label is empty in 1 line \(5\).*task.reader.lenient=true"
        ),
    ):
        _read(tmp_path, "train.tsv", content)
    table = Table(splits=SPLITS, lenient=True)
    assert len(table.read(tmp_path, "train", NAMED)) == 2
    assert table.skipped == {str(tmp_path / "train.tsv"): 2}
    assert re.fullmatch(
        r".*train.tsv: 2 rows passed over: 1 column .* \(3\); the label is empty in 1 line \(5\)",
        describe_skipped(table),
    )


def test_lines_of_an_open_quote_count_among_the_broken_ones(tmp_path):
    content = 'sentence,label\na,1\nb,0\n"open,1\nc,0\n'
    (tmp_path / "train.csv").write_text(content)
    table = Table(splits=SPLITS, lenient=True)
    assert [each.fields["text"] for each in table.read(tmp_path, "train", NAMED)] == ["a", "b"]
    assert table.skipped == {str(tmp_path / "train.csv"): 2}
    assert "2 rows passed over: an open quote in 2 lines (4, 5)" in describe_skipped(table)


def test_a_tab_inside_quotes_is_text(tmp_path):
    rows = ['say "hi"\t1', '"a\tb"\t0', '"a ""word""\tb"\t0']
    (tmp_path / "train.tsv").write_text("\n".join(["sentence\tlabel", *rows]))
    read = Table(splits=SPLITS).read(tmp_path, "train", NAMED)
    assert [each.fields["text"] for each in read] == ['say "hi"', "a\tb", 'a "word"\tb']
    (tmp_path / "train.tsv").write_text('sentence\tlabel\n"a\tb\t0')
    with pytest.raises(DataError, match="3 columns where the header names 2"):
        Table(splits=SPLITS).read(tmp_path, "train", NAMED)


def test_empty_labels_are_told_together(tmp_path):
    lines = "".join(f"text {n},{'a' * (n % 2)}\n" for n in range(14))
    message = r"train.csv:2: .*the label is empty in 7 lines \(2, 4, 6, 8, 10, \.\.\.\)"
    with pytest.raises(DataError, match=message):
        _read(tmp_path, "train.csv", f"sentence,label\n{lines}")
    objects = "".join(f'{{"sentence": "a", "label": "{"a" * (n % 2)}"}}\n' for n in range(4))
    (tmp_path / "train.csv").unlink()
    with pytest.raises(DataError, match=r"train.jsonl:1: .*in 2 lines \(1, 3\)"):
        _read(tmp_path, "train.jsonl", objects)


def test_empty_texts_and_single_labels_are_counted(tmp_path):
    found = _read(tmp_path, "dev.csv", "sentence,label\nx,a\n,a\n  ,a\ny,b\n", split="dev")
    assert describe_empty(found).startswith(
        f"2 of 4 texts are empty, the first {tmp_path}/dev.csv:3"
    )
    assert describe_empty(found[:1]) == ""
    assert describe_single(found).startswith("1 label with a single example (b)")
    assert describe_single(found[:3]) == ""


def test_a_fix_can_be_pasted_into_a_shell(tmp_path):
    with pytest.raises(DataError, match=r"fix: 'task.columns.text=Message Body'"):
        _read(
            tmp_path, "train.csv", "Message Body,label\nx,a\n", {"text": "MessageBody", "label": 1}
        )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"\n \n", "the file is empty"),
        (b"sentence\tlabel\n", r"no rows\n  fix: # write an example behind the line of names"),
        (b"sentence\tlabel\nok\t1\n\xff\xfe\t0\n", r"train.tsv:3: not UTF-8: byte 0xff"),
    ],
)
def test_bad_files(tmp_path, content, message):
    (tmp_path / "train.tsv").write_bytes(content)
    with pytest.raises(DataError, match=message):
        Table(splits=SPLITS).read(tmp_path, "train", NAMED)


def test_a_row_is_shown_as_it_stands_in_the_file(tmp_path):
    text = 'sentence,label\nok,1\n"one, two",\n'
    with pytest.raises(DataError, match=r"""the label is empty: ."one, two","""):
        _read(tmp_path, "train.csv", text, NAMED)


def test_a_truncated_gz(tmp_path):
    (tmp_path / "train.tsv.gz").write_bytes(gzip.compress(b"sentence\tlabel\nok\t1\n" * 99)[:40])
    with pytest.raises(DataError, match="damaged gzip file"):
        Table(splits=SPLITS).read(tmp_path, "train", NAMED)


def test_finding_files(tmp_path):
    (tmp_path / "CoLA").mkdir()
    (tmp_path / "CoLA" / "train.tsv").write_text("sentence\tlabel\nok\t1\n")
    table = Table(splits=SPLITS, folder="cola")
    file = tmp_path / "CoLA" / "train.tsv"
    for path in (tmp_path, file, [file], {"train": file}):
        assert len(table.read(path, "train", NAMED)) == 1
    assert not table.has(tmp_path, "dev")
    assert not table.has([file], "dev")
    with pytest.raises(DataError, match=r"no file for the split 'dev'.*the folder has train.tsv"):
        table.read(tmp_path / "CoLA", "dev", NAMED)
    with pytest.raises(DataError, match=r"no such file or directory; there is train.tsv"):
        table.read(tmp_path / "CoLA" / "trian.tsv", "train", NAMED)
    (tmp_path / "CoLA" / "train.csv").write_text("x")
    with pytest.raises(DataError, match=r"several files could be meant: train.csv, train.tsv"):
        table.read(tmp_path, "train", NAMED)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"sentence": null, "label": 1}', "2: field sentence is null, not a text"),
        ('{"sentence": ["a", "b"], "label": 1}', "2: field sentence is a list, not a text"),
        (
            '{"sentence": "a", "label": null}',
            "2: the label is empty; 1 of 2 rows\n  fix: task.reader.lenient=true",
        ),
        ('{"sentence": "a", "label": [1]}', "2: field label is a list, not a text"),
        ('[{"sentence": "a", "label": 1}]', "2: a JSON object is needed on each line, found list"),
    ],
)
def test_json_that_is_no_text_is_refused(tmp_path, row, message):
    with pytest.raises(DataError, match=message):
        _read(tmp_path, "train.jsonl", '{"sentence": "", "label": 1}\n' + row + "\n")


def test_a_cell_may_be_as_long_as_a_document(tmp_path):
    text = "word " * 60000
    assert _read(tmp_path, "train.csv", f'label,sentence\n1,"{text}"\n')[0].fields["text"] == text


def test_parquet_is_read_as_json_lines_are(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "train.parquet"
    rows = {"sentence": ['say "hi', "bye"], "label": [1, 0], "more": [[], [1]], "uid": ["x", "y"]}
    parquet.write_table(pyarrow.table(rows), file)
    found = Table(splits=SPLITS).read(tmp_path, "train", {**NAMED, "id": "uid"})
    assert [(e.id, e.fields, e.label) for e in found] == [
        ("x", {"text": 'say "hi'}, "1"),
        ("y", {"text": "bye"}, "0"),
    ]
    (row, _) = beside(str(file), found, [{"id": e.id, "guess": "1"} for e in found])
    assert row == {
        "sentence": 'say "hi',
        "label": 1,
        "more": [],
        "uid": "x",
        "id": "x",
        "guess": "1",
    }
    with pytest.raises(DataError, match=r"train.parquet:1: no field text; found sentence, label"):
        Table(splits=SPLITS).read(tmp_path, "train", {"text": "text", "label": "label"})
    file.write_bytes(b"no table")
    with pytest.raises(DataError, match="not a parquet file, or a damaged one"):
        Table(splits=SPLITS).read(tmp_path, "train", NAMED)


def test_a_row_that_goes_on_behind_the_header_is_named(tmp_path):
    file = tmp_path / "train.csv"
    file.write_text("text,label\na,b,pos\n")
    with pytest.raises(DataError, match=r"train.csv:2: 3 columns where the header names 2"):
        Table(splits={}).read_file(file, {"text": "text", "label": "label"})
    file.write_text("text,label\na,pos,\n")  # an empty last cell is none
    assert Table(splits={}).read_file(file, {"text": "text", "label": "label"})[0].label == "pos"


def test_a_text_without_quotes_is_never_cut(tmp_path) -> None:
    """A lenient reader leaves such a row out; behind another column the cells are no text."""
    (tmp_path / "new.csv").write_text("label,text\na,fine\nb,well, it was, fine\na,good\n")
    reader = Table(splits={"train": ["new.csv"]}, lenient=True)
    columns = {"text": "text", "label": "label"}
    found = reader.read_file(tmp_path / "new.csv", columns)
    assert [example.fields["text"] for example in found] == ["fine", "good"]
    assert reader.skipped[str(tmp_path / "new.csv")] == 1
    (tmp_path / "old.csv").write_text("text,label\nfine,a\ngood,b,beside\n")
    found = reader.read_file(tmp_path / "old.csv", columns)
    assert [example.fields["text"] for example in found] == ["fine", "good"]


@pytest.mark.parametrize(
    ("rows", "what", "fix"),
    [
        (["x;a", "y; z;b"], "3: 'y; z;b'", "put the text of line 3 with semicolons in it into"),
        (['"x; y";a', "bad, so", "c;b"], "1: 'bad, so'", "write all 2 cells of line 3"),
    ],
)
def test_rows_that_semicolons_divide_unevenly_are_named(tmp_path, rows, what, fix):
    """No setting mends them: the names of columns are those of the first line."""
    text = "\n".join(["text;label", *rows]) + "\n"
    with pytest.raises(DataError) as caught:
        _read(tmp_path, "train.csv", text, {"text": "text", "label": "label"})
    said = str(caught.value)
    assert "between semicolons; the first line has 2 of them" in said
    assert f"line 3 has {what}\n  fix: # {fix}" in said
    assert "did you mean" not in said


def test_what_several_files_share_is_said_once():
    table = Table(splits=SPLITS)
    table.notes = {"a.csv": "it has no header", "b.csv": "one note", "c.csv": "it has no header"}
    assert describe_reading(table) == ["a.csv, c.csv: it has no header", "b.csv: one note"]
    table.skipped = {"a.csv": 2, "b.csv": 1, "c.csv": 1, "d.csv": 0}
    table.why = {"a.csv": "no label", "b.csv": "no text", "c.csv": "no label"}
    assert describe_skipped(table) == (
        "a.csv: 2 rows, c.csv: 1 row passed over: no label; b.csv: 1 row passed over: no text"
    )
