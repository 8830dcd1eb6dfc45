"""Descriptions of errors of Python and torch about the machine: memory, space on a disk,
permission.
"""

from __future__ import annotations

import errno
import os

from plmctl.core.pasted import spell_fix

USERS_FILES = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.EFBIG,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.ENAMETOOLONG,
    errno.ELOOP,
}
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
BARRED = (errno.EACCES, errno.EPERM, errno.EROFS)
OTHER_PLACE = "another path, or the right to read and write there"
LESS_MEMORY = (
    "train.micro_batch_size=1, the same training in smaller pieces, or shorter rows"
    " (format.max_length, task.max_length), or train.checkpoint_activations=true"
)


def mend_writing(reason: str) -> str:
    """The remedy of a failed write, by the words of the system in `reason`; "" where they name no
    shortage.
    """
    means = {"free some space": FULL, "allow writing there": BARRED}
    found = (
        fix for fix, numbers in means.items() if any(os.strerror(n) in reason for n in numbers)
    )
    return next(found, "")


def describe_lack(error: BaseException) -> str:
    """A description of the shortage, with a fix if one is known; "" for any other error."""
    if isinstance(error, OSError) and error.errno in USERS_FILES:
        fix = "free some space, or write to another disk" if error.errno in FULL else OTHER_PLACE
        fix = "a name of at most 255 bytes" if error.errno == errno.ENAMETOOLONG else fix
        return f"{error.strerror}: {error.filename or 'while writing'}\n  fix: {spell_fix(fix)}"
    if not _is_lack_of_memory(error):
        return ""
    first = "".join(f": {line}" for line in str(error).strip().splitlines()[:1])
    return f"out of memory{first}\n  fix: {spell_fix(LESS_MEMORY)}"


def exit_code(error: BaseException) -> int:
    """2 for a name that no file can have, as for other wrong words of a command; else 1."""
    return 2 if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG else 1


def _is_lack_of_memory(error: BaseException) -> bool:
    """Whether Python or torch had no room; torch is not imported to ask."""
    named = type(error).__name__ == "OutOfMemoryError"
    return isinstance(error, MemoryError) or named or "can't allocate memory" in str(error)
