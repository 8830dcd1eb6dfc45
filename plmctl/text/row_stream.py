"""The rows of files of JSON lines, from any position in them on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plmctl.core.errors import DataError
from plmctl.storage.reading import parse_json_at
from plmctl.text.bounds import long_line_error, longest_line
from plmctl.text.undecodable import decode

_BLOCK = 1 << 20


def stream_rows(file: Path, begin: int) -> Iterator[tuple[dict[str, Any], int, int]]:
    """(row, the byte where its line begins, the byte behind it) of every line from the byte `begin`
    on, which is the first of a line.

    Raises:
        DataError: for a line that is no JSON object, with its number.
    """
    limit, end = longest_line(), begin
    with file.open("rb") as stream:
        stream.seek(begin)
        while line := stream.readline(limit + 1):
            start, end = end, end + len(line)
            if len(line) > limit:
                raise long_line_error(file, count_lines(file, start))
            if line.isspace():
                continue
            yield _parse(line, file, start), start, end


def count_lines(file: Path, byte: int) -> int:
    """The number of the line that begins at a byte; the first one is 1."""
    lines = 1
    with file.open("rb") as stream:
        while byte > 0 and (block := stream.read(min(byte, _BLOCK))):
            lines += block.count(b"\n")
            byte -= len(block)
    return lines


def _parse(line: bytes, file: Path, start: int) -> dict[str, Any]:
    fix = "one JSON object a line"
    try:
        text = decode(line, file=file, number=0, encoding="utf-8-sig")
    except DataError:  # again, with the number of the line
        text = decode(line, file=file, number=count_lines(file, start), encoding="utf-8-sig")
    try:
        row = parse_json_at(text, file=file, fix=fix)
    except DataError as error:
        raise DataError(error.message, file=file, line=count_lines(file, start), fix=fix) from error
    if not isinstance(row, dict):
        what = f"this line has a {type(row).__name__}"
        raise DataError(what, file=file, line=count_lines(file, start), fix=fix)
    return row
