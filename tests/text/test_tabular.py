"""One reader of tables: the same rows of every kind of file, each with its line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from plmctl.core.errors import DataError
from plmctl.knowledge.tables import read_table
from plmctl.text.tabular import (
    cells_of,
    has_rows,
    kind_of,
    named_rows,
    objects_of,
    read_rows,
    spelling_of,
)

ROWS = [{"text": "a, b", "label": "x"}, {"text": 'say "c"', "label": "=y"}]


def write_tables(folder: Path) -> list[Path]:
    """The rows as JSON lines, lines with tabs and CSV, plain and packed."""
    contents = {
        "rows.jsonl": "".join(json.dumps(row) + "\n" for row in ROWS),
        "rows.tsv": 'text\tlabel\na, b\tx\n\nsay "c"\t\'=y\n',
        "rows.csv": 'text,label\n"a, b",x\n"say ""c""",\'=y\n',
        "half.csv": 'text;label\n"a, b";x\n"say ""c""";\'=y\n',
    }
    files = []
    for name, content in contents.items():
        (folder / name).write_text(content, encoding="utf-8")
        with gzip.open(folder / f"{name}.gz", "wt", encoding="utf-8") as stream:
            stream.write(content)
        files += [folder / name, folder / f"{name}.gz"]
    return files


def test_every_kind_of_table_has_the_same_rows(tmp_path: Path) -> None:
    for file in write_tables(tmp_path):
        assert [row for _, row in named_rows(file)] == ROWS, file
        assert [row for _, row in read_rows(file, ["text"])] == ROWS, file


def test_rows_of_knowledge_are_those_of_tables(tmp_path: Path) -> None:
    for file in write_tables(tmp_path):
        if kind_of(file) in (".csv", ".tsv"):
            found = [cells for _, cells in read_table(file, ("text", "label"))]
            assert found == [[row["text"], row["label"]] for row in ROWS], file


def test_rows_of_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), file)
    assert list(objects_of(file)) == [(1, ROWS[0]), (2, ROWS[1])]
    assert list(named_rows(file, ["label"])) == [(1, {"label": "x"}), (2, {"label": "=y"})]


def test_a_row_has_the_number_of_its_first_line(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text('a,b\n"two\nlines",c\n\nd,e\n', encoding="utf-8")
    assert [line for line, _ in cells_of(file)] == [1, 2, 5]
    assert [line for line, _ in cells_of(file, strict=True)] == [1, 2, 5]


def test_a_short_row_lacks_its_last_values(tmp_path: Path) -> None:
    file = tmp_path / "rows.tsv"
    file.write_text("a\tb\n1\n2\t3\t\n", encoding="utf-8")
    assert [row for _, row in named_rows(file)] == [{"a": "1", "b": None}, {"a": "2", "b": "3"}]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", "[1]\n", r"a\.jsonl:1: a JSON object is needed on each line, found list"),
        ("a.jsonl", '{"a": 1}\n{"a"\n', r"a\.jsonl:2: not JSON"),
        ("a.csv", 'a,b\n"c,d\n', r"a\.csv:2: the quote that opens here is not closed"),
        ("a.tsv", "\n", r"a\.tsv: the file is empty"),
    ],
)
def test_one_error_for_all_readers(tmp_path: Path, name: str, content: str, message: str) -> None:
    file = tmp_path / name
    file.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        list(named_rows(file))


def test_texts_may_be_a_file_without_rows(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("\n", encoding="utf-8")
    assert list(read_rows(file, ["text"])) == []


@pytest.mark.parametrize(
    ("name", "kind", "rows"),
    [
        ("a.TSV.gz", ".tsv", False),
        ("a.csv.zst", ".csv", True),
        ("a.ndjson", ".ndjson", True),
        ("a.txt", ".txt", False),
    ],
)
def test_kinds(name: str, kind: str, rows: bool) -> None:
    assert kind_of(Path(name)) == kind
    assert has_rows(Path(name)) == rows


def test_the_form_of_a_table(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(b"\xef\xbb\xbfa;b\r\nc;d\r\n")
    assert spelling_of(file) == type(spelling_of(file))(";", "\ufeff", "\r\n")


@pytest.mark.parametrize(
    ("cells", "point"),
    [
        ("3.865,04 7,5 12", ","),
        ("12.03.2024 13.03.2024", "."),  # dates have no decimals
        ("1,312 2,500", "."),  # thousands, perhaps
        ("1.5 2,5", "."),
        ("ja 12,5", "."),  # a text
        ("1.312 2.500", "."),
    ],
)
def test_numbers_of_a_table_are_spelt_as_in_its_columns(
    tmp_path: Path, cells: str, point: str
) -> None:
    file = tmp_path / "a.csv"
    file.write_text("text;n;day\n" + "".join(f"gut;{n};1.2.24\n" for n in cells.split()))
    spelling = spelling_of(file)
    assert spelling.point == point
    assert [spelling.spell(each) for each in (0.5, 1, "0.5", None)] == [
        f"0{point}5",
        1,
        "0.5",
        None,
    ]
    file.write_text("n;m\n" + "3,5;0.25\n" * 3)  # both: nobody knows
    assert spelling_of(file).point == "."


def test_a_text_is_never_cut_at_a_comma_in_it(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("text,source\nx,a,\nhello, world,b\n")  # the cell behind x,a is empty
    rows = named_rows(file)
    assert next(rows) == (2, {"text": "x", "source": "a"})
    with pytest.raises(DataError, match=r"a\.csv:3: 3 columns where the header names 2: 'hello,"):
        next(rows)
