"""Cornell's movie dialogs: `movie_lines.txt` has the lines, `movie_conversations.txt` their
order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from plmctl.core.errors import DataError

LINES, CONVERSATIONS, BETWEEN = "movie_lines.txt", "movie_conversations.txt", " +++$+++ "
SHARES = (
    ("dev", 0.07),
    ("test", 0.14),
)  # shares of the conversations: of 140,000 pairs, 10,000 and 20,000 (arXiv:1905.02450, sec. 4.4)


@dataclass(frozen=True)
class Conversation:
    """One conversation of a film, as its turns (speaker, text)."""

    name: str
    line: int  # in the file of conversations
    turns: list[tuple[str, str]]  # speaker, text


def is_cornell(path: Any) -> bool:
    """Whether `path` is the folder of the corpus."""
    return isinstance(path, str | Path) and (Path(path).expanduser() / CONVERSATIONS).is_file()


def conversations(folder: Path, split: str) -> Iterator[Conversation]:
    """The conversations of a split, which the hash of each name decides, as no split was
    published; turns without text are left out.
    """
    spoken = {}
    for _, (name, who, _, _, text) in _rows(folder / LINES, 5):
        spoken[name] = (who, text)
    for number, (*_, film, names) in _rows(folder / CONVERSATIONS, 4):
        lines = re.findall(r"'(\w+)'", names)
        unknown = [name for name in lines if name not in spoken]
        if unknown or not lines:
            what = f"{unknown[0]} is not in {LINES}" if unknown else "no lines"
            raise DataError(
                what, file=folder / CONVERSATIONS, line=number, fix="both files of one release"
            )
        name = f"{film}:{lines[0]}"
        if _split(name) == split:
            yield Conversation(name, number, [spoken[line] for line in lines if spoken[line][1]])


def _split(name: str) -> str:
    point = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big") / 2**64
    for split, share in SHARES:
        if point < share:
            return split
        point -= share
    return "train"


def _rows(file: Path, count: int) -> Iterator[tuple[int, list[str]]]:
    """(number, fields) of each line; published in ISO 8859-1, copied in UTF-8."""
    if not file.is_file():
        problem = f"there is no {file.name}"
        raise DataError(problem, file=file.parent, fix=f"{LINES} and {CONVERSATIONS} in one folder")
    raw = file.read_bytes()
    try:
        content = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        content = raw.decode("iso-8859-1")
    for number, line in enumerate(content.split("\n"), start=1):
        if line.strip():
            fields = [" ".join(field.split()) for field in line.split(BETWEEN.rstrip(), count - 1)]
            if len(fields) < count:
                raise DataError(
                    f"{len(fields)} fields where {count} are needed, '{BETWEEN.strip()}' between",
                    file=file,
                    line=number,
                )
            yield number, fields
