"""Texts, pairs of texts and records of Python, as a task reads the lines and tables of a file."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from plmctl.core.errors import DataError, UsageError
from plmctl.storage.atomic import write_text
from plmctl.tasks.readers.tables import TEXTS, AbsentColumn
from plmctl.tasks.record import Example
from plmctl.tasks.task import Task
from plmctl.tasks.unlabelled import read_unlabelled

# a text, the two texts of a pair, or {column: value} as in a JSON line
Item = str | Sequence[str] | Mapping[str, Any]
PLACE = "texts"  # the name of the texts in messages


def refuse_single(texts: object, instead: str) -> None:
    """UsageError for a text, or anything else that is no list, instead of a list of texts."""
    if isinstance(texts, str | bytes | Mapping) or not isinstance(texts, Iterable):
        given = "one text" if isinstance(texts, str) else repr(texts)[:40]
        raise UsageError(f"texts must be a list of texts, not {given}\n  fix: {instead}")


def take_texts(texts: Iterable[str], instead: str) -> list[str]:
    """The texts as a list; DataError for the first that is none."""
    refuse_single(texts, instead)
    listed = list(texts)
    for number, text in enumerate(listed, 1):
        if not isinstance(text, str):
            raise DataError(f"each item must be a text, not {text!r}", file=PLACE, line=number)
    return listed


@contextmanager
def read_items(task: Task, items: Sequence[Item]) -> Iterator[tuple[str | None, list[Example]]]:
    """(the file that they stand in meanwhile, if they have columns; the examples)."""
    items = list(items)
    if not items:
        raise DataError("there is no text in it", file=PLACE, fix="a list of texts")
    if (named := _name_texts(task, items)) is not None:
        items = named
    if not isinstance(items[0], Mapping):
        yield None, [_parse(task, item, number) for number, item in enumerate(items, 1)]
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{PLACE}.jsonl"
        rows = (_as_row(item, number) for number, item in enumerate(items, 1))
        lines = [f"{json.dumps(row, default=_to_plain)}\n" for row in rows]
        write_text(file, "".join(lines))
        try:
            examples = read_unlabelled(task, str(file))[1]
        except AbsentColumn as error:
            raise error.of_rows(PLACE) from None
        except DataError as error:
            raise DataError(str(error).replace(str(file), PLACE)) from None
        yield str(file), examples


def _name_texts(task: Task, items: Sequence[Item]) -> list[Item] | None:
    """Pairs as records of the columns of the task, where a text has a tab, which separates the
    texts of a line; None for others.
    """
    pairs = [item for item in items if isinstance(item, list | tuple) and len(item) == len(TEXTS)]
    columns = [task.columns.get(role) for role in TEXTS]
    if len(pairs) < len(items) or None in columns:
        return None
    if not any("\t" in str(text) for pair in pairs for text in pair):
        return None
    names = [
        role if isinstance(column, int) else str(column)
        for role, column in zip(TEXTS, columns, strict=True)
    ]
    return [dict(zip(names, pair, strict=True)) for pair in pairs]


def as_line(item: Item, number: int) -> str:
    """A text, or both texts of a pair with a tab between, as a line of a file has them."""
    if isinstance(item, str):
        return item
    several = isinstance(item, Iterable) and not isinstance(item, Mapping | bytes)
    if not several or not all(isinstance(text, str) for text in item):
        allowed = "each item must be a text, or a pair of texts"
        first = ", as the first one is" if number > 1 else ""
        raise DataError(f"{allowed}{first}: {item!r}", file=PLACE, line=number)
    if any("\t" in text for text in item):
        fix = 'records with the columns of the task: {"text": ..., "text2": ...}'
        raise DataError("a text of a pair has a tab", file=PLACE, line=number, fix=fix)
    return "\t".join(item)


def _parse(task: Task, item: Item, number: int) -> Example:
    try:
        example = task.parse(as_line(item, number), number)
    except ValueError as error:
        if isinstance(item, str) and task.columns.get(TEXTS[1]) is not None:
            what = f"the task {task.name} reads pairs of texts, not {item[:40]!r}"
            raise DataError(what, file=PLACE, line=number, fix='["a text", "another"]') from None
        raise DataError(str(error), file=PLACE, line=number) from None
    except NotImplementedError:
        fix = 'records with its columns, [{"column": ...}], or path=<a file of its kind>'
        raise UsageError(f"task {task.name} reads no plain texts\n  fix: {fix}") from None
    if not isinstance(item, str):
        _refuse_surplus(task, item, example, number)
    return example


def _refuse_surplus(task: Task, item: Sized, example: Example, number: int) -> None:
    """DataError for texts that the example of several does not hold one by one."""
    values = [*example.fields.values()]
    if any("\t" in str(value) for value in values):
        what = f"the task {task.name} reads single texts, not {len(item)} together"
        raise DataError(what, file=PLACE, line=number, fix="a list of texts")
    held = sum(len(value) if isinstance(value, list | tuple) else 1 for value in values)
    if len(item) > held:
        what = f"the task {task.name} reads {held} texts together, not {len(item)}"
        raise DataError(what, file=PLACE, line=number, fix='["a text", "another"]')


def _as_row(item: Item, number: int) -> dict[str, Any]:
    if not isinstance(item, Mapping):
        allowed = "each item must be a record {column: value}, as the first one is"
        raise DataError(f"{allowed}: {item!r}", file=PLACE, line=number)
    return dict(item)


def _to_plain(value: object) -> object:
    """Values that JSON cannot hold: numbers of numpy and pandas become numbers of Python, others
    text.
    """
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else str(value)
