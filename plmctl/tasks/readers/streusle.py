"""Files of STREUSLE (Schneider and Smith, 2015): words of web reviews with their supersenses, in
the layouts `.tags` and `.conllulex`.
"""

from __future__ import annotations

from pathlib import Path

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.core.terminal import counted
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.conllu import WORD, read_blocks
from plmctl.tasks.readers.sense_corpus import XML, read_sense_corpus
from plmctl.tasks.readers.split_files import SplitFiles
from plmctl.tasks.record import Example
from plmctl.text.tabular import kind_of

NO_SENSE = "_"  # the tag of words that are not annotated
# number of columns: (layout, column of the word, of the supersense)
_LAYOUTS = {9: ("tags", 1, 7), 19: ("conllulex", 1, 13)}
_OF_LAYOUT = {"tokens": 0, "tags": -1}  # how task.columns says: those of the layout


@part_of("reader")
class Streusle(SplitFiles):
    """Sentences with the supersenses of nouns and verbs: `n.PERSON`, `v.motion`; words without one
    have `_`.

    In `.tags` nouns are in upper case and verbs in lower case. A word that begins in upper case and
    goes on in lower case is a preposition. A word that begins with a backtick is an auxiliary or
    another function word; both have none here. A group of words has its supersense at the first of
    them. Names are spelled without spaces, as in `.conllulex`: `n.NATURALOBJECT`. `columns` other
    than 0 and -1 replace those of the layout. Files of XML are corpora of word senses
    (`read_sense_corpus`).
    """

    def read_file(self, file: Path, columns: Columns, *, labelled: bool = True) -> list[Example]:
        """The sentences of one file; DataError for another layout."""
        if kind_of(file) == XML:
            return read_sense_corpus(file, NO_SENSE)
        examples: list[Example] = []
        for rows in read_blocks(file):
            words, senses = [], []
            for number, row in rows:
                if len(row) not in _LAYOUTS:
                    widths = " or ".join(f"{width} ({name[0]})" for width, name in _LAYOUTS.items())
                    problem = f"{counted(len(row), 'column')} parted by tabs, not {widths}"
                    fix = "a file of https://github.com/nert-nlp/streusle"
                    raise DataError(problem, file=file, line=number, fix=fix)
                layout, *own = _LAYOUTS[len(row)]
                word, sense = (
                    _choose(columns, role, column, len(row), f"{file}:{number}")
                    for role, column in zip(_OF_LAYOUT, own, strict=True)
                )
                if WORD.fullmatch(row[0]):  # neither a group (1-2) nor an empty node (1.1)
                    words.append(row[word])
                    senses.append(_name(row[sense].strip(), layout))
            if words:
                name, place = str(len(examples)), f"{file}:{rows[0].number}"
                examples.append(Example(name, {"words": words}, senses, place))
        if not examples:
            raise DataError("no sentences", file=file)
        return examples


def _choose(columns: Columns, role: str, own: int, width: int, place: str) -> int:
    """The column of a role: `own`, or another one of the user; DataError if it is missing."""
    column = columns.get(role, _OF_LAYOUT[role])
    if column == _OF_LAYOUT[role]:
        return own
    if not isinstance(column, int) or not -width <= column < width:
        what = f"no column {column}: there are {width}, from 0"
        raise DataError(what, file=place, fix=f"leave out task.columns.{role}: here it is {own}")
    return column


def _name(sense: str, layout: str) -> str:
    """`n.` or `v.` and the name, or `NO_SENSE`."""
    kind, _, name = sense.rpartition(".")
    letters = name.replace(" ", "")
    if layout == "tags" and letters.isalpha() and (letters.isupper() or letters.islower()):
        kind = "n" if letters.isupper() else "v"
    return f"{kind}.{letters}" if kind in ("n", "v") else NO_SENSE
