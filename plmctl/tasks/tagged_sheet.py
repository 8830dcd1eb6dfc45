"""Sentences of tagged words as they stand in their file, which can be written again with other
words in them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from plmctl.core.errors import DataError
from plmctl.tasks.layouts.sentence_rows import SentenceRows
from plmctl.tasks.readers import files
from plmctl.tasks.readers.column_settings import Column
from plmctl.tasks.readers.conll import Columns
from plmctl.tasks.readers.tag_spelling import find_outside
from plmctl.tasks.task import Task
from plmctl.text.inputs import need_lines
from plmctl.text.tabular import kind_of, objects_of

ROLE = "text"  # the role of the words of a sentence, with one space between them


@dataclass(frozen=True)
class TaggedSheet:
    """Rows of a column file (the lines of a sentence, or a line between two) or JSON objects, with
    the calls of a `Sheet`.

    Replacing a word leaves the tags where they are. Sentences whose words contain spaces are not
    changed.
    """

    kind: str  # the kind of the file: .jsonl or columns
    rows: list[Any]
    columns: Mapping[str, Any]  # the columns of tokens and of tags
    head = ""

    @cached_property
    def outside(self) -> set[str]:
        """The tags of the file for a word in no entity: O, or 0 and the like."""
        return find_outside(tag for row in self.rows for tag in self._of(row, "tags"))

    @classmethod
    def of(cls, task: Task, split: str) -> TaggedSheet | None:
        """The sheet of `split`; None for a task without tags, and for words that are written
        without spaces or stand in tables.

        Raises:
            DataError: Entities are given by their characters.
        """
        layout = task.layout
        if (
            not isinstance(layout, SentenceRows)
            or not isinstance(task.splits.reader, Columns)
            or task.splits.reader.layout == "table"
        ):
            return None
        task.fit_labels(task.read(split))  # DataError for whatever the task itself would refuse
        if layout.joiner != " ":
            return None
        file = files.need(task.splits.path, split, task.splits.reader.splits[split])
        if layout.words == "text":
            what = "its entities are given by their characters, which other words would move"
            raise DataError(what, file=file, fix='{"tokens": ["a", "b"], "tags": ["O", "O"]}')
        if task.splits.reader.layout == "jsonl" or (
            task.splits.reader.layout == "auto" and kind_of(file) in (".jsonl", ".json")
        ):
            names = {
                role: name if isinstance(name, str) else role for role, name in task.columns.items()
            }
            return cls(".jsonl", [row for _, row in objects_of(file)], names)
        return cls("columns", list(_parts(file)), task.columns)

    def texts(self, row: Any) -> dict[str, str]:
        """The words of a row as one text; empty for lines between sentences."""
        words = self._of(row, "tokens")
        return (
            {ROLE: " ".join(words)}
            if words and not any(len(word.split()) != 1 for word in words)
            else {}
        )

    def find_tagged(self, row: Any) -> dict[str, list[tuple[int, int]]]:
        """[start, end) characters of the words that are in an entity, by role."""
        spans, start = [], 0
        for word, tag in zip(self._of(row, "tokens"), self._of(row, "tags"), strict=True):
            spans += [(start, start + len(word))] if tag not in self.outside else []
            start += len(word) + 1
        return {ROLE: spans}

    def line(self, row: Any, texts: Mapping[str, str] | None = None) -> str:
        """The row in the layout of the file, with these words instead of its own; in a column file
        behind an empty line.
        """
        words = texts[ROLE].split(" ") if texts else None
        if isinstance(row, dict):
            changed = row if words is None else {**row, self.columns["tokens"]: words}
            return json.dumps(changed, ensure_ascii=False) + "\n"
        if words is None:
            return "".join(f"{line}\n" for line in row)
        return "\n" + "".join(
            f"{_with(line, self.columns['tokens'], word)}\n"
            for line, word in zip(row, words, strict=True)
        )

    def _of(self, row: Any, role: str) -> list[str]:
        column = self.columns[role]
        if isinstance(row, dict):
            return [str(word) for word in row.get(column) or ()]
        return [] if _between(row[0]) else [_cells(line)[column].strip() for line in row]


def _parts(file: Path) -> Iterator[list[str]]:
    """The lines of each sentence, and each line between two."""
    words: list[str] = []
    for _, line in need_lines(file):
        if not _between(line):
            words.append(line)
            continue
        yield from [words, [line]] if words else [[line]]
        words = []
    yield from [words] if words else []


def _between(line: str) -> bool:
    return not line.strip() or _cells(line)[0] == "-DOCSTART-"


def _cells(line: str) -> list[str]:
    return line.split("\t") if "\t" in line else line.split()


def _with(line: str, column: Column, word: str) -> str:
    cells = _cells(line)
    cells[int(column)] = word
    return ("\t" if "\t" in line else " ").join(cells)
