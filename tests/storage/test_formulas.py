"""Cells that a spreadsheet would run are written as text, and read as they were."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from plmctl.storage.formulas import guard, unguard
from plmctl.tasks.predictions import write_rows
from plmctl.text.tabular import TableSpelling, cells_of

TEXTS = [
    "=1+1",
    '=HYPERLINK("http://x","y")',
    "+SUM(A1)",
    "-2+3",
    "@SUM(1)",
    "\tx",
    "\rx",
    "'=1",
    "''-x",
    "-",
    "=",
    "'quoted'",
    "plain",
    "a=b",
    "",
    "'",
]
NUMBERS = ["-1", "+2.5", "-1e-5", "-.5", "3"]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_comes_back(text: str) -> None:
    assert unguard(guard(text)) == text
    assert guard(text)[:1] not in set("=+-@\t\r")


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_stay(number: str) -> None:
    assert guard(number) == number
    assert unguard(number) == number


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_a_table_is_guarded_and_read_again(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("plmctl.tasks.predictions.remark", said.append)
    texts = [text for text in TEXTS if suffix == ".csv" or not {*text} & {"\t", "\r"}]
    rows = [{"text": text, "score": -0.5, "=label": "+"} for text in texts]
    file = write_rows(tmp_path / f"a{suffix}", rows)
    read = [cells for _, cells in cells_of(file)]
    assert read == [["text", "score", "=label"], *([text, "-0.5", "+"] for text in texts)]
    with file.open(newline="") as stream:
        sign = "," if suffix == ".csv" else "\t"
        plain = csv.QUOTE_MINIMAL if suffix == ".csv" else csv.QUOTE_NONE
        cells = [cell for row in csv.reader(stream, delimiter=sign, quoting=plain) for cell in row]
    assert not [cell for cell in cells if cell[:1] in tuple("=+@\t\r")]
    assert {cell for cell in cells if cell.startswith("-")} == {"-0.5"}
    assert any("guard_cells=false" in line for line in said)
    write_rows(file, rows, guarded=False)
    assert "\n=1+1" in file.read_text()


def test_a_number_with_a_decimal_comma_is_no_formula(tmp_path: Path) -> None:
    rows = [{"text": "-1,5 mm", "score": -0.5, "n": 2}]
    file = write_rows(tmp_path / "a.csv", rows, spelling=TableSpelling(sign=";", point=","))
    assert file.read_text() == 'text;score;n\n"\'-1,5 mm";"-0,5";2\n'
    assert json.loads(write_rows(tmp_path / "a.jsonl", rows).read_text())["score"] == -0.5
