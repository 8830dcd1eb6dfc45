"""TSV, CSV, JSON lines and Parquet as examples: named or numbered columns, GLUE's own layouts among
them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from sys import intern
from typing import Any, ClassVar

from plmctl.core.errors import DataError, did_you_mean, find_alike, find_meant
from plmctl.core.parts import part_of
from plmctl.core.spelling import spell, spell_setting, spell_word
from plmctl.core.terminal import counted
from plmctl.storage.reading import parse_json_at
from plmctl.tasks.readers import files
from plmctl.tasks.readers.broken_rows import EMPTY, explain_broken, list_broken
from plmctl.tasks.readers.column_settings import Column, Columns, refuse_lists, spell_role
from plmctl.tasks.readers.header import LOOKED, names_columns
from plmctl.tasks.readers.label_codes import NamesOfCodes
from plmctl.tasks.readers.label_lists import are_digits, find_flags, is_bracketed, is_list
from plmctl.tasks.readers.label_text import LabelKinds, is_absent, spell_label
from plmctl.tasks.readers.merged_labels import MergedLabels
from plmctl.tasks.readers.split_files import SplitFiles
from plmctl.tasks.record import Example, Examples
from plmctl.text.inputs import need_lines
from plmctl.text.quotes import LENIENT
from plmctl.text.segmented import count_words
from plmctl.text.separators import explain_undivided, explain_uneven
from plmctl.text.tabular import (
    OBJECTS,
    Cells,
    Row,
    cells_of,
    kind_of,
    objects_of,
    refuse_longer,
    show_row,
)

TEXTS = ("text", "text2")  # the roles of the columns that are read
SHARES = "probabilities"  # the role of a column with {label: its probability}
SETS = frozenset({"bundle", "slice"})  # roles of sets of examples; some are in none
NAME = "label_name"  # the role of a column with the name of the label, which is a code
OPTIONAL = SETS | {"id", SHARES, NAME}  # roles that a task may do without
# the roles of columns that answers do not depend on; files of texts without labels may lack them
BESIDE = OPTIONAL | {"label"}


@part_of("reader")
class Table(SplitFiles):
    """Reads a split's table into examples. `columns` maps text, text2, label, id to a name in the
    header or a number from 0. `slice` is a column whose values are also scored apart, `bundle` one
    whose rows count together. `probabilities` is a JSON object of labels, which files of other
    splits than train may lack.

    Kinds by suffix: `.jsonl` and `.json` (one object a line), `.parquet`, `.csv` (quoted),
    everything else tab-separated without quoting. `header=None`: there is one where a column is
    given by name; of numbers, where the first line looks like it (`notes` says so; DataError where
    it may be either).
    `test_columns`: GLUE's test files differ.
    `merged_by`: a file that says which labels count as one (`MergedLabels`).
    `undecided`: the label of rows whose annotators disagree (`-` in SNLI and its kin); these rows
    are left out and counted in `skipped`.
    `lenient`: rows with too few columns or an empty label are skipped and counted in `skipped` (a
    few lines of QQP are broken).
    """

    empty_labels = False  # whether a row without a label has none, and is no mistake
    named: frozenset[str] = frozenset()  # optional roles whose columns no file may lack
    label_setting = "label"  # the key in task.columns that names the column of the label
    several: ClassVar[tuple[str, ...]] = ()  # the roles that may be in more than one column each
    # whether `stream_file` gives unlabelled examples as `read_file` does; each class says it itself
    streams: ClassVar[bool] = True

    def __init__(
        self,
        *,
        splits: Mapping[str, Sequence[str]],
        folder: str = "",
        header: bool | None = None,
        lenient: bool = False,
        test_columns: Mapping[str, Column] | None = None,
        merged_by: str | None = None,
        undecided: str | None = None,
    ) -> None:
        super().__init__(splits=splits, folder=folder)
        self.undecided = undecided
        self.merged = None if merged_by is None else MergedLabels(merged_by)
        self.header, self.lenient = header, lenient
        self.test_columns = dict(test_columns) if test_columns else None
        self._lost: dict[str, list[int]] = {}  # file -> lines of open quotes
        self.why: dict[str, str] = {}  # file -> which rows were skipped, and why
        self.notes: dict[str, str] = {}  # file -> how it was read, if its header was detected
        self.label_names = NamesOfCodes()

    def read(self, path: files.Where, split: str, columns: Columns) -> list[Example]:
        """The examples of `split`; the label is None where the columns of a test file have none."""
        refuse_lists(columns, self.several)
        file = self.need(path, split)
        labelled = split.startswith(("train", "dev"))
        if not split.startswith("train"):
            columns = _leave_out_shares(file, columns)
        header = self.header
        if not labelled and self.test_columns is not None:
            columns, header = self.test_columns, True
        examples = self.read_file(file, columns, header=header, labelled=labelled)
        if self.merged is not None and split.startswith("train"):
            self.merged.check((each.label for each in examples), file)
            self._note(file, self.merged.describe_unused())
        return examples

    def read_file(
        self, file: Path, columns: Columns, *, header: bool | None = None, labelled: bool = True
    ) -> list[Example]:
        """The examples of one file; a `label` column that is absent is an error only where
        `labelled`.
        """
        examples = list(Table.stream_file(self, file, columns, header=header, labelled=labelled))
        self._refuse_label_lists(file, columns, examples)
        examples = self._leave_out_undecided(file, examples)
        if not examples:
            raise DataError(
                "no rows"
                + (
                    f" ({self.skipped[str(file)]} were skipped)"
                    if self.skipped.get(str(file))
                    else ""
                ),
                file=file,
                fix="write an example behind the line of names, or name another file",
            )
        return self._merge(file, examples)

    def _leave_out_undecided(self, file: Path, examples: list[Example]) -> list[Example]:
        if self.undecided is None:
            return examples
        kept = [each for each in examples if each.label != self.undecided]
        if left_out := len(examples) - len(kept):
            self.skipped[str(file)] = self.skipped.get(str(file), 0) + left_out
            self.why[str(file)] = f"{counted(left_out, 'row')} with the label '{self.undecided}'"
        return kept

    def _merge(self, file: Path, examples: list[Example]) -> list[Example]:
        """Labels as `merged_by` has them; `notes` says which became one."""
        labels = [each.label for each in examples if isinstance(each.label, str)]
        if self.merged is None or not labels:
            return examples
        if {*labels} & self.merged.table.keys():
            self._note(file, self.merged.describe(labels))
        return self.merged.change(examples)

    def _note(self, file: Path, more: str) -> None:
        """Add a sentence to the notes on a file, which may be read several times."""
        known = self.notes.get(str(file), "")
        if more not in known:
            self.notes[str(file)] = "; ".join(filter(None, (known, more)))

    def stream_file(
        self, file: Path, columns: Columns, *, header: bool | None = None, labelled: bool = True
    ) -> Iterator[Example]:
        """The examples of one file, each when it is read, so that a file of any length takes no
        room.
        """
        refuse_lists(columns, self.several)
        columns = {role: column for role, column in columns.items() if column is not None}
        if kind_of(file) in OBJECTS:
            rows = objects_of(file, list(map(str, _name_fields(columns).values())))
            yield from self.read_objects(rows, file, columns, labelled=labelled)
        else:
            yield from self._cells(file, columns, header, labelled)

    def _is_needed(self, role: str, labelled: bool) -> bool:
        """Whether a file without the column of this role is refused."""
        return role not in BESIDE or role in self.named or (labelled and role != "id")

    def _find_columns(
        self, file: Path, columns: Columns, names: list[str], rows: list[Cells], labelled: bool
    ) -> dict[str, int]:
        """{role: number of its cell}; numbers may be negative (STS-B's and MNLI's label is the
        last).
        """
        positions: dict[str, int] = {}
        missing: dict[str, Column] = {}
        for role, column in columns.items():
            found = isinstance(column, str) and column in names
            position = names.index(str(column)) if found else column
            if isinstance(position, int) and -len(names) <= position < len(names):
                positions[role] = position % len(names)
            elif self._is_needed(role, labelled):
                missing[role] = column
        if missing:
            role, column = next(iter(missing.items()))
            sample = "".join(
                f"\n  line {line}: {show_row(file, cells)[:100]}" for line, cells in rows[:2]
            )
            wanted = ", ".join(map(str, missing.values()))
            what = f"expected column{'s' if len(missing) > 1 else ''} {wanted}"
            otherwise = "<a column of the file, or its number from 0>"
            texts = _find_texts(names, rows, {*positions.values()})
            raise _NoColumn(what, role, str(column), names, otherwise, [*missing], sample, texts)
        return positions

    def _refuse_label_lists(self, file: Path, columns: Columns, examples: Examples) -> None:
        """DataError where each label is a list of several: they would be one class each."""
        labels = [each.label for each in examples if isinstance(each.label, str)]
        if self.label_setting != "label":
            return
        listed = all(map(is_bracketed, labels)) and any(map(is_list, labels))
        if listed or are_digits(labels):
            fix = f"task=multilabel {spell_setting('task.columns.labels', columns['label'])}"
            kind = "lists" if listed else "a 0 or 1 for each of several labels"
            what = f"the labels are {kind}, such as {labels[0][:60]}"
            raise DataError(what, file=file, fix=fix)

    def cell(self, role: str, value: Any) -> Any:
        """The value of a JSON field for `role`: a text or a number as it is. Null is no label, no
        bundle and no slice; otherwise ValueError.
        """
        if role == SHARES and isinstance(value, dict):
            return value
        if (role in SETS or role == NAME) and is_absent(value):
            return ""
        if role != "label" and is_absent(value):
            raise ValueError("null" if value is None else "NaN")
        if not isinstance(value, str | int | float) and not (role == "label" and value is None):
            raise ValueError(_kind(value))
        return value

    def cells(
        self, file: Path, columns: Columns, *, header: bool | None = None, labelled: bool = True
    ) -> tuple[list[str] | None, list[Cells], dict[str, int]]:
        """(the header, if there is one; rows of cells; {role: number of its cell}) of a file that
        is not JSON.
        """
        names, rows, positions = self._divide(file, columns, header, labelled)
        return names, list(rows), positions

    def _divide(
        self, file: Path, columns: Columns, header: bool | None, labelled: bool
    ) -> tuple[list[str] | None, Iterator[Cells], dict[str, int]]:
        """The result of `cells`, each row when it is read."""
        lost: list[int] = []
        self._lost[str(file)] = lost
        rows = cells_of(file, lenient=self.lenient, otherwise=LENIENT, lost=lost)
        first = list(islice(rows, LOOKED))
        if header is None:
            header = any(
                isinstance(column, str) for column in columns.values()
            ) or self._begins_with_names(file, first, columns)
        line, names = first.pop(0) if header else (None, None)
        if names is not None:
            self._refuse_doubled(file, line, columns, names)
        known = [str(n) for n in range(len(first[0][1]))] if names is None else names
        try:
            positions = self._find_columns(file, columns, known, first, labelled)
        except _NoColumn as missing:
            alone = len(known) == 1
            what, fix = _explain_undivided(file, names, first, columns) if alone else ("", "")
            if what:
                near = did_you_mean([missing.near]) if missing.near else ""
                told = f"{str(missing).replace(near, '')}\n  {what}"
                raise AbsentColumn(told, missing.column, file=file, line=line, fix=fix) from None
            flags = find_flags(known, [cells for _, cells in chain(first, rows)])
            raise self._refuse(missing, columns, file, flags=flags) from None
        return names, chain(first, rows), positions

    def _refuse(
        self,
        missing: _NoColumn,
        columns: Columns,
        file: Path,
        line: int | None = None,
        *,
        flags: Sequence[str] = (),
    ) -> AbsentColumn:
        """The error of a missing column; the fix is the nearest one, if any.

        Args:
            flags: the columns that hold 0 and 1, or yes and no, which may be labels.
        """
        own = [name for name in flags if name not in {*map(str, columns.values())}]
        if missing.role == "label" and not missing.near and len(own) > 1:
            several = spell_setting("task.columns.labels", own)
            fix = several if self.label_setting == "labels" else f"task=multilabel {several}"
            kinds = "columns of 0 and 1, or yes and no, one for each label"
            what = f"{missing}\n  {kinds}: {', '.join(own)}"
            return AbsentColumn(what, missing.column, file=file, line=line, fix=fix)
        otherwise = "null" if missing.role in OPTIONAL else missing.otherwise
        fix = spell_role(
            self.label_setting if missing.role == "label" else missing.role,
            spell(missing.near) if missing.near else otherwise,
            columns,
            self.several,
        )
        if not missing.near and (len(missing.roles) > 1 or missing.named):
            all_of_them = " ".join(
                spell_word(
                    f"task.columns.{self.label_setting if role == 'label' else role}="
                    + ("null" if role in OPTIONAL else missing.named.get(role, "COLUMN"))
                )
                for role in missing.roles
            )
            known_all = {*missing.named}.issuperset({*missing.roles} - OPTIONAL)
            fix = (
                all_of_them if known_all else f"{all_of_them}  # COLUMN: {missing.otherwise[1:-1]}"
            )
        known: dict[str, Any] = {"file": file, "line": line, "fix": fix, "near": missing.near}
        return AbsentColumn(str(missing), missing.column, **known)

    def _refuse_doubled(
        self, file: Path, line: int | None, columns: Columns, names: Sequence[str]
    ) -> None:
        """DataError for a name in `columns` that several columns have: which one would be read?"""
        for role, column in columns.items():
            places = [str(n) for n, name in enumerate(names) if name == column]
            if len(places) < 2:
                continue
            setting = self.label_setting if role == "label" else role
            fix = spell_role(setting, places[0], columns, self.several)
            if not any(isinstance(c, str) for other, c in columns.items() if other != role):
                fix += " task.reader.header=true"  # numbers alone would not say that there is one
            what = f"{len(places)} columns are named '{column}': numbers {' and '.join(places)}"
            raise DataError(what, file=file, line=line, fix=fix)

    def _begins_with_names(self, file: Path, rows: Sequence[Cells], columns: Columns) -> bool:
        """Whether the first of `rows` looks like names; DataError if it may be either."""
        width = len(rows[0][1])
        numbers = {
            role: c for role, c in columns.items() if isinstance(c, int) and -width <= c < width
        }
        positions = {role: position % width for role, position in numbers.items()}
        if self.header is False or not positions.keys() - {"id"}:
            return False
        is_header = names_columns([cells for _, cells in rows], positions)
        first_cells = ", ".join(rows[0][1][position].strip() for position in positions.values())
        if is_header is None:
            fix = "task.reader.header=true: it does, or task.reader.header=false: it is an example"
            problem = f"does the first line ({first_cells}) name the columns?"
            raise DataError(problem, file=file, line=rows[0][0], fix=fix)
        if is_header:
            self.notes[str(file)] = (
                f"the first line ({first_cells}) names the columns;"
                " task.reader.header=false: it is an example"
            )
        return is_header

    def _cells(
        self, file: Path, columns: Columns, header: bool | None, labelled: bool
    ) -> Iterator[Example]:
        names, rows, positions = self._divide(file, columns, header, labelled)
        broken: dict[str, list[int]] = {}  # problem -> lines
        first = ""  # the first of them, as it stands in the file
        longer: list[int] = []  # lines of rows with cells that have no name
        texts = [positions.get(role) for role in TEXTS]
        ends_in_text = names is not None and len(names) - 1 in texts
        for number, (line, cells) in enumerate(rows):
            if names and any(cell.strip() for cell in cells[len(names) :]):
                what = self._describe_longer(file, line, cells, names)
                if ends_in_text:  # a text without quotes, cut at its commas
                    broken.setdefault(what, []).append(line)
                    continue
                longer.append(line)
            short = len(cells) <= max(positions.values())
            needed = labelled and not self.empty_labels
            if short or (needed and not cells[positions["label"]].strip()):
                wanted = f"where {max(positions.values()) + 1} are needed"
                what = f"{counted(len(cells), 'column')} {wanted}" if short else EMPTY
                broken.setdefault(what, []).append(line)
                first = first or f"{what}: {show_row(file, cells)[:80]!r}"
                continue
            own: dict[str, Any] = {role: cells[position] for role, position in positions.items()}
            self.label_names.add(own.get("label"), own.pop(NAME, None), file, line)
            yield _example(own, number, f"{file}:{line}")
        if longer:
            rest = f"{counted(len(longer), 'row')} with cells behind the last named column"
            note = f"{rest}, which are left out; the first is {file}:{longer[0]}"
            self.notes[str(file)] = note
        if broken and not self.lenient:
            raise explain_broken(file, broken, first, rows=number + 1)
        if lost := self._lost[str(file)]:
            broken["an open quote"] = lost
        self.skipped[str(file)] = sum(map(len, broken.values()))
        if broken:
            self.why[str(file)] = list_broken(broken)

    def _describe_longer(
        self, file: Path, line: int, cells: list[str], names: Sequence[str]
    ) -> str:
        """The problem of a row that goes on behind the last column that the header names; DataError
        where the reader is not lenient.
        """
        if self.lenient:
            return f"{counted(len(cells), 'column')} where the header names {len(names)}"
        raise refuse_longer(file, line, cells, names)

    def read_objects(
        self, rows: Iterable[Row], file: Path, columns: Columns, *, labelled: bool
    ) -> Iterator[Example]:
        """The examples of rows of JSON or Parquet, each when it is read; `file`: their source."""
        self.skipped[str(file)] = 0
        empty: list[int] = []  # lines without a label
        kinds = LabelKinds(file)
        columns = _name_fields(columns)
        for number, (line, row) in enumerate(rows):
            # a row that lacks it, behind one that has it, was forgotten: no other column is meant
            label = columns.get("label")
            forgotten = label is not None and label not in row and not find_alike(str(label), row)
            if labelled and number > len(empty) and forgotten:
                empty.append(line)
                continue
            read = {r: c for r, c in columns.items() if c in row or self._is_needed(r, labelled)}
            missing = {role: str(column) for role, column in read.items() if column not in row}
            if missing:
                role = next(iter(missing))
                what = f"no field {', '.join(missing.values())}"
                found = [str(name) for name in row]
                taken = {n for n, name in enumerate(found) if name in read.values()}
                texts = _find_texts(found, [(line, [*row.values()])], taken)
                otherwise = "<one of those found>"
                refused = self._refuse(
                    _NoColumn(what, role, missing[role], found, otherwise, [*missing], texts=texts),
                    columns,
                    file,
                    line,
                    flags=find_flags(found, [list(row.values())]),
                )
                others = " in this line: the lines before have it"
                raise refused.of_rows(file, others) if number > len(empty) else refused
            cells = {role: row[column] for role, column in read.items()}
            if is_absent(cells.get("label", 0)):
                cells["label"] = None
            absent = (None,) if self.empty_labels else (None, "")
            if labelled and cells.get("label", 0) in absent:
                empty.append(line)
                continue
            kinds.add(cells.get("label"), line)
            for role, cell in cells.items():
                try:
                    cells[role] = self.cell(role, cell)
                except ValueError as error:
                    fix = f"task.columns.{role}=<field> where another has it, or a text in quotes"
                    if role == "label" and self.label_setting == "label":
                        named = spell_setting("task.columns.labels", columns[role])
                        fix = f"task=multilabel {named}" if isinstance(cell, list) else fix
                    problem = f"field {columns[role]} is {error}, not a text"
                    raise DataError(problem, file=file, line=line, fix=fix) from error
            self.label_names.add(cells.get("label"), cells.pop(NAME, None), file, line)
            yield _example(cells, number, f"{file}:{line}")
        if empty and not self.lenient:
            raise explain_broken(file, {EMPTY: empty}, EMPTY, rows=number + 1)
        if empty:
            self.skipped[str(file)] = len(empty)
            self.why[str(file)] = list_broken({EMPTY: empty})


def _name_fields(columns: Columns) -> dict[str, Column]:
    """The columns of JSON. Fields have no numbers: where the columns of the task do, the roles are
    their names.
    """
    return {
        role: role if isinstance(column, int) else column
        for role, column in columns.items()
        if column is not None
    }


class AbsentColumn(DataError):
    """A table without this `column`, with one of a similar name, `near`, if any."""

    def __init__(
        self,
        message: str,
        column: str,
        *,
        file: object,
        line: int | None,
        fix: str,
        near: str | None = None,
    ) -> None:
        super().__init__(message, file=file, line=line, fix=fix)
        self.file, self.column, self.line, self.near = file, column, line, near

    def of_rows(self, file: object, more: str = "") -> AbsentColumn:
        """The error where the rows are wrong, and no setting is; `more` is added to the fix."""
        message = self.message.replace(did_you_mean([self.near]), "") if self.near else self.message
        fix = f"rename '{self.near}' to '{self.column}'" if self.near else f"add '{self.column}'"
        known: dict[str, Any] = {"file": file, "line": self.line, "near": self.near}
        return AbsentColumn(message, self.column, **known, fix=f"{fix}{more}")


WORDS = 3  # least mean of words a row in a column of texts
NAMES = {  # names of columns that users of Chinese files write
    "text": ("文本", "正文", "内容", "句子", "句子1"),
    "text2": ("文本2", "句子2"),
    "label": ("标签", "类别", "分类"),
}


class _NoColumn(Exception):
    """A missing column: its role, and the columns that exist."""

    def __init__(
        self,
        what: str,
        role: str,
        column: str,
        found: Sequence[str],
        otherwise: str,
        roles: Sequence[str],
        more: str = "",
        texts: Sequence[str] = (),
    ) -> None:
        # another column taken for it would be read as texts in silence: the name has to be close
        self.near = find_meant(column, found, least=0.75)
        meant = did_you_mean([self.near] if self.near else [])
        super().__init__(f"{what}; found {', '.join(found)}{meant}{more}")
        self.role, self.column, self.otherwise = role, column, otherwise
        self.roles = roles  # all that are missing
        # {role: the column whose Chinese name says it, or the only one of texts, as one types it}
        named = {role: [name for name in NAMES.get(role, ()) if name in found] for role in roles}
        if "text" in roles and "text2" not in roles:
            named["text"] = named["text"] or [*map(spell, texts)]
        self.named = {role: names[0] for role, names in named.items() if len(names) == 1}


def _find_texts(names: Sequence[str], rows: Sequence[Cells], taken: Collection[int]) -> list[str]:
    """The columns with several words a row; an identifier, a label or a number has one."""
    counts = {
        name: [count_words(str(cells[number])) for _, cells in rows if number < len(cells)]
        for number, name in enumerate(names)
        if number not in taken
    }
    return [name for name, own in counts.items() if own and sum(own) / len(own) >= WORDS]


def _kind(cell: Any) -> str:
    return {"NoneType": "null", "list": "a list", "dict": "an object"}.get(
        type(cell).__name__, type(cell).__name__
    )


def _example(cells: dict[str, Any], number: int, place: str) -> Example:
    label = cells.pop("label", None)
    if label is not None and not isinstance(label, tuple):
        label = intern(spell_label(label))  # a table has few, and each many times
    sets = (str(cells.pop(role, "")) for role in ("bundle", "slice"))
    of, apart = (name if name.strip() else "" for name in sets)
    number_or_name = str(cells.pop("id", number))
    slices = (apart,) if apart else ()
    shares = _read_shares(cells.pop(SHARES), place) if SHARES in cells else None
    return Example(number_or_name, cells, label, place, slices=slices, bundle=of, shares=shares)


def _read_shares(cell: Any, place: str) -> dict[str, float]:
    """{label: its probability}; DataError for other content."""
    shares = parse_json_at(cell, file=place) if isinstance(cell, str) else cell
    numbers = shares.values() if isinstance(shares, dict) else [None]
    if not all(isinstance(p, int | float) and 0 <= p <= 1 for p in numbers) or not math.isclose(
        sum(numbers), 1, abs_tol=1e-3
    ):
        what = f"{json.dumps(shares)[:80]} is no object of probabilities that add up to 1"
        raise DataError(what, file=place, fix='{"yes": 0.8, "no": 0.2}')
    return {str(label): float(p) for label, p in shares.items()}


def _explain_undivided(
    file: Path, names: Sequence[str] | None, rows: Sequence[Cells], columns: Columns
) -> tuple[str, str]:
    """(problem, fix) of a table whose only column is several between signs that divide none; two
    empty texts where no such signs are.
    """
    named = {column for column in columns.values() if isinstance(column, str)}
    own = islice(need_lines(file), LOOKED)
    uneven = explain_uneven([f"{line}\n" for _, line in own], named)
    if named and uneven[0]:
        return uneven
    lines = [show_row(file, cells) for _, cells in rows]
    first = lines.pop(0) if names is None else names[0]
    label, text = (columns.get(role) for role in ("label", "text"))
    place = first.find(label) if isinstance(label, str) else label
    other = first.find(text) if isinstance(text, str) else text
    begins = place is not None and other is not None and 0 <= place < other
    return explain_undivided(file, first, lines, begins=begins)


def _leave_out_shares(file: Path, columns: Columns) -> Mapping[str, Column]:
    """The columns without that of probabilities where the first row of a file has none."""
    column = columns.get(SHARES)
    if column is None:
        return columns
    rows = objects_of(file) if kind_of(file) in OBJECTS else cells_of(file)
    _, first = next(iter(rows), (0, []))
    if column in first or (isinstance(column, int) and -len(first) <= column < len(first)):
        return columns
    return {role: name for role, name in columns.items() if role != SHARES}
