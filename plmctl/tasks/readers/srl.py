"""Propositions of CoNLL-2005 and 2012: predicates of a sentence, and a column of arguments each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from plmctl.core.errors import ConfigError, DataError
from plmctl.core.parts import part_of
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.conllu import ConlluLine, require_sentences
from plmctl.tasks.readers.schemes import spell
from plmctl.tasks.readers.split_files import SplitFiles
from plmctl.tasks.record import Example
from plmctl.tasks.scores.metrics import Entity
from plmctl.text.inputs import need_lines

VERB = "V"  # the predicate itself among its arguments
_CELL = re.compile(r"(?:\(([^()*\s]+))?\*(\))?")
_NONE = ("-", "_")


@part_of("reader")
class Propositions(SplitFiles):
    """An example for each predicate of a sentence: its words, the number of the predicate, and its
    arguments as IOB2 tags.

    `columns`: `tokens`; `predicates`: - for words that are none; `arguments`: the first of the
    columns of arguments, (A0* to *), one for each predicate in their order. The words and props
    of CoNLL-2005 side by side are 0, 1, 2; CoNLL-2012 is 3, 7, 11. Sentences without a predicate
    are passed over, and counted.
    """

    leaves = "a sentence without a predicate"

    def read_file(self, file: Path, columns: Columns, *, labelled: bool = True) -> list[Example]:
        examples: list[Example] = []
        numbers = {role: columns[role] for role in ("tokens", "predicates", "arguments")}
        for role, number in numbers.items():
            if not isinstance(number, int) or number < 0:
                allowed, fix = "the number of a column, from 0", f"task.columns.{role}=0"
                raise ConfigError(f"task.columns.{role}", number, allowed, fix=fix)
        for lines in _read_sentences(file):
            found = _read_sentence(lines, file, **numbers)
            if not found:
                self.skipped[str(file)] = self.skipped.get(str(file), 0) + 1
            words = [cells[numbers["tokens"]] for _, cells in lines]
            for predicate, tags in found:
                own = {"words": words, "predicate": predicate}
                place = f"{file}:{lines[0].number}"
                examples.append(Example(str(len(examples)), own, tags, place))
        return require_sentences(examples, file)


def _read_sentences(file: Path) -> Iterator[list[ConlluLine]]:
    rows: list[ConlluLine] = []
    for number, line in [*need_lines(file), (0, "")]:
        if line.strip() and not line.startswith(("#begin", "#end")):
            rows.append(ConlluLine(number, line.split()))
        elif not line.strip() and rows:
            yield rows
            rows = []


def _read_sentence(
    lines: Sequence[ConlluLine], file: Path, *, tokens: int, predicates: int, arguments: int
) -> list[tuple[int, list[str]]]:
    """(the number of a predicate, the tags of its arguments)."""
    for number, cells in lines:
        if len(cells) <= max(tokens, predicates):
            problem = f"no column {max(tokens, predicates)}: found {len(cells)}"
            fix = "set task.columns.tokens, predicates and arguments"
            raise DataError(problem, file=file, line=number, fix=fix)
    found = [word for word, line in enumerate(lines) if line.cells[predicates] not in _NONE]
    made = []
    for column, word in enumerate(found, arguments):
        spans = _read_arguments(lines, column, file)
        made.append((word, spell(spans, len(lines), "iob2")))
    return made


def _read_arguments(lines: Sequence[ConlluLine], column: int, file: Path) -> list[Entity]:
    spans: list[Entity] = []
    kind, start = "", 0
    for word, (number, cells) in enumerate(lines):
        cell = cells[column] if column < len(cells) else ""
        match = _CELL.fullmatch(cell)
        if not match or (match[1] and kind) or (match[2] and not (match[1] or kind)):
            fix = "(A0* begins an argument, *) ends it, * is between; one column a predicate"
            raise DataError(f"column {column} has '{cell[:40]}'", file=file, line=number, fix=fix)
        if match[1]:
            kind, start = match[1], word
        if match[2]:
            spans.append((kind, start, word))
            kind = ""
    if kind:
        what = f"the argument ({kind}* of column {column} does not end"
        raise DataError(what, file=file, line=lines[start].number, fix="*) at its last word")
    return spans
