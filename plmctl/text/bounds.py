"""How much of a text is read at once: bounds that no text of people reaches, so that a damaged
file is refused early.
"""

from __future__ import annotations

import os

from plmctl.core.errors import ConfigError, DataError

LONGEST = "PLMCTL_LONGEST_LINE"  # the environment variable that allows more
WHOLE = 16  # so many such lines may a file have that is one value: SQuAD's JSON
BLANK = 1 << 20  # bytes of white space in a row


def longest_line() -> int:
    """Bytes that a line may have where it is read whole (a row, a pair, an example): 16 MiB
    unless the user says more.
    """
    given = os.environ.get(LONGEST, str(1 << 24))
    if not given.isdecimal() or int(given) < 1:
        raise ConfigError(LONGEST, given, "a number of bytes, 1 or more", fix=f"unset {LONGEST}")
    return int(given)


def too_long(file: object, line: int | None = None, *, times: int = 1) -> DataError:
    """What is said of a line, or with `times` of a file that is one value."""
    what = "the line" if times == 1 else "the file is one value and"
    fix = (
        "cut it into several, or allow more: export"
        f" {LONGEST}=<bytes{'' if times == 1 else f' / {times}'}>"
    )
    return DataError(
        f"{what} has more than {times * longest_line():,} bytes", file=file, line=line, fix=fix
    )


def too_blank(file: object, line: int) -> DataError:
    return DataError(
        f"nothing but white space for more than {BLANK:,} bytes up to here",
        file=file,
        line=line,
        fix="cut it out, or leave out this file",
    )
