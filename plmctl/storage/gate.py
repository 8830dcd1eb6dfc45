"""The gate of all writes: nothing in plmctl makes, changes, moves or removes a file around `admit`.

A folder that plmctl fills, or was given to go on with, may come from somebody else. A link in it
would lead a write to a file that nobody named. `own` marks such folders; `admit` refuses links
below them. A folder itself may be a link, and lie behind links: its user named it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import stat
from pathlib import Path
from typing import IO, Any

from plmctl.core.errors import DataError

_owned: set[str] = set()


def own(folder: Path, *, ours: bool = False) -> Path:
    """Mark `folder`: from now on no write of this process follows a link in it; returns it.

    Args:
        ours: Its name is one that plmctl gives, so that it is no link itself.
    """
    if ours and folder.is_symlink():
        raise _refusal(folder, folder.parent, link=True)
    _owned.update((os.path.abspath(folder), os.path.realpath(folder)))
    return folder


def admit(path: Path) -> Path:
    """`path`, to which something is about to be done.

    Raises:
        DataError: If the path, or a part of it below a folder that `own` has marked, is a link, a
            pipe or a device.
    """
    place = Path(os.path.abspath(path))
    chain = (place, *place.parents)
    root = max((n for n, above in enumerate(chain) if str(above) in _owned), default=0)
    for part in reversed(chain[:root]):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            kind = part.lstat().st_mode
            if stat.S_ISLNK(kind) or not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
                raise _refusal(part, chain[root], link=stat.S_ISLNK(kind))
    return path


def open_file(file: Path, mode: str, encoding: str | None = None) -> IO[Any]:
    """Open an admitted file for writing, which is no link; a file with a second name elsewhere (a
    hard link) becomes a copy first, so that the other one stays as it is.
    """
    admit(file)
    if encoding is None and "b" not in mode:
        encoding = "utf-8"
    if "x" not in mode and file.is_file() and file.stat().st_nlink > 1:
        copy = file.with_name(f".{file.name}.{os.getpid()}")
        shutil.copy2(file, copy)
        os.replace(copy, file)
    return open(file, mode, encoding=encoding, opener=_open_no_link)


def _open_no_link(file: str, flags: int) -> int:
    return os.open(file, flags | os.O_NOFOLLOW, 0o666)


def _refusal(part: Path, root: Path, *, link: bool) -> DataError:
    what = f"a link to {os.readlink(part)}" if link else "neither a file nor a folder"
    copy = ["cp", "-rL", str(root), f"{root}-copy"] if link else ["rm", str(part)]
    problem = f"{what}, and plmctl writes through none inside a folder that it fills"
    return DataError(problem, file=part, fix=shlex.join(copy))
