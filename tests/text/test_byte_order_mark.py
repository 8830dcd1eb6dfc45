"""A byte order mark, as Windows writes it, is no text: at the start of a file of any reader, and of
a line, where files were joined. Inside a line it stays, and running text is as it is.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from plmctl.text.inputs import need_lines, read_lines
from plmctl.text.row_stream import stream_rows
from plmctl.text.running import read_running
from tests.fuzz_readers import CASES, Case
from tests.test_fuzz_readers import QUICK

MARK = "\ufeff".encode()
JOINED = ("text a.txt", "text a.jsonl", "text a.csv", "task table train.tsv", "task CoNLL")
NAMES = {*QUICK, *JOINED, "task table train.csv", "task table train.jsonl"}


def is_text(content: bytes) -> bool:
    try:
        return content.decode() is not None
    except UnicodeDecodeError:
        return False


def text_files(case: Case, folder: Path) -> list[Path]:
    found = {file for pattern in case.files for file in folder.rglob(pattern) if file.is_file()}
    return [file for file in found if is_text(file.read_bytes())]


def shown(case: Case, folder: Path) -> str:
    return re.sub(r"0x[0-9a-f]+", "", repr(case.read(folder)))  # without places in memory


CHOSEN = [
    case
    for case in CASES
    if case.name in NAMES
    and case.name.startswith(("text ", "task ", "ranking "))
    and not case.name.endswith(".gz")
]


@pytest.mark.parametrize("case", CHOSEN, ids=lambda case: case.name)
def test_at_the_start_of_any_file_it_is_left_out(case: Case, tmp_path: Path) -> None:
    case.make(tmp_path)
    plain = shown(case, tmp_path)
    for file in text_files(case, tmp_path):
        file.write_bytes(MARK + file.read_bytes())
    assert shown(case, tmp_path) == plain


@pytest.mark.parametrize("name", JOINED)
def test_so_it_is_where_a_file_is_joined_to_another(name: str, tmp_path: Path) -> None:
    (case,) = (case for case in CASES if case.name == name)
    case.make(tmp_path)
    plain = shown(case, tmp_path)
    for file in text_files(case, tmp_path):
        first, *rest = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(b"".join([first, *(MARK + line for line in rest)]))
    assert shown(case, tmp_path) == plain


def test_rows_that_are_read_from_any_place_on(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(MARK + b'{"a": 1}\n' + MARK + b'{"a": 2}\n')
    assert [row for row, _, _ in stream_rows(tmp_path / "a.jsonl", 0)] == [{"a": 1}, {"a": 2}]
    assert [row for row, _, _ in stream_rows(tmp_path / "a.jsonl", 12)] == [{"a": 2}]


def test_inside_a_line_it_stays_and_running_text_is_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(MARK + b"one " + MARK + b"two\n" + MARK + MARK + b"three")
    lines = [(1, "one \ufefftwo"), (2, "\ufeffthree")]
    assert [*read_lines(file)] == [*need_lines(file)] == lines
    (document,) = read_running(file)
    assert "".join(document.segments).encode() == file.read_bytes()
