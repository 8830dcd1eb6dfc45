"""Parallel text: each pair is a document of exactly two sentences, source then target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path

from plmctl.core.errors import ConfigError, DataError, nearest
from plmctl.text import inputs
from plmctl.text.document import Document
from plmctl.text.inputs import read_lines
from plmctl.text.pieces import Stretch, number_lines, read_piece_rows
from plmctl.text.tabular import TSV, Row, cells_of, has_rows, kind_of, take_text


def pair_files(
    sources: Sequence[inputs.Input], targets: Sequence[inputs.Input]
) -> Iterator[Document]:
    """Yield line n of a source file with line n of its target file; files go together in order."""
    if len(sources) != len(targets):
        problem = f"{len(sources)} source files, but {len(targets)} target files"
        fix = "name as many files in data.target_path as in data.path, in the same order"
        raise DataError(problem, file=sources[0], fix=fix)
    for source, target in zip(sources, targets, strict=True):
        for path in (source, target):
            if has_rows(path):
                fix = "data.fields=[<source>,<target>] without data.target_path"
                raise DataError("has rows, not lines", file=path, fix=fix)
        assert isinstance(source, Path)
        assert isinstance(target, Path)
        for left, right in zip_longest(
            read_lines(source, cut=False), read_lines(target, cut=False)
        ):
            if left is None or right is None:
                raise _unequal(source, target, left or right, left is None)
            yield Document([left[1].strip(), right[1].strip()], f"{source}:{left[0]}", pair=True)


def pair_fields(pieces: Iterable[Stretch], fields: Sequence[str]) -> Iterator[Document]:
    """Yield two fields of each row, or two columns of a .tsv: by the names in its first line, or by
    their numbers from 1.
    """
    if len(fields) != 2 or fields[0] == fields[1]:
        allowed = "two different fields: source and target"
        raise ConfigError("data.fields", list(fields), allowed, fix="data.fields=[en,de]")
    for piece in pieces:
        source = piece.source
        table = isinstance(source, Path) and kind_of(source) == TSV
        if not table and not has_rows(source):
            problem = "has no fields: neither .jsonl, .tsv nor .parquet"
            fix = "data.target_path=<the file with the other language> instead of data.fields"
            raise DataError(problem, file=source, fix=fix)
        yield from number_lines(piece, partial(_pair_rows, piece, table, fields))


def _pair_rows(
    piece: Stretch, table: bool, fields: Sequence[str], first: int
) -> Iterator[Document]:
    source = piece.source
    if isinstance(source, Path) and table:
        rows = _table(source, fields)
    else:
        rows = read_piece_rows(piece, fields, first)
    for number, row in rows:
        sides = [take_text(row, name, source, number, "data.fields") for name in fields]
        yield Document([side.strip() for side in sides], f"{source}:{number}", pair=True)


def _table(file: Path, fields: Sequence[str]) -> Iterator[Row]:
    numbered = all(name.isdecimal() for name in fields)
    columns: list[str] = []
    for number, cells in cells_of(file, strict=True):
        if not columns:
            columns = [str(place) for place in range(1, len(cells) + 1)] if numbered else cells
            for name in fields:
                if name not in columns:
                    raise DataError(
                        f"no column '{name}' (it has {', '.join(columns)}){nearest(name, columns)}",
                        file=file,
                        line=number,
                        fix=(
                            "data.fields=[1,2] (numbers of columns,"
                            " where the first line holds no names)"
                        ),
                    )
            if not numbered:
                continue
        if len(cells) != len(columns):
            message = f"{len(cells)} columns, the first line has {len(columns)}"
            raise DataError(
                message, file=file, line=number, fix="one tab between two columns, none inside"
            )
        yield number, dict(zip(columns, cells, strict=True))


def _unequal(
    source: Path, target: Path, line: tuple[int, str] | None, in_target: bool
) -> DataError:
    assert line is not None
    longer, shorter = (target, source) if in_target else (source, target)
    problem = f"there is no line {line[0]} in {shorter}: the two files are not line-parallel"
    fix = "find the line that one of them lacks (data.path and data.target_path have as many lines)"
    return DataError(problem, file=longer, line=line[0], fix=fix)
