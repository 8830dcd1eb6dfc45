"""Bounds on how much text is read at once. No ordinary text reaches them, so a damaged file is
refused early.
"""

from __future__ import annotations

import os

from plmctl.core.errors import ConfigError, DataError

LONGEST = "PLMCTL_LONGEST_LINE"  # the environment variable that allows more
FILE_LINES = 16  # a file that is one value, such as SQuAD's JSON, may be this many lines long
BLANK = 1 << 20  # bytes of white space in a row


def longest_line() -> int:
    """The most bytes of a line that is read in one piece (a row, a pair, an example): 16 MiB, or
    the environment variable `LONGEST`.
    """
    setting = os.environ.get(LONGEST, str(1 << 24))
    if not setting.isdecimal() or int(setting) < 1:
        raise ConfigError(LONGEST, setting, "a number of bytes, 1 or more", fix=f"unset {LONGEST}")
    return int(setting)


def long_line_error(file: object, line: int | None = None, *, times: int = 1) -> DataError:
    """The error for a line that is too long, or for a file that is one value (`times` > 1)."""
    what = "the line" if times == 1 else "the file is one value and"
    fix = (
        "cut it into several, or allow more: export"
        f" {LONGEST}=<bytes{'' if times == 1 else f' / {times}'}>"
    )
    return DataError(
        f"{what} has more than {times * longest_line():,} bytes", file=file, line=line, fix=fix
    )


def blank_text_error(file: object, line: int) -> DataError:
    """The error for white space without end: a damaged file, or a sparse one."""
    problem = f"nothing but white space for more than {BLANK:,} bytes up to here"
    return DataError(problem, file=file, line=line, fix="cut it out, or leave out this file")
