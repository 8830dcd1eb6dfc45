"""The comments at the head of a recipe or a part file, read as fields: what it is, its launch
line, its data, its cost.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from plmctl.config.recipes import part_files
from plmctl.core.errors import AbsentData, UsageError

FIELD = re.compile(r"# ([A-Z][\w ]{2,20}):\s+(.*)")
# the text before them describes the file, and may have colons, too
FIRST = ("Launch", "Before", "Data")


@dataclass(frozen=True)
class Header:
    """`about`: one line; `fields`: (name, text) in the order of the file, a text over several
    lines joined by spaces.
    """

    file: Path
    about: str
    fields: tuple[tuple[str, str], ...]
    lines: tuple[str, ...]  # as they stand

    def texts(self, name: str) -> list[str]:
        return [text for field, text in self.fields if field == name]

    def text(self, name: str) -> str:
        return next(iter(self.texts(name)), "")

    def command(self, name: str = "Launch") -> list[str]:
        """The words of a launch line, without the remark in brackets behind it."""
        return self.words(self.text(name))

    def words(self, line: str) -> list[str]:
        try:
            return shlex.split(line.split(" (")[0])
        except ValueError as error:
            raise UsageError(f"{self.file}: {line}: no command line: {error}") from None


def header(file: Path) -> Header:
    """The leading comments of a YAML file."""
    lines = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        if not line.startswith(("# @package", "# yaml-language-server")):
            lines.append(line)
    about: list[str] = []
    fields: list[tuple[str, list[str]]] = []
    for line in lines:
        stated = FIELD.fullmatch(line)
        if stated and (fields or stated[1] in FIRST):
            fields.append((stated[1], [stated[2]]))
        else:
            (fields[-1][1] if fields else about).append(line.lstrip("# "))
    joined = tuple((name, " ".join(filter(None, text))) for name, text in fields)
    return Header(file, " ".join(about), joined, tuple(lines))


def describe_options(folder: Path) -> list[tuple[str, str]]:
    """(option, what it is) of every YAML file of a folder."""
    return [(file.stem, header(file).about) for file in sorted(folder.glob("*.yaml"))]


def source_of(group: str, name: str | None, config_dirs: Sequence[str] = ()) -> str:
    """Where to get what a part reads, as its file says under `# Data:`; empty where it does not."""
    file = part_files(group, config_dirs).get(name or "")
    return header(file).text("Data") if file else ""


@contextlib.contextmanager
def naming_source(group: str, name: str | None, config_dirs: Sequence[str] = ()) -> Iterator[None]:
    """An absent file's message also says where to get it."""
    try:
        yield
    except AbsentData as error:
        source = source_of(group, name, config_dirs)
        raise AbsentData(f"{error}" + (f"\n  data: {source}" if source else "")) from None
