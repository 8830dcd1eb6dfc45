"""Files that are written completely or not at all, whenever the process is stopped; a link, a
device or a pipe stays what it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from plmctl.core.errors import UsageError
from plmctl.storage.durable import sync
from plmctl.storage.gate import admit, open_file, own

UNFINISHED = re.compile(r"^\.(.+)\.\d+\.partial$")  # the name of a folder that is being written


@contextlib.contextmanager
def open_atomic(file: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """A stream ("w": UTF-8 text, "wb": bytes) that becomes `file` at the end; an old file stays
    until then. A folder that is missing is made.

    The target of a link is replaced; a device or a pipe is written to directly.
    """
    encoding = None if "b" in mode else "utf-8"
    if is_stream(admit(file)):
        with admit(file).open(mode, encoding=encoding) as stream:
            yield stream
        return
    target = end_of(file)
    admit(target.parent).mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    _remove_left(target)
    try:
        with name_written(file, partial):
            with open_file(partial, mode) as stream:
                yield stream
            os.replace(admit(partial), admit(target))
    finally:
        admit(partial).unlink(missing_ok=True)


@contextlib.contextmanager
def open_folder(target: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A new folder that becomes `target` at the end. With `overwrite` it replaces an earlier
    folder, otherwise an empty one.
    """
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    _remove_left(target, ".partial")
    try:
        admit(own(partial, ours=True)).mkdir(parents=True)
        yield partial
        if overwrite and target.is_dir():
            shutil.rmtree(admit(target))
        os.replace(admit(partial), admit(target))
        sync(target.parent)
    finally:
        shutil.rmtree(admit(partial), ignore_errors=True)


def _remove_left(target: Path, end: str = "") -> None:
    """Remove what killed processes of this machine have left on the way to `target`."""
    begin = f".{target.name}."
    with contextlib.suppress(OSError):
        names = [entry.name for entry in os.scandir(target.parent) if entry.name.startswith(begin)]
        for name in names:
            number = name.removeprefix(begin).removesuffix(end)
            if number.isdecimal() and name.endswith(end) and not lives(int(number)):
                left = target.with_name(name)
                shutil.rmtree(admit(left)) if end else admit(left).unlink()


def lives(process: int) -> bool:
    """Whether a process of this machine runs."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def name_finished(path: Path) -> Path:
    """A path inside of a folder by `open_folder`, as it is once that is complete."""
    return Path(*(UNFINISHED.sub(r"\1", part) for part in path.parts))


@contextlib.contextmanager
def name_written(file: Path, aside: Path) -> Iterator[None]:
    """If writing to `aside` fails, the error names `file`, the path that the user gave."""
    try:
        yield
    except OSError as error:
        # such as the error of a full disk
        unnamed = error.filename is None and error.errno is not None
        if unnamed or str(error.filename).startswith(str(aside)):
            error.filename, error.filename2 = str(file), None
        raise


def write_text(file: Path, text: str) -> None:
    """Write the text, completely or not at all."""
    with open_atomic(file) as stream:
        stream.write(text)


def write_bytes(file: Path, content: bytes) -> None:
    """Write the bytes, completely or not at all."""
    with open_atomic(file, "wb") as stream:
        stream.write(content)


def write_json(file: Path, record: Any) -> None:
    """Write JSON, completely or not at all."""
    write_text(file, json.dumps(record, indent=1))


def refuse_existing(file: Path, overwrite: bool) -> None:
    """Raise UsageError for a folder, and for an existing file without `overwrite`."""
    if file.is_dir():
        raise UsageError(f"{file} is a folder\n  fix: name a file in it")
    if file.exists() and not is_stream(file) and not overwrite:
        raise UsageError(f"{file} exists\n  fix: give another out=, or overwrite=true")


def is_stream(file: Path) -> bool:
    """Whether `file` is a device or a pipe, or leads to one: it cannot be replaced."""
    # /dev/stdout is one, whatever it leads to; /dev/shm has files
    path = str(file.absolute())
    named = path.startswith(("/dev/", "/proc/")) and not path.startswith("/dev/shm/")
    return file.exists() and not file.is_dir() and (named or not file.is_file())


def end_of(file: Path) -> Path:
    """The target of `file`, if it is a link, whether it exists or not."""
    return Path(os.path.realpath(file)) if file.is_symlink() else file
