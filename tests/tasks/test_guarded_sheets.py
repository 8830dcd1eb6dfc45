"""Tables that are written again: a spreadsheet runs none of their texts, and training reads those
that stood in them.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from plmctl.study.table import _csv
from plmctl.tasks.readers.tables import Table
from plmctl.tasks.sheet import Sheet

TEXTS = ["=1+1", "+cmd", "-2.5", "- a list", "@home", "'=quoted", "plain", '=HYPERLINK("x";"y")']
COLUMNS = {"text": "text", "label": "label"}


@pytest.mark.parametrize(("name", "sign"), [("a.csv", ","), ("a.csv", ";"), ("a.tsv", "\t")])
def test_cells_that_would_run_are_guarded_and_come_back(
    tmp_path: Path, name: str, sign: str
) -> None:
    rows = [["text", "label"], *([text, f"={n}"] for n, text in enumerate(TEXTS))]
    content = io.StringIO()
    csv.writer(content, delimiter=sign, lineterminator="\n").writerows(rows)
    plain = "".join("\t".join(row) + "\n" for row in rows)
    (tmp_path / name).write_text(plain if sign == "\t" else content.getvalue())
    reader = Table(splits={})
    read = reader.read_file(tmp_path / name, COLUMNS)
    sheet = Sheet.read(reader, tmp_path / name, COLUMNS)
    assert sheet.header is not None
    again = tmp_path / "again" / name
    again.parent.mkdir()
    again.write_text("".join(map(sheet.line, [sheet.header, *sheet.rows])))
    for line in again.read_text().splitlines()[1:]:
        text, label = line.split(sign)[0], line.rpartition(sign)[2]
        assert text.strip('"')[0] not in "=+@"
        assert text == "-2.5" or not text.startswith("-")  # numbers stay as they are
        assert label.startswith("'=")
    found = reader.read_file(again, COLUMNS)
    assert [(e.fields["text"], e.label) for e in found] == [
        (e.fields["text"], e.label) for e in read
    ]
    changed = sheet.line(sheet.rows[6], {"text": "@new"})
    assert changed.startswith("'@new")


def test_names_of_a_study_are_guarded() -> None:
    rows = [{"metric": "@loss", "arm": "=1+1", "mean": -0.5, "values": {0: -0.5, 1: 1.0}}]
    shown = next(csv.DictReader(io.StringIO(_csv(rows, [{"arm": "=1+1", "cost": 2.0}], ["@note"]))))
    assert (shown["metric"], shown["arm"], shown["mean"]) == ("'@loss", "'=1+1", "-0.5")
    assert shown["values"] == "0=-0.5 1=1.0"
