"""The texts of evaluation sets, from files of any layout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from plmctl.storage.reading import parse_json_at
from plmctl.text.inputs import Input, find_all, leave_out_empty, open_unpacked, read_lines
from plmctl.text.tabular import CSV, OBJECTS, TSV, has_rows, kind_of, named_rows, read_rows

KINDS = (*OBJECTS, CSV, TSV, ".txt")


def read_evaluation_texts(paths: Iterable[str]) -> list[str]:
    """All texts in files: the values of rows, and the lines of plain text.

    Args:
        paths: Files, folders, patterns or data sets.
    """
    texts: list[str] = []
    for source in (source for path in paths for source in _find_sources(path)):
        if not isinstance(source, Path):
            texts += (text for _, row in read_rows(source, []) for text in walk_texts(row))
        elif kind_of(source) == ".json":
            with open_unpacked(source) as stream:
                text = stream.read().decode("utf-8", "replace")
            texts += walk_texts(parse_json_at(text, file=source))
        elif has_rows(source) or kind_of(source) in (CSV, TSV):
            texts += (
                text for _, row in named_rows(source, strict=True) for text in walk_texts(row)
            )
        else:
            texts += (line for _, line in read_lines(source) if line.strip())
    return texts


def _find_sources(path: str) -> list[Input]:
    """The files of a path; in a folder also tables and JSON, in which no text is looked for."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        return find_all([path], "block")
    files = [f for f in sorted(folder.rglob("*")) if kind_of(f) in KINDS and f.is_file()]
    return [*leave_out_empty(files, "block")] or find_all([path], "block")


def walk_texts(value: Any) -> Iterator[str]:
    """The texts in nested values."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from walk_texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from walk_texts(inner)
