"""CoNLL-U: words of sentences with their tags, heads and relations (Nivre et al., 2020, Universal
Dependencies v2).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from plmctl.core.errors import ConfigError, DataError, nearest
from plmctl.core.parts import part_of
from plmctl.core.terminal import counted
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.split_files import SplitFiles
from plmctl.tasks.record import Example
from plmctl.text.inputs import need_lines

NONE = "_"  # the content of a cell without a value
NAMES = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
WORD = re.compile(r"[0-9]{1,9}")  # the id of a word: neither a group (1-2) nor an empty node (1.1)


class ConlluLine(NamedTuple):
    """A line of a sentence."""

    number: int
    cells: list[str]


def read_blocks(file: Path) -> Iterator[list[ConlluLine]]:
    """The lines of each sentence, whose cells are parted by tabs; comments are left out."""
    rows: list[ConlluLine] = []
    for number, line in [*need_lines(file), (0, "")]:
        if line.strip() and not (line.startswith("#") and "\t" not in line):
            rows.append(ConlluLine(number, line.rstrip("\r\n").split("\t")))
        elif not line.strip() and rows:
            yield rows
            rows = []


def read_words(file: Path) -> Iterator[list[ConlluLine]]:
    """The words of each sentence, numbered from 1; DataError for another layout."""
    for rows in read_blocks(file):
        words = []
        for number, cells in rows:
            if len(cells) < len(NAMES):
                raise DataError(
                    f"{counted(len(cells), 'column')} parted by tabs, CoNLL-U has {len(NAMES)}",
                    file=file,
                    line=number,
                    fix="task=tagging reads columns that are parted by spaces",
                )
            if not WORD.fullmatch(cells[0]):
                continue
            words.append(ConlluLine(number, cells))
            if int(cells[0]) != len(words):
                problem = f"the id of word {len(words)} is {cells[0]}"
                fix = "number the words of a sentence from 1, with an empty line between two"
                raise DataError(problem, file=file, line=number, fix=fix)
        if words:
            yield words


@part_of("reader")
class Conllu(SplitFiles):
    """Sentences of CoNLL-U with one tag for each word.

    `columns`: `tokens` and `tags` are names (form, lemma, upos, xpos, feats, deprel) or numbers
    from 0. Groups (1-2) and empty nodes (1.1) are no words.
    """

    bare_test = True

    def read_file(self, file: Path, columns: Columns, *, labelled: bool = True) -> list[Example]:
        examples: list[Example] = []
        token, tag = (choose_column(columns, role) for role in ("tokens", "tags"))
        for words in read_words(file):
            for number, cells in words:
                if max(token, tag) >= len(cells) or (labelled and cells[tag] == NONE):
                    problem = f"no tag in column {columns['tags']}"
                    fix = "set task.columns.tags, upos or xpos"
                    raise DataError(problem, file=file, line=number, fix=fix)
            tags = [cells[tag] for _, cells in words]
            name, place = str(len(examples)), f"{file}:{words[0].number}"
            forms = [cells[token] for _, cells in words]
            label = None if NONE in tags else tags
            examples.append(Example(name, {"words": forms}, label, place))
        return require_sentences(examples, file)


def choose_column(columns: Columns, role: str) -> int:
    """The number of a column by its name or number; DataError for no such."""
    column = columns[role]
    if isinstance(column, int) and column >= 0:
        return column
    if column in NAMES:
        return NAMES.index(column)
    known = NAMES[1:]
    allowed = f"one of {', '.join(known)}, or a number from 0{nearest(str(column), known)}"
    raise ConfigError(f"task.columns.{role}", column, allowed, fix=f"task.columns.{role}=form")


def require_sentences(examples: list[Example], file: Path) -> list[Example]:
    """`examples`; DataError if they are empty."""
    if not examples:
        raise DataError("no sentences", file=file)
    return examples
