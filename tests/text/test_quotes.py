"""A quote that is left open is told where it opens; a text of several lines is read."""

import re

import pytest

from plmctl.core.errors import DataError
from plmctl.tasks.predictions import read_columns
from plmctl.text.quotes import LENIENT
from plmctl.text.tabular import cells_of, read_rows

FINE = [f"{n},text {n},{'ab'[n % 2]}" for n in range(1, 9)]


def read(folder, *lines, lenient=False):
    file = folder / "a.csv"
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return [cells for _, cells in cells_of(file, lenient=lenient, otherwise=LENIENT)]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (['11,and "so",a', '12,"fine",b'], r"closes after 10 lines, before 'so"),
        (['11,a screen of 5",a', "12,fine,b"], "holds 10 lines that look like rows"),
        (["11,fine,b"], "is not closed in 10 lines"),
    ],
)
def test_a_quote_that_swallows_rows_is_told_where_it_opens(tmp_path, more, problem, caplog):
    lines = ["id,text,label", *FINE[:4], '50,"oops not closed,a', *FINE, *more]
    with pytest.raises(DataError, match=rf"a.csv:6: .*{problem}(?s:.*)lenient=true"):
        read(tmp_path, *lines)
    for _ in range(2):  # a command reads its files several times
        rows = read(tmp_path, *lines, lenient=True)
        assert [cells[0] for cells in rows[:5]] == ["id", "1", "2", "3", "4"]
        assert not any("\n" in cell for cells in rows for cell in cells)
    (said,) = caplog.messages
    last = 5 + int(re.search(r"(\d+) lines", said)[1])
    assert said.endswith(f"; lines 6 to {last} are left out")
    assert len(lines) - len(rows) == last - 5


def test_a_quote_that_swallows_one_row_is_told_by_the_label_behind_it(tmp_path):
    with pytest.raises(DataError, match=r"a.csv:10: .*holds 2 lines"):
        read(tmp_path, "id,text,label", *FINE, '9,"oops,a', '10,5",b')


def test_predictions_have_the_columns_of_the_rows_that_are_left(tmp_path):
    left = read(tmp_path, "id,text,label", *FINE, '9,"open,a', lenient=True)
    columns = read_columns(tmp_path / "a.csv")
    assert [list(row.values()) for row in columns.values()] == left[1:]
    with pytest.raises(DataError, match=r"fix: # close the quote of line 10, or double[^;]*text$"):
        list(cells_of(tmp_path / "a.csv"))


def test_an_open_quote_in_the_first_row_is_refused_where_rows_are_lenient_too(tmp_path):
    for lenient in (False, True):
        with pytest.raises(DataError, match=r"a.csv:1: .* is not closed in 9 lines\n[^;]*$"):
            read(tmp_path, 'id,"text,label', *FINE, lenient=lenient)


def test_many_lines_that_divide_as_rows_are_told_without_a_column_of_classes(tmp_path):
    lines = ["text,score", *(f"text {n},{n / 7}" for n in range(20)), "a,0.5", 'end of 5",0.3']
    with pytest.raises(DataError, match=r"a.csv:3: .*holds 22 lines"):
        read(tmp_path, *lines[:2], '"open,0.9', *lines[2:])


def test_an_open_quote_on_the_last_line_is_named(tmp_path):
    with pytest.raises(DataError, match=r"a.csv:10: the quote that opens here is not closed"):
        read(tmp_path, "id,text,label", *FINE, '9,"oops not closed,a')


@pytest.mark.parametrize(
    "text",
    [
        "Hello,\nplease help",  # as many commas as a row of two columns has
        "Dear Sir,\nI cannot log in, sorry.\nThe page says no, again.\nYours,\nA",
        'He said ""no"",\nand left,\n""so"" what',
        "a,a\nname,value\nsize,7\ndone",
        "one\n\n\ntwo",
        "\n",
    ],
)
def test_texts_of_several_lines_are_read(tmp_path, text):
    others = [f"text {n},{'ab'[n % 2]}" for n in range(8)]
    found = read(tmp_path, "text,label", *others, f'"{text}",a', *others)
    assert found[9] == [text.replace('""', '"'), "a"]
    assert len(found) == 18


def test_quotes_within_one_line_are_read_as_before(tmp_path):
    rows = read(tmp_path, "id,text,label", '1,"so" they say,a', '2,a 5" screen,b')
    assert rows[1:] == [["1", "so they say", "a"], ["2", 'a 5" screen', "b"]]


def test_text_of_a_table_is_refused_where_its_quote_opens(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text('id,text\n\n1,"two\nlines"\n\n2,"open\n3,fine\n4,"so"\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"a.csv:6: the quote that opens here closes after 3 lines"):
        list(read_rows(file, ["text"]))
