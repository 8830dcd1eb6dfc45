"""Readers of data sets whose splits are files, each found by patterns of its name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from plmctl.core.errors import DataError
from plmctl.core.values import fit
from plmctl.storage.reading import parse_json_at
from plmctl.tasks.readers import files
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.record import Example, Examples
from plmctl.text.inputs import need_lines, read_lines
from plmctl.text.tabular import find_object, kind_of

Layout = TypeVar("Layout")


class SplitFiles:
    """The common part of such readers; each has its own `read_file`.

    Args:
        splits: patterns of the file of each split, in order of preference.
        folder: The folder of these in `task.path`, if not in itself.
    """

    leaves = ""  # the reason for rows that `skipped` counts, where `why` has none for their file
    bare_test = False  # whether files of other splits than train and dev may lack labels

    def __init__(self, *, splits: Mapping[str, Sequence[str]], folder: str = "") -> None:
        self.splits: Mapping[str, Sequence[str]] = {
            split: list(patterns) for split, patterns in splits.items()
        }
        self.folder = folder
        self.skipped: dict[str, int] = {}  # file -> examples left out

    def has(self, path: files.Where, split: str, columns: Columns | None = None) -> bool:
        """Whether `task.path` has a file of that split."""
        try:
            return self._find_file(path, split) is not None
        except files.SeveralFiles:
            if self._list_kind(path, split):
                return False  # each of these files has a split of its own
            raise

    def need(self, path: files.Where, split: str) -> Path:
        """The file of a split; DataError if it is missing."""
        others = [] if self.has(path, split) else self._list_kind(path, split)
        patterns = self.splits.get(split, [])
        return files.need(path, split, patterns, folder=self.folder, others=others)

    def _find_file(self, path: files.Where, split: str) -> Path | None:
        return files.locate(path, split, self.splits.get(split, []), folder=self.folder)

    def _list_kind(self, path: files.Where, split: str) -> list[str]:
        """The existing splits of a split's kind, as test_1_0 is a kind of test."""
        named = [name for name in self.splits if name.startswith(f"{split}_")]
        return [name for name in named if self._find_file(path, name)]

    def read(self, path: files.Where, split: str, columns: Columns) -> list[Example]:
        """The examples of a split."""
        labelled = not self.bare_test or split.startswith(("train", "dev"))
        return self.read_file(self.need(path, split), columns, labelled=labelled)

    def read_file(self, file: Path, columns: Columns, *, labelled: bool = True) -> list[Example]:
        """The examples of one file, in its order; DataError for another layout."""
        raise NotImplementedError(type(self).__name__)


def read_json(file: Path) -> Any:
    """The content of a JSON file; JSON lines become a list. DataError where it is neither."""
    if kind_of(file) != ".jsonl":
        return parse_json_at(files.read_text(file), file=file)
    return [
        parse_json_at(text, file=file, line=number)
        for number, text in need_lines(file)
        if text.strip()
    ]


def read_layout(file: Path, kind: type[Layout], *, name: str, layout: str) -> Layout:
    """The content of a JSON file of the published layout `name`, with the keys of the TypedDict
    `kind`; DataError, whose fix spells the layout, for another one.
    """
    content = parse_json_at(files.read_text(file), file=file)
    try:
        found: Layout = fit(content, kind)
    except ValueError as error:
        raise DataError(f"not in {name}'s layout: {error}", file=file, fix=layout) from error
    return found


class FileRecord(NamedTuple):
    """One object of a file."""

    values: dict[str, Any]
    place: str  # file:line
    number: int  # from 0


def read_records(file: Path, kind: Any, *, shown: str) -> Iterator[FileRecord]:
    """The objects of JSON lines, or of a JSON list, each with the keys of the TypedDict `kind`;
    DataError, whose fix shows one, for any other, or for none at all.
    """
    found = _locate_values(file)
    if not found:
        raise DataError("no examples", file=file, fix=shown)
    for number, (place, value) in enumerate(found):
        try:
            yield FileRecord(fit(value, kind), place, number)
        except ValueError as error:
            raise DataError(
                f"another object was expected: {error}", file=place, fix=shown
            ) from None


def _locate_values(file: Path) -> list[tuple[str, Any]]:
    if kind_of(file) == ".json" and not _has_lines(file):
        values = parse_json_at(files.read_text(file), file=file)
        listed = values if isinstance(values, list) else [values]
        return [(f"{file}, number {n}", value) for n, value in enumerate(listed)]
    return [
        (f"{file}:{line}", parse_json_at(text, file=file, line=line))
        for line, text in need_lines(file)
        if text.strip()
    ]


def _has_lines(file: Path) -> bool:
    """Whether the first line with text is an object: CLUE's JSON lines are named .json, too."""
    first = next((line for _, line in read_lines(file) if line.strip()), "")
    return find_object(first) is not None


def require_labels(examples: Examples, labelled: bool) -> list[Example]:
    """`examples`, or a DataError for the first without a label where they are `labelled`."""
    absent = next((e for e in examples if labelled and e.label is None), None)
    if absent:
        fix = "write its label, or take it out of the file"
        raise DataError("the label is missing", file=absent.place, fix=fix)
    return list(examples)
