"""The files of texts that a command labels, and whether their answers may be written."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from plmctl.core.errors import ConfigError
from plmctl.core.spelling import spell_setting
from plmctl.tasks.predictions import STDOUT, is_file
from plmctl.use.asked_task import Destination, check_out, find_result
from plmctl.use.labelling import refuse_result


def find_texts(given: str | Sequence[str]) -> list[str]:
    """The files of a name, a pattern, or several; "-" for standard input.

    Raises:
        ConfigError: Two files have one name, a folder is named, or standard input is one of
            several.
    """
    named = [given] if isinstance(given, str) else list(given)
    files = [file for name in named for file in _match(name)]
    if len(files) > 1 and str(STDOUT) in files:
        allowed = "files, or - alone: standard input has no end before that of all files"
        raise ConfigError("input", named, allowed, fix="input=-")
    for file in map(Path, files):
        if file.is_dir():
            allowed = "a file, several, or a pattern: this is a folder"
            raise ConfigError("input", str(file), allowed, fix=f"input='{file}/*'")
    counts = Counter(_name(file) for file in files)
    if same := [file for file in files if counts[_name(file)] > 1]:
        allowed = f"files of different names: those of {' and '.join(same[:2])} would be one"
        raise ConfigError("input", named, allowed, fix=spell_setting("input", same[0]))
    return files


def _match(name: str) -> list[str]:
    path = Path(name).expanduser()
    if name == str(STDOUT) or path.exists():
        return [name if name == str(STDOUT) else str(path)]
    return sorted(glob.glob(str(path), recursive=True)) or [str(path)]


def _name(file: str) -> str:
    return Path(file).name.partition(".")[0]


def refuse_outputs(out: Path, files: Sequence[str], *, overwrite: bool) -> None:
    """Refuse to write answers over their texts, several files into one, or over an existing file.

    Raises:
        ConfigError: The output is of no known kind, or one of the files.
        UsageError: It exists.
    """
    if out == STDOUT:
        return
    if is_file(out):
        if len(files) > 1:
            allowed = f"a folder: each of {len(files)} files has answers of its own"
            raise ConfigError("out", str(out), allowed, fix=spell_setting("out", out.stem))
        _refuse_texts(out, out, files)
        refuse_result(out, overwrite)
        return
    check_out(out, overwrite)
    for name in map(_name, files):
        if out.is_dir():
            _refuse_texts(out, find_result(Destination(out), name), files)


def _refuse_texts(out: Path, result: Path, files: Sequence[str]) -> None:
    """ConfigError where a result has the path of a file of texts."""
    for file in map(Path, files):
        if result.exists() and file.exists() and result.samefile(file):
            allowed = f"another path than that of the texts: {file} would be lost"
            fix = spell_setting("out", f"{file.stem}-labelled.csv")
            raise ConfigError("out", str(out), allowed, fix=fix)
