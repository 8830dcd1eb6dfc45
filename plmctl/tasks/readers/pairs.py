"""Sources with their targets: line-parallel files, tables and JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar

from plmctl.core.errors import DataError, nearest
from plmctl.core.parts import part_of
from plmctl.tasks.readers import files, sgm, wmt
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.tables import Table
from plmctl.tasks.record import Example
from plmctl.text.inputs import need_lines
from plmctl.text.tabular import OBJECTS, cells_of, kind_of, objects_of

_UNCHOSEN = ("source", "target")  # the columns, if nobody chose them
_NAMED = (".tsv", ".csv", ".jsonl", ".json")
_TABLES = (*_NAMED, ".txt")


@part_of("reader")
class Pairs(Table):
    """`columns.source` and `columns.target` name two columns of a table, or the suffixes of two
    line-parallel files.

    With source=en, target=de a folder holds train.en and train.de, or train.tsv, .csv or .jsonl
    with such columns; `splits` are patterns of the name before the suffix. Or files are named split
    by split: `[train.en, train.de, dev.en, dev.de]`, or a table each, `[train.tsv, dev.tsv]`; in
    YAML also {train: [a.en, a.de]}. `also`: the names of source and target in published copies.
    They are taken, with a line about it, where nobody has chosen columns and the files have no
    such. WMT's `.sgm` files may be added to others, or replace them: {test: [a-src.de.sgm,
    a-ref.en.sgm, a-ref2.en.sgm]} (`wmt`). A list in JSON is, of a source, its sentences; of a
    target, the references, of which the first is learnt.
    """

    also: ClassVar[Sequence[tuple[str, str]]] = ()

    def has(self, path: Any, split: str, columns: Columns | None = None) -> bool:
        """Whether `path` has that split, as a table or as a source with its target."""
        columns = columns or dict(zip(_UNCHOSEN, _UNCHOSEN, strict=True))
        return bool(self._locate(path, split, columns))

    def read(self, path: Any, split: str, columns: Columns) -> list[Example]:
        """The examples of `split`: fields.source, and as label a tuple of references; None where
        a test file has none.
        """
        located = self._locate(path, split, columns)
        if not located:
            raise self._absent(path, split, columns)
        labelled = split.startswith(("train", "dev"))
        if kind_of(located[0]) == sgm.SUFFIX:
            return wmt.read_sets(located, labelled=labelled)
        if len(located) == 2:
            return self.read_lines(*located)
        return self.read_file(located[0], columns, labelled=labelled)

    def read_file(
        self, file: Path, columns: Columns, *, header: bool | None = None, labelled: bool = True
    ) -> list[Example]:
        if kind_of(file) == sgm.SUFFIX:
            return wmt.read_sets([file], labelled=labelled)
        columns = self._name_columns(file, columns)
        roles = {
            "source": columns["source"],
            "label": columns.get("target"),
            "id": columns.get("id"),
        }
        present = {role: column for role, column in roles.items() if column is not None}
        examples = super().read_file(file, present, header=header, labelled=labelled)
        return [replace(e, label=(e.label,)) if isinstance(e.label, str) else e for e in examples]

    def cell(self, role: str, value: Any) -> Any:
        if (
            role in ("source", "label")
            and isinstance(value, list)
            and all(isinstance(text, str) for text in value)
        ):
            texts = tuple(stripped for text in value if (stripped := text.strip()))
            if texts:
                return self.join_sentences(texts) if role == "source" else texts
        if role == "source" and isinstance(value, int | float):
            raise ValueError(json.dumps(value))
        return super().cell(role, value)

    def read_lines(self, source: Path, target: Path) -> list[Example]:
        """The examples of two line-parallel files."""
        return list(_lines(source, target))

    def join_sentences(self, texts: Sequence[str]) -> str:
        """The source that a list of its sentences is."""
        return " ".join(texts)

    def _locate(self, path: Any, split: str, columns: Columns) -> list[Path]:
        """The table of a split, or its source and its target; nothing where it has no file."""
        if not isinstance(path, str | Path):
            listed = (path if isinstance(path, Mapping) else _by_split(path)).get(split, [])
            return [
                files.existing(file)
                for file in ([listed] if isinstance(listed, str | Path) else listed)
            ]
        if files.existing(path, "task.path").is_file():
            return [Path(path).expanduser()]
        folder = files.existing(path)
        pairs = [tuple(columns.get(side) for side in ("source", "target"))]
        chosen = pairs[0] != _UNCHOSEN
        pairs += [] if chosen else self.also
        languages = {side: str(columns[side]) if chosen else None for side in _UNCHOSEN}
        if sets := wmt.find_sets(folder, self.splits.get(split, []), languages):
            return sets
        ends, source = [""], None
        for pair in pairs:
            ends = [f".{side}" for side in pair]
            if source := self._match(folder, split, ends[:1]):
                break
        if source is None:
            table = self._match(folder, split, _TABLES)
            return [table] if table else []
        stem = _bare(source).removesuffix(ends[0])
        target = next(
            (file for file in sorted(folder.iterdir()) if _bare(file) == stem + ends[1]), None
        )
        if target is None:
            raise DataError(
                f"there is no {stem}{ends[1]} next to {source.name}, but"
                f" {_list(folder)}{nearest(ends[1], _suffixes(folder))}",
                file=folder,
                fix="task.columns.target=<the ending of the files in the other language>",
            )
        return [source, target]

    def _name_columns(self, file: Path, columns: Columns) -> Columns:
        """`columns`, or those of `also` that the first row of a table names."""
        own = tuple(columns.get(side) for side in ("source", "target"))
        if not self.also or own != _UNCHOSEN:
            return columns
        _, first = next(iter(objects_of(file) if kind_of(file) in OBJECTS else cells_of(file)))
        for pair in [] if own[0] in first else self.also:
            if set(pair) <= set(first):
                self.notes[str(file)] = f"{pair[0]} is the source, {pair[1]} the target"
                return {**columns, "source": pair[0], "target": pair[1]}
        return columns

    def _match(self, folder: Path, split: str, ends: tuple[str, ...] | list[str]) -> Path | None:
        """The file of `split`, by the first pattern that any matches; DataError where several
        do.
        """
        inside = [file for file in sorted(folder.iterdir()) if file.is_file()]
        candidates = [
            (_bare(file).removesuffix(end), file)
            for file in inside
            for end in ends
            if _bare(file).endswith(end)
        ]
        return files.match_patterns(
            candidates, self.splits.get(split, []), folder, fix="name them: task.path=[...]"
        )

    def _absent(self, path: Any, split: str, columns: Columns) -> DataError:
        folder = Path(str(path)).expanduser()
        hint = f"; the folder has {_list(folder)}" if folder.is_dir() else ""
        sides = [str(columns.get(side)) for side in ("source", "target")]
        near = (
            nearest(sides[0], [end.removeprefix(".") for end in _suffixes(folder)])
            if folder.is_dir()
            else ""
        )
        return DataError(
            f"no file for the split '{split}': neither {split}.{sides[0]} and {split}.{sides[1]}"
            f" nor a table{near}{hint}",
            file=path,
            fix=(
                "task.columns.source=... task.columns.target=..., or"
                " task.path=[train.en,train.de,dev.en,dev.de]"
            ),
        )


def _by_split(named: Sequence[str]) -> dict[str, list[str]]:
    """Files in the order of the splits: one each if they are tables, otherwise two."""
    files_per_split = 1 if any(kind_of(Path(file)) in _NAMED for file in named) else 2
    return {
        split: list(named[at * files_per_split : (at + 1) * files_per_split])
        for at, split in enumerate(files.SPLITS)
        if at * files_per_split < len(named)
    }


def _lines(source: Path, target: Path) -> Iterator[Example]:
    """Line n of the source with line n of the target; DataError for an empty side, as leaving it
    out would shift the lines.
    """
    for number, (left, right) in enumerate(zip_longest(need_lines(source), need_lines(target))):
        if left is None or right is None:
            longer, shorter = (target, source) if left is None else (source, target)
            raise DataError(
                f"there is no line {number + 1} in {shorter}: the two files are not line-parallel",
                file=longer,
                line=number + 1,
                fix="find the line that one of them lacks; both must have as many",
            )
        for file, (line, text) in ((source, left), (target, right)):
            if not text.strip():
                fix = "leave this line out of both files"
                raise DataError("the line is empty", file=file, line=line, fix=fix)
        yield Example(
            str(number), {"source": left[1].strip()}, (right[1].strip(),), f"{source}:{left[0]}"
        )


def _bare(file: Path) -> str:
    return file.name.removesuffix(".gz")


def _suffixes(folder: Path) -> list[str]:
    return sorted({Path(_bare(file)).suffix for file in folder.iterdir()})


def _list(folder: Path) -> str:
    return ", ".join(sorted(file.name for file in folder.iterdir())[:12])
