"""Signs between the cells of a .csv file."""

from __future__ import annotations

from pathlib import Path

import pytest

from plmctl.core.errors import DataError
from plmctl.text.separators import FEW, LOOKED, find_separator
from plmctl.text.tabular import cells_of, read_rows


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        ("text,label\na,b\n", ","),
        ("text;label\na, b;c\nd;e\n", ";"),
        ("text\tlabel\na;b, c\td\n", "\t"),
        ("text|label\na|b\n", "|"),
        ('text,"semi;colon"\na,b\n', ","),
        ('"semi;colon"\n"a;b"\n', ","),
        ('"text, whole";label\n"a ""b""; c, d";e\n', ";"),
        ("text\na; b\nc\n", ","),  # not in every row
        ("text;a, or b\nc;d\ne, f, g;h\n", ";"),  # nor are commas
        ("text,a; b\nc; d,e\n", ","),  # both are: most files have commas
        ("text,label\na,b;c\nd\n", ","),
        ("text; label\na; b; c\n", ","),
        ("a;b|c\nd;e|f\n", ","),  # either may be meant
        ('text;label\n"one\ntwo";x\n', ";"),
        ("id;note,label\nx;good one,a\ny;bad, very bad,b\nz;fine,a\n", ","),
        ('label;"a,b";c\nx;good;d\n', ";"),
        ("it is 3,5 long, at most;a\nb;c\n", ";"),
        ("text\na\n", ","),
        ("", ","),
    ],
)
def test_what_divides_the_rows(text: str, sign: str) -> None:
    assert find_separator(text.splitlines(keepends=True)) == sign


def test_a_row_may_go_on_behind_what_is_looked_at(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [f"row {n}, with a comma;{n}" for n in range(LOOKED - 2)]
    (tmp_path / "a.csv").write_text("\n".join(["text;label", *rows, '"two\nlines";last']) + "\n")
    cells = list(cells_of(tmp_path / "a.csv"))
    assert cells[1] == (2, ["row 0, with a comma", "0"])
    assert cells[-1] == (LOOKED, ["two\nlines", "last"])
    table = list(read_rows(tmp_path / "a.csv", ["text"]))
    assert table[-1] == (LOOKED, {"text": "two\nlines", "label": "last"})
    (tmp_path / "b.csv").write_bytes((tmp_path / "a.csv").read_bytes())  # one set of files
    assert [*cells_of(tmp_path / "b.csv")] == cells
    assert caplog.text.count("csv: its cells stand between semicolons") == 1


def test_few_rows_that_commas_or_other_signs_may_divide_are_refused(tmp_path: Path) -> None:
    """Rows between commas, the second with one too many, and rows of two cells between
    semicolons, which both have commas in their texts, are the same file.
    """
    file, rows = tmp_path / "a.csv", ["I came, I saw; fine", "well, yes, no; good"]
    file.write_text("\n".join(rows), encoding="utf-8")
    what = r"a\.csv: do semicolons or commas stand .*, and 2 rows are too few to decide\n"
    fix = "  fix: # put cells with commas in them into quotes, or name the columns in a first line$"
    with pytest.raises(DataError, match=what + fix):
        list(cells_of(file))
    named = ["text;label", *rows]
    quoted = ['"I came, I saw"; fine', rows[1]]
    decimal = ["it is 3,5 long;fine", rows[1]]
    for sure in (named, quoted, decimal, rows * (FEW // 2)):
        file.write_text("\n".join(sure), encoding="utf-8")
        assert {len(cells) for _, cells in cells_of(file)} == {2}
