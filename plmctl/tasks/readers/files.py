"""Finding the file of a split and reading its lines: plain or gz, UTF-8, with the file and line
of whatever is wrong.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from plmctl.core.errors import AbsentData, ConfigError, DataError
from plmctl.core.spelling import spell_setting
from plmctl.storage.paths import find_near
from plmctl.storage.unpacking import UNPACK, open_data
from plmctl.tasks.readers.builtin import BUILTIN, write_builtin_task
from plmctl.text.bounds import FILE_LINES, long_line_error, longest_line
from plmctl.text.inputs import read_lines
from plmctl.text.tabular import CSV, OBJECTS, TSV, kind_of, named_rows
from plmctl.text.undecodable import decode, undecodable_error

TEXTS = (  # names of the columns of texts in tables that others distribute
    *(("premise", "hypothesis"), ("sentence1", "sentence2"), ("text1", "text2")),
    *(("question1", "question2"), ("question", "sentence"), ("sentence",), ("text",)),
)
SPLITS = ("train", "dev", "test")  # the order in which a list of files is taken

Where = str | Path | Sequence[str] | Mapping[str, str]  # the forms of `task.path`


class SeveralFiles(DataError):
    """More than one file could be a split."""


def locate(
    path: Where | None, split: str, patterns: Sequence[str], *, folder: str = ""
) -> Path | None:
    """The file of `split`: by name in a mapping, by its index in a list, by `patterns` (in order)
    in a directory.

    A directory may be the task's own, or the one above that has it as `folder`; names match in any
    case, with or without `.gz`. A single file is every split (the task decides which part of it
    is dev). None where the split is absent.
    """
    if path is None:
        raise ConfigError("task.path", None, "the files of the task", fix="task.path=FOLDER")
    if isinstance(path, Mapping):
        return existing(path[split]) if split in path else None
    if not isinstance(path, str | Path):
        return existing(path[SPLITS.index(split)]) if split in SPLITS[: len(path)] else None
    place = existing(path, "task.path")
    if place.is_file():
        return place
    return _match(place, patterns) or next(
        (_match(inner, patterns) for inner in _inside(place, folder)), None
    )


def is_single(path: Where) -> bool:
    """Whether `path` is one file, which has no name of a split."""
    return isinstance(path, str | Path) and Path(path).expanduser().is_file()


def need(
    path: Where | None,
    split: str,
    patterns: Sequence[str],
    *,
    folder: str = "",
    others: Sequence[str] = (),
) -> Path:
    """As `locate`, with a DataError that lists what is there instead of None; `others`: existing
    splits of the same kind, of a folder without this one.
    """
    file = None if others else locate(path, split, patterns, folder=folder)
    if file is not None:
        return file
    if not patterns:
        fix = "plmctl eval task=<it> checkpoint=<a run on the task that it is for>"
        raise AbsentData(f"this data set has no split '{split}'", file=path, fix=fix)
    found = sorted(Path(str(path)).iterdir()) if Path(str(path)).is_dir() else []
    hint = f"; the folder has {', '.join(f.name for f in found[:12])}" if found else ""
    tables = [f for f in found if kind_of(f) in (CSV, TSV, *OBJECTS)]
    named = "name the files in order: task.path=[<train>,<dev>,<test>]"
    single = split == "train" and len(tables) == 1
    columns, other = propose_table(Path(str(path)), split)
    raise AbsentData(
        f"no file for the split '{split}'{' alone' if others else ''}: looked for"
        f" {', '.join(patterns)} (also .gz){hint}{columns}",
        file=path,
        fix=", or ".join(f"split={each}" for each in others)
        or other
        or (spell_setting("task.path", tables[0]) if single else named),
    )


def propose_table(place: Path, split: str) -> tuple[str, str]:
    """(`; train.jsonl.gz has the columns ...`, the settings of the task that reads them) for a
    folder with a table of a split by its name; ("", "") for any other.
    """
    if not place.is_dir():
        return "", ""
    named = sorted(place.glob(f"{split}.*"))
    own = [file for file in named if kind_of(file) in (CSV, TSV, *OBJECTS)]
    try:
        _, row = next(named_rows(own[0])) if own else (0, {})
    except (DataError, StopIteration):
        return "", ""
    texts = next((each for each in TEXTS if {*each, "label"} <= row.keys()), None)
    if texts is None:
        return "", ""
    task = "pair_classification" if len(texts) > 1 else "classification"
    pairs = zip(("text", "text2"), texts, strict=False)
    words = [f"task.columns.{name}={column}" for name, column in pairs if name != column]
    return f"; {own[0].name} has the columns {', '.join(row)}", " ".join([f"task={task}", *words])


def _inside(place: Path, folder: str) -> list[Path]:
    return sorted(
        f for f in place.iterdir() if folder and f.is_dir() and f.name.lower() == folder.lower()
    )


def _match(place: Path, patterns: Sequence[str]) -> Path | None:
    files = sorted(f for f in place.iterdir() if f.is_file())
    return match_patterns(
        [(f.name.lower().removesuffix(".gz"), f) for f in files],
        patterns,
        place,
        fix="name them: task.path=[train,dev]",
    )


def match_all(place: Path, patterns: Sequence[str]) -> list[Path]:
    """All files of a folder, plain or gz, whose names fit one of the patterns, sorted."""
    return [
        file
        for file in sorted(place.iterdir())
        if file.is_file()
        and any(fnmatch(file.name.lower().removesuffix(".gz"), each) for each in patterns)
    ]


def match_patterns(
    named: Sequence[tuple[str, Path]], patterns: Sequence[str], place: Path, *, fix: str
) -> Path | None:
    """The file whose name fits the first pattern that any fits; DataError with `fix` where
    several do.
    """
    for pattern in patterns:
        fits = [file for name, file in named if fnmatch(name.lower(), pattern.lower())]
        if len(fits) > 1:
            names = ", ".join(file.name for file in fits)
            raise SeveralFiles(f"several files could be meant: {names}", file=place, fix=fix)
        if fits:
            return fits[0]
    return None


def existing(path: Any, setting: str = "") -> Path:
    """`path`, with `~` filled in, or the folder of a built-in set; DataError for a missing one that
    lists its neighbours. The folder of a model, which is often called as its data, is not proposed.

    Args:
        setting: The setting that has this path alone; "" for one of several files.
    """
    place = Path(path).expanduser()
    if path == BUILTIN and not place.exists():
        return write_builtin_task()
    if not place.exists():
        near = sorted(f.name for f in place.parent.iterdir())[:12] if place.parent.is_dir() else []
        meant = find_near(place, folders=False)
        meant = None if meant is not None and (meant / "config.yaml").is_file() else meant
        fix = f"give {meant}" if meant else "check the path"
        if setting:
            fix = spell_setting(setting, meant) if meant else f"{setting}=<its file or folder>"
        raise AbsentData(
            "no such file or directory" + (f"; there is {', '.join(near)}" if near else ""),
            file=place,
            fix=fix,
        )
    return place


def read_text(file: Path) -> str:
    """The whole content of a plain or gz file that is one value, of a bounded size.

    DataError for bytes that are not UTF-8 (with the line), and for emptiness.
    """
    longest = FILE_LINES * longest_line()
    try:
        with open_data(file, UNPACK[".gz"] if file.suffix == ".gz" else None) as stream:
            raw = stream.read(longest + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot be read: {error}", file=file) from error
    if len(raw) > longest:
        raise long_line_error(file, times=FILE_LINES)
    try:
        content = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise undecodable_error(error, file=file, line=line, content=raw[: 1 << 16]) from error
    if "\0" in content[: 1 << 16]:
        decode(raw[: 1 << 16], file=file, number=1, encoding="latin1")
    if not content.strip():
        raise DataError("the file is empty", file=file, fix="name a file with examples")
    return content


def read_start(file: Path) -> str:
    """At most 80 characters of the first line with text, without the white space before them."""
    for _, line in read_lines(file):
        if start := line.lstrip()[:80]:
            return start
    return ""
