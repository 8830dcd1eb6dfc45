"""Dialogues as numbered lines: Persona-Chat and ConvAI2.

    1 your persona: i have a dog.
    2 hi , how are you ?<tab>fine , i walk my dog .<tab><tab>one candidate|another
    3 nice .<tab>and you ?
    1 your persona: ...

The number 1 begins a dialogue.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from plmctl.core.errors import DataError
from plmctl.tasks.readers import files
from plmctl.text.inputs import need_lines
from plmctl.text.tabular import kind_of

OTHER, SELF = "partner", "self"  # who speaks in the first column, and in the second
_NUMBERED = re.compile(r"(\d{1,6}) (.*)", re.DOTALL)
_PERSONA = re.compile(r"(your|partner's) persona:\s*(.*)", re.IGNORECASE | re.DOTALL)
_SILENCE = "__SILENCE__"  # the other speaker has been silent so far


@dataclass
class NumberedDialogue:
    """One dialogue: what is known of the one who answers, and its turns (speaker, text)."""

    line: int
    persona: list[str] = field(default_factory=list)
    turns: list[tuple[str, str]] = field(default_factory=list)


def is_numbered(file: Path) -> bool:
    """Whether the first line of a text file begins with the number 1."""
    return kind_of(file) == ".txt" and files.read_start(file).startswith("1 ")


def read_numbered(file: Path) -> Iterator[NumberedDialogue]:
    """The dialogues of a file; the number 1 begins a new one."""
    current: NumberedDialogue | None = None
    expected = 1
    for line, text in need_lines(file):
        if not text.strip():
            continue
        match = _NUMBERED.fullmatch(text)
        if match is None:
            what = f"a line begins with its number, found {text[:40]!r}"
            raise DataError(what, file=file, line=line, fix="7 the turn <tab> the answer")
        number = int(match[1])
        if number not in (1, expected):
            what = f"number {number}, where {expected} follows, or 1 begins another dialogue"
            raise DataError(what, file=file, line=line, fix="whole dialogues")
        if number == 1:
            if current is not None:
                yield current
            current = NumberedDialogue(line)
        assert current is not None
        expected = number + 1
        _add(current, match[2], file, line)
    if current is not None:
        yield current


def _add(dialogue: NumberedDialogue, text: str, file: Path, line: int) -> None:
    if persona := _PERSONA.fullmatch(text):
        if persona[1].lower() == "your":
            dialogue.persona.append(" ".join(persona[2].split()))
        return
    said, *answer = (" ".join(cell.split()) for cell in text.split("\t")[:2])
    if not said or not answer or not answer[0]:
        what = "a turn, a tab and the answer are needed"
        raise DataError(f"{what}, found {text[:40]!r}", file=file, line=line)
    if said != _SILENCE:
        dialogue.turns.append((OTHER, said))
    dialogue.turns.append((SELF, answer[0]))
