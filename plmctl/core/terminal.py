"""Output to a terminal: texts unchanged, except that characters which would control it are escaped.

`visible` escapes, `tell` prints results, `remark` logs a line, `screen` prints tables. Texts of
users (file names, lines of data, what a model writes) go through one of them: neither an escape
code nor square brackets mean anything there.

Everything except results goes through the logger "plmctl" of Python's `logging`, which writes plain
lines to standard error. A program may give it another level or other handlers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

# these change the direction of the letters
_DIRECTION = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
# surrogates: bytes of odd file names
_CONTROL = (*range(0x20), *range(0x7F, 0xA0), *_DIRECTION, *range(0xD800, 0xE000))
_ESCAPES = {code: f"\\u{code:04x}" for code in _CONTROL if chr(code) not in "\n\t"}


def visible(text: object) -> str:
    """`text` with control characters written `\\u001b`, as JSON spells them, so that JSON stays
    the same JSON.
    """
    return str(text).translate(_ESCAPES)


def counted(number: int, noun: str) -> str:
    """`1 document`, `2,000 documents`; also `2 entities`, `2 aliases`."""
    return f"{number:,} {noun if number == 1 else _to_plural(noun)}"


def _to_plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return noun + ("es" if noun.endswith("ias") else "s")


def tell(text: object, *, file: IO[str] | None = None, end: str = "\n") -> None:
    """Print a text, at once; by default to standard output."""
    print(visible(text), file=file, end=end, flush=True)


WIDE = 10_000  # columns of an output that is no terminal
WIDEST = 48  # letters of a key up to which meanings stand below each other in a pipe
LOGGER = logging.getLogger("plmctl")
DETAIL, REMARK, WARN, FAIL = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR


class _PlainLines(logging.Handler):
    """Writes each record to what standard error is by then; details with the time since the
    start.
    """

    def emit(self, record: logging.LogRecord) -> None:
        since = f"{record.relativeCreated / 1000:.1f} s: " if record.levelno <= DETAIL else ""
        tell(f"{since}{record.getMessage()}", file=sys.stderr)


if not LOGGER.handlers:  # a program may have given it some before
    LOGGER.addHandler(_PlainLines())
    LOGGER.propagate = False  # else whoever logs, too, would show each line twice
if LOGGER.level == logging.NOTSET:
    LOGGER.setLevel(REMARK)


def remark(text: object, level: int = REMARK) -> None:
    """Log a line, which standard error shows: a remark, or a DETAIL, WARN or FAIL."""
    LOGGER.log(level, "%s", visible(text))


@cache
def remark_once(text: str, level: int = REMARK) -> None:
    """Log a line the first time alone, since a command reads its files several times."""
    remark(text, level)


def hears(level: int = REMARK) -> bool:
    """Whether lines of this level are shown, so that a progress bar is wanted, too."""
    return LOGGER.isEnabledFor(level)


@contextlib.contextmanager
def hear(level: int) -> Iterator[None]:
    """Show lines of this level and above."""
    before = LOGGER.level
    LOGGER.setLevel(level)
    try:
        yield
    finally:
        LOGGER.setLevel(before)


@contextlib.contextmanager
def gather(level: int) -> Iterator[list[str]]:
    """Collect the lines of this level and above, which are shown as usual."""
    lines = list[str]()

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler = Lines(level)
    LOGGER.addHandler(handler)
    try:
        yield lines
    finally:
        LOGGER.removeHandler(handler)


@contextlib.contextmanager
def divert(log: IO[str]) -> Iterator[None]:
    """Write results and lines into a file; standard error shows warnings and errors, too."""

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            tell(record.getMessage(), file=log)

    copy, shown = Lines(), {handler: handler.level for handler in LOGGER.handlers}
    for handler, level in shown.items():
        handler.setLevel(max(level, WARN))
    LOGGER.addHandler(copy)
    try:
        with contextlib.redirect_stdout(log):
            yield
    finally:
        LOGGER.removeHandler(copy)
        for handler, level in shown.items():
            handler.setLevel(level)


def spell_level() -> list[str]:
    """The option that gives another process the level of this one; nothing for the usual one."""
    if not hears():
        return ["--quiet"]
    return ["--verbose"] if hears(DETAIL) else []


def screen(*, stderr: bool = False) -> Console:
    """A console for tables, bars and coloured lines, in which every text is `visible`."""
    from rich.console import Console
    from rich.table import Table

    class Screen(Console):
        # a pipe or a file has room for whole tables
        def print(self, *objects: Any, **settings: Any) -> None:
            before = self.width
            if any(isinstance(each, Table) for each in objects):
                self.width = _find_room(self)
            super().print(*objects, **settings)
            self.width = before

        # every text that is printed, a table's cells and titles too, becomes a `Text` here
        def render_str(self, text: str, **settings: Any) -> Text:  # type: ignore[override]
            return super().render_str(visible(text), **settings)

    return Screen(stderr=stderr, markup=False, highlight=False, emoji=False)


def _find_room(console: Console) -> int:
    """The columns that a table may take: those of a terminal, or that COLUMNS states, else any."""
    return console.width if console.is_terminal or "COLUMNS" in os.environ else WIDE


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table without a frame; long cells are folded, except those of the first column."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for index, name in enumerate(head):
        table.add_column(name, overflow="fold", no_wrap=index == 0, min_width=len(name))
    for row in rows:
        table.add_row(*row)
    screen().print(table)


def print_parts(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table without a frame whose cells stay whole. If it is wider than the screen, print
    several tables, each with the first column and as many others as fit.
    """
    from rich.cells import cell_len

    columns = list(zip(head, *rows, strict=True))
    widths = [max(map(cell_len, column)) + 2 for column in columns]
    for shown in _divide(widths, _find_room(screen())):
        print_table([head[n] for n in shown], [[row[n] for n in shown] for row in rows])


def _divide(widths: Sequence[int], room: int) -> list[list[int]]:
    """The columns of each part of a table: the first one, and as many others as fit."""
    parts = list[list[int]]()
    for number, width in enumerate(widths[1:], start=1):
        if not parts or sum(widths[n] for n in parts[-1]) + width > room - widths[0]:
            parts.append([])
        parts[-1].append(number)
    return [[0, *part] for part in parts or [[]]]


def print_columns(
    title: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, stderr: bool = False
) -> None:
    """Print a framed table with a title, whose columns of numbers follow one of names; where it is
    wider than the screen, as several, each with the names and as many others as fit.
    """
    from rich.cells import cell_len
    from rich.table import Table

    rows, console = [[*row] for row in rows], screen(stderr=stderr)
    columns = zip(head, *rows, strict=True)
    # the frame has three signs for each column, and one more behind the last
    widths = [max(map(cell_len, column)) + 3 for column in columns]
    for shown in _divide(widths, _find_room(console) - 1):
        table = Table(title=title)
        for index in shown:
            table.add_column(head[index], justify="right" if index else "left", overflow="fold")
        for row in rows:
            table.add_row(*(row[index] for index in shown))
        console.print(table)


def print_meanings(lines: Sequence[tuple[str, str]]) -> None:
    """Print keys, which are never broken, and their meanings, folded to the terminal; a pipe gets
    a line for each key.
    """
    from rich.table import Table

    console, longest = screen(), max((len(key) for key, _ in lines), default=0)
    if not console.is_terminal:
        for key, meaning in lines:
            tell(f"{key:<{min(longest, WIDEST)}}  {meaning}".rstrip())
        return
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True, overflow="ignore", min_width=longest)
    table.add_column(overflow="fold")
    for key, meaning in lines:
        table.add_row(key, meaning)
    console.print(table)
