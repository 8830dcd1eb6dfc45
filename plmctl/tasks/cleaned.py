"""A labelled table without copies, contradictory labels and empty texts, in the form of its
file.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from plmctl.cleaning.clusters import group_texts
from plmctl.core.errors import ConfigError, DataError, list_some
from plmctl.core.folding import fold_name
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import counted
from plmctl.data.check.finding import shorten
from plmctl.data.check.labels import LABELS, find_key, group_copies, is_disputed
from plmctl.tasks.inference import count_labels
from plmctl.tasks.predictions import has_names, spell_json
from plmctl.tasks.readers import files
from plmctl.tasks.readers.label_text import spell_label
from plmctl.tasks.record import Example, Examples
from plmctl.tasks.scores.bundles import count_bundles, spell_bundles
from plmctl.tasks.splits import Splits
from plmctl.tasks.task import Task
from plmctl.text.inputs import open_unpacked
from plmctl.text.tabular import (
    CSV,
    JSON,
    MARK,
    TSV,
    cells_of,
    kind_of,
    objects_of,
    sign_of,
    spell_row,
)

TAB = "\t"
PARTS = ("train", "dev", "test")
KINDS = (CSV, TSV, *JSON)
ANSWERS = ("class", "types", "number")  # tasks with one example a row
PASSED = "rows passed over"
EMPTY = "empty texts"
DISPUTED = "contradictory labels"
COPIES = "copies, but for case"
BETWEEN = "near copies, or bundles, of rows in several parts"
SHOWN = 3  # rows of each reason
NAMED = 10  # new labels
FAR = 0.02  # distance of the share of a part from its setting


@dataclass(frozen=True)
class CleanTable:
    """A table of examples, and which of them stay.

    Args:
        kept: The examples that stay, in the order of the table.
        dropped: {reason: (line, the row in words) of each row that goes}.
        why: The lines that were passed over, with the reason.
        trimmed: (line, label) of each row whose label is written without the spaces around it.
        start: The text before the first row of an example: its mark and the names of the columns.
        rows: {file:line: the row as it stands there}.
        left_out: Columns that are not written.
    """

    file: Path
    kept: Examples
    dropped: Mapping[str, Sequence[tuple[int, str]]]
    why: str
    trimmed: Sequence[tuple[int, str]]
    start: str
    rows: Mapping[str, str]
    left_out: Sequence[str] = ()

    def spell(self, examples: Examples) -> str:
        """The table with these rows alone."""
        return self.start + "".join(self.rows[each.place] for each in examples)

    def describe(self) -> list[str]:
        """The rows that go, by reason, with some of them."""
        gone = sum(map(len, self.dropped.values()))
        left = len(self.kept)
        lines = [f"{self.file}: {counted(left + gone, 'row')}, of which {left:,} stay"]
        for reason, rows in self.dropped.items():
            lines.append(f"  {reason}: {counted(len(rows), 'row')}")
            shown = [f"line {line}: {said}" for line, said in rows[:SHOWN]]
            lines += [f"    {each}" for each in ([self.why] if reason == PASSED else shown)]
        if self.trimmed:
            written = counted(len(self.trimmed), "row")
            lines.append(f"  labels with spaces around, written without: {written}")
            lines += [f"    line {line}: {label!r}" for line, label in self.trimmed[:SHOWN]]
        if self.left_out:
            lines.append(f"  columns that the parts lack, left out: {', '.join(self.left_out)}")
        return lines


@dataclass(frozen=True)
class KeptPart:
    """A part that an earlier `data clean` wrote, whose rows stay where they are.

    Args:
        text: The text of the file.
    """

    file: Path
    text: str
    examples: Examples

    def extend(self, table: CleanTable, examples: Examples) -> str:
        """Its text with rows of another table behind it, whose lines end as its own."""
        end = "\r\n" if self.text.endswith("\r\n") else "\n"
        rows = (table.rows[each.place].rstrip("\r\n") + end for each in examples)
        missing = "" if self.text.endswith("\n") else end
        return self.text + missing + "".join(rows)


def read_parts(task: Task, folder: Path) -> dict[str, KeptPart]:
    """The parts in a folder of `data clean`, of the form of the table of a task.

    Raises:
        ConfigError: The folder has no file of train in this form.
    """
    kind, found = kind_of(_find_table(task)), {}
    for name in PARTS:
        file = folder / f"{name}{kind}"
        if file.is_file():
            text = file.read_bytes().decode()
            found[name] = KeptPart(file, text, task.splits.read_file(file, task.columns))
    if "train" not in found:
        allowed = f"a folder that data clean wrote, with train{kind}"
        fix = "keep_parts=null"
        other = next((each for each in KINDS if (folder / f"train{each}").is_file()), "")
        if other:
            allowed = f"parts of the form of the table, {kind}; these are {other}"
            fix = f"a {other} table of the new rows"
            fix = _spell_conversion(task, other) if other in JSON else fix
        raise ConfigError("keep_parts", str(folder), allowed, fix=fix)
    return found


def _spell_conversion(task: Task, kind: str) -> str:
    """The command that makes rows of JSON of a table, and the table for the next call."""
    table = _find_table(task)
    (_, names), text = next(cells_of(table)), task.columns.get("text")
    field = spell_setting("field", text) if text in names else "field=<its column>"
    made = table.with_suffix("")
    line = ["data filter", str(table), field, "'rule=[html,pii]'"]
    line += [spell_setting("out", made), "compression=none"]
    return f"plmctl {' '.join(line)}, then data clean {made}/00000{kind}"


def extend_parts(
    splits: Splits, table: CleanTable, known: Mapping[str, KeptPart]
) -> tuple[CleanTable, dict[str, list[Example]]]:
    """(the table, its rows by the part that gets them). A row goes to the part of its bundle and of
    its near copies, and leaves the table where these are several parts. Others are divided by the
    shares of `splits`, else by those of the parts.
    """
    found, rest, between = _place_rows(table.kept, known)
    lines = [(_line(each.place), _spell_row(each)) for each in between]
    gone, leaving = {each.place for each in between}, {BETWEEN: lines} if lines else {}
    kept = [each for each in table.kept if each.place not in gone]
    table = replace(table, kept=kept, dropped={**table.dropped, **leaving})
    if splits.dev_share is splits.test_share is None:
        sizes = {name: len(part.examples) for name, part in known.items()}
        total, test = sum(sizes.values()), sizes.get("test", 0)
        dev_share = sizes.get("dev", 0) / max(1, total - test)
        splits = replace(splits, dev_share=dev_share, test_share=test / total)
    for name, own in _divide_apart(splits, rest).items() if rest else ():
        found[name if name in known else "train"] += own
    order = {each.place: number for number, each in enumerate(kept)}
    return table, {
        name: sorted(own, key=lambda each: order[each.place]) for name, own in found.items()
    }


def _place_rows(
    rows: Examples, known: Mapping[str, KeptPart]
) -> tuple[dict[str, list[Example]], list[Example], list[Example]]:
    """(the new rows of each old part, rows that belong to none, rows that belong to several), by
    bundles and near copies of old rows and of placed ones.
    """
    old = [(name, each) for name, part in known.items() for each in part.examples]
    groups = group_near([*(each for _, each in old), *rows])
    places: dict[Any, set[str]] = {}
    for name, each in old:
        places.setdefault(groups[each.place], set()).add(name)
        places.setdefault(each.bundle, {name})
    found: dict[str, list[Example]] = {name: [] for name in known}
    rest, between, before = [*rows], list[Example](), -1
    while len(rest) != before:  # again: one row may decide on others
        todo, rest, before = rest, [], len(rest)
        for each in todo:
            keys = [key for key in (groups[each.place], each.bundle) if key != ""]
            wanted = set().union(*(places.get(key, ()) for key in keys))
            if len(wanted) == 1:
                found[min(wanted)].append(each)
                places |= dict.fromkeys(keys, wanted)
            else:
                (between if wanted else rest).append(each)
    return found, rest, between


def group_near(examples: Examples, units: Sequence[str] = ()) -> dict[str, int]:
    """{file:line: the number of the group of near copies}, by the rule of `data dedup`."""
    groups = group_texts([" ".join(find_key(each)) for each in examples], units)
    return {each.place: int(own) for each, own in zip(examples, groups, strict=True)}


def _divide_apart(splits: Splits, examples: Examples) -> dict[str, list[Example]]:
    """The parts of examples, near copies and bundles in one part."""
    units = list(map(splits.unit, examples))
    groups = group_near(examples, units)
    apart = replace(splits, unit=lambda each: units[groups[each.place]])
    return apart.divide(examples, balanced=True)


def arrange_columns(table: CleanTable, part: KeptPart) -> CleanTable:
    """The table with its columns as a part has them, by name.

    Raises:
        DataError: The table lacks columns of the part.
    """
    own, other = table.start.removeprefix(MARK).rstrip("\r\n"), part.text.removeprefix(MARK)
    if not own or other.splitlines()[:1] == [own]:
        return table
    (_, names), (_, wanted) = next(cells_of(table.file)), next(cells_of(part.file))
    if missing := [name for name in wanted if name not in names]:
        what = f"it has no column {', '.join(missing)}, which {part.file} has"
        raise DataError(what, file=table.file, line=1, fix=f"add {', '.join(missing)}")
    of = [names.index(name) for name in wanted]
    quoted = kind_of(table.file) == CSV
    sign, its = sign_of(table.file), sign_of(part.file)
    rows = {}
    for each in table.kept:
        bare = table.rows[each.place].rstrip("\r\n")
        cells = next(csv.reader([bare], delimiter=sign)) if quoted else bare.split(TAB)
        cells = [*cells, *[""] * (len(names) - len(cells))]
        moved = [cells[number] for number in of]
        rows[each.place] = spell_row(moved, its) if quoted else TAB.join(moved)
    left_out = [name for name in names if name not in wanted]
    return replace(table, rows=rows, left_out=left_out)


def describe_new_labels(old: Examples, new: Examples) -> list[str]:
    """A line on the labels of new examples that no old one has, if there are any."""
    known, counts = count_labels(old), count_labels(new)
    names = [f"{name!r} ({counted(n, 'row')})" for name, n in counts.items() if name not in known]
    return [f"new labels: {list_some(names, NAMED)}"] if names else []


def clean_table(task: Task, *, keep_disputed: bool = False, known: Examples = ()) -> CleanTable:
    """Read the table of a task, and find the rows that stay.

    Args:
        task: A task with one example a row.
        keep_disputed: Whether equal texts with several labels stay, once with each.
        known: Examples of other files, which stay whatever the table has.

    Raises:
        ConfigError: The task has other files, or several.
    """
    file = _find_table(task)
    reader: Any = task.splits.reader
    reader.lenient = True  # broken rows are passed over, and counted
    task.splits = task.splits.whole()
    # a few new rows may have no label of `merged_by`; the old parts have some
    examples = task.splits.read_file(file, task.columns) if known else task.read("train")
    start, rows, trimmed = _divide(file, examples, reader, task.columns.get("label"))
    read = {example.place for example in examples}
    passed = [place for place in rows if place not in read]
    if len(passed) != reader.skipped.get(str(file), 0) or len(read) < len(examples):
        raise ConfigError("task", task.name, "a task that reads each row as one example")
    kept, dropped = choose_rows(examples, keep_disputed=keep_disputed, known=known)
    broken = {PASSED: [(_line(place), rows[place].strip()) for place in passed]} if passed else {}
    why = reader.why.get(str(file), "")
    lines = {_line(each.place) for each in kept}
    trimmed = [own for own in trimmed if own[0] in lines]
    return CleanTable(file, kept, {**broken, **dropped}, why, trimmed, start, rows)


def can_clean(task: Task) -> bool:
    """Whether the files of a task are tables with one labelled example a row."""
    return task.facts.answer in ANSWERS and hasattr(task.splits.reader, "lenient")


def choose_rows(
    examples: Examples, *, keep_disputed: bool = False, known: Examples = ()
) -> tuple[list[Example], dict[str, list[tuple[int, str]]]]:
    """(the examples that stay, {reason: (line, words) of each other one}). A text among `known`
    has its label there.
    """
    several, old = [*known, *examples], {each.place for each in known}
    reasons: dict[str, tuple[str, str]] = {}  # {file:line: (reason, words on the row that stays)}
    for group in group_copies(several, list(map(find_key, several))):
        disputed = is_disputed(group) and not keep_disputed
        first = dict[str, Example]()
        for each in group:
            own = first.get(fold_name(repr(each.label)))
            if not all(find_key(each)):
                reasons[each.place] = (EMPTY, "")
            elif own is not None and each.place not in old:
                reasons[each.place] = (COPIES, f", as {_spell_place(own, old)}")
            elif disputed and each.place not in old:
                reasons[each.place] = (DISPUTED, "")
            else:
                first.setdefault(fold_name(repr(each.label)), each)
    dropped: dict[str, list[tuple[int, str]]] = {name: [] for name in (EMPTY, DISPUTED, COPIES)}
    for each in examples:
        if each.place in reasons:
            reason, other = reasons[each.place]
            dropped[reason].append((_line(each.place), _spell_row(each) + other))
    kept = [each for each in examples if each.place not in reasons]
    return kept, {reason: rows for reason, rows in dropped.items() if rows}


def divide_table(splits: Splits, examples: Examples) -> dict[str, list[Example]]:
    """The examples of train, dev and test, with the same share of each label where nothing stands
    against it; {} where no setting wants parts.

    Raises:
        DataError: Nothing can be held out.
    """
    if not (splits.dev_share or splits.test_share or splits.folds):
        return {}
    parts = _divide_apart(splits, examples)
    for name, share in splits.divided.items():
        if not parts[name]:
            what = f"no row of {name} is left by the share {share:.3g}"
            what += ": bundles and near copies stay together"
            raise DataError(what, file=splits.path, fix="larger shares, or smaller bundles")
    return {name: parts[name] for name in splits.divided}


def count_rows(examples: Iterable[Example]) -> Counter[str]:
    """The number of rows of each label."""
    return Counter(_spell(each.label) for each in examples)


def describe_part(name: str, examples: Examples) -> str:
    """The rows of a part with their labels and bundles."""
    labels = count_rows(examples)
    shown = list_some([f"{label} {n:,}" for label, n in labels.most_common()], LABELS)
    shown = f"{len(labels)} labels: {shown}; --json lists all" if len(labels) > LABELS else shown
    of = spell_bundles(count_bundles([{"bundle": each.bundle} for each in examples]))
    return f"  {name}: {counted(len(examples), 'row')}{of} ({shown})"


def find_missing(splits: Splits, parts: Mapping[str, Examples]) -> dict[str, list[str]]:
    """{part: the labels of other parts that it lacks, with their rows}, where it lacks some."""
    labels = {
        name: Counter(label for each in own for label in splits.labels(each))
        for name, own in parts.items()
    }
    whole: Counter[str] = sum(labels.values(), Counter())
    lacking = {name: sorted(whole.keys() - own.keys()) for name, own in labels.items()}
    return {
        name: [f"{label} ({counted(whole[label], 'row')})" for label in own]
        for name, own in lacking.items()
        if own and parts[name]
    }


def describe_shares(splits: Splits, parts: Mapping[str, Examples]) -> dict[str, str]:
    """{part: words on its share}, and why it is another one than the setting."""
    sizes = {name: len(own) for name, own in parts.items()}
    how = f"task.folds={splits.folds}" if splits.folds else ""
    notes = dict[str, str]()
    for name, own in sizes.items():
        notes[name] = f", {splits.describe_share(name, sizes, how=how if name == 'dev' else '')}"
        of = sum(sizes.values()) - (sizes.get("test", 0) if name == "dev" else 0)
        far = name != "train" and abs(own / of - splits.divided[name]) > FAR
        notes[name] += "; bundles stay together" if far and splits.names_bundles else ""
    return notes


def _find_table(task: Task) -> Path:
    """The file of a task; ConfigError where it has other ones, or several."""
    path: Any = task.splits.path
    if not can_clean(task):
        allowed = "a task of rows with a label: classification, multilabel, regression"
        raise ConfigError("task", task.name, allowed, fix="task=classification")
    if path is not None and files.is_single(path):
        file = Path(path).expanduser()
        if kind_of(file) in KINDS:
            return file
    place = files.existing(path, "task.path") if isinstance(path, str) else None
    inside = sorted(place.iterdir()) if place and place.is_dir() else []
    table = next((file for file in inside if kind_of(file) in KINDS), "<a table>")
    allowed = "one table: .csv, .tsv or .jsonl"
    raise ConfigError("task.path", str(path), allowed, fix=spell_setting("task.path", table))


def _divide(
    file: Path, examples: Examples, reader: Any, label: Any
) -> tuple[str, dict[str, str], list[tuple[int, str]]]:
    """(the text before the first row, {file:line: the row}, `trimmed`), with labels as `merged_by`
    has them, without spaces around; DataError for an open quote, which may hide rows.
    """
    with open_unpacked(file) as stream:
        raw = stream.read()
    lines = list(io.StringIO(raw.decode("utf-8-sig"), newline="\n"))
    found: Any = list(objects_of(file) if kind_of(file) in JSON else cells_of(file))
    starts = [number - 1 for number, _ in found]
    ends = [*starts[1:], len(lines)]
    texts = ["".join(lines[start:end]) for start, end in zip(starts, ends, strict=True)]
    before = MARK if raw.startswith(MARK.encode()) else ""
    before += "".join(lines[: starts[0]])
    place = label
    if kind_of(file) not in JSON and has_names(file, examples):
        _, names = found.pop(0)
        before += texts.pop(0)
        place = names.index(label) if label in names else label
    merged = getattr(reader, "merged", None)
    sign = sign_of(file) if kind_of(file) == CSV else TAB
    spell = partial(_name_cells, sign=sign) if kind_of(file) not in JSON else _name_object
    rows, trimmed = dict[str, str](), list[tuple[int, str]]()
    for text, (number, values) in zip(texts, found, strict=True):
        old, named = spell(text, values, place, merged.table if merged else {})
        trimmed += [(number, old)] if old != old.strip() else []
        rows[f"{file}:{number}"] = named
    return before, rows, trimmed


def _name_object(
    row: str, values: dict[str, Any], field: Any, table: Mapping[str, str]
) -> tuple[str, str]:
    """(the label of a JSON object where it is a text, the object with it as the table has it)."""
    field = field if field in values else "label"
    label = values.get(field)
    old, bare = (label if isinstance(label, str) else ""), spell_label(label)
    end = row[len(row.rstrip("\r\n")) :]
    if bare not in table and old == old.strip():
        return old, row
    return old, spell_json({**values, field: table.get(bare, bare)}) + end


def _name_cells(
    row: str, values: Sequence[str], place: int, table: Mapping[str, str], *, sign: str
) -> tuple[str, str]:
    """(the label of a row of cells, the row with it as the table has it); other cells stay as they
    are.
    """
    bare = row.rstrip("\r\n")
    cells = bare.split(sign)
    quoted = sign != TAB or len(cells) != len(values)
    cells = next(csv.reader([bare], delimiter=sign)) if quoted else cells
    old = values[place] if place in range(-len(values), len(values)) else ""
    new = table.get(old.strip(), old.strip())
    if old == new:
        return old, row
    cells[place] = new
    return old, (spell_row(cells, sign) if quoted else sign.join(cells)) + row[len(bare) :]


def _spell_place(example: Example, old: Collection[str]) -> str:
    """`line 5`, or `line 5 of tickets/train.csv` for a row of another file."""
    file, _, line = example.place.rpartition(":")
    return f"line {line} of {file}" if example.place in old else f"line {line}"


def _spell_row(example: Example) -> str:
    text = shorten(" / ".join(map(str, example.fields.values())))
    return f"'{text}' ({_spell(example.label)})"


def _line(place: str) -> int:
    return int(place.rpartition(":")[2])


def _spell(label: Any) -> str:
    listed = ", ".join(map(str, label)) if isinstance(label, list | tuple) else str(label)
    return listed or "no label"
