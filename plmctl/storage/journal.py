"""Support for long writes that survive a kill: a scratch folder next to the target, with a journal
of the finished work.

    .<name>.partial/
        journal.json
        lock
        tokens/         the folder to be, renamed when complete
        and what only the way there needs
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from plmctl.core.errors import DataError, UsageError
from plmctl.storage.durable import settle, sync
from plmctl.storage.gate import admit, open_file, own
from plmctl.storage.paths import explain_outside
from plmctl.storage.reading import parse_json

FILE, _LOCK = "journal.json", "lock"
Tell = Callable[[str], None]  # a line that the user should keep


def ignore_line(line: str) -> None:
    """Ignore the line."""


class Journal:
    """The finished work of `job`: `state` grows by `commit`, and a kill at any moment leaves the
    state of the last one.

    After it, a process repeats only its work since then. Files may be longer than the state knows:
    their writer cuts them.
    """

    def __init__(self, scratch: Path, job: Mapping[str, Any]) -> None:
        self.scratch, self.folder, self.job = scratch, scratch / "tokens", job
        self.state: dict[str, Any] = {}

    def commit(self, **done: Any) -> None:
        """Add `done` to the state once all that was written (and flushed) is on the disk itself."""
        self.state |= done
        sizes = {str(file.relative_to(self.scratch)): file.stat().st_size for file in self._files()}
        _sync_all(self.scratch)
        text = json.dumps({"job": self.job, "state": self.state, "bytes": sizes})
        new = self.scratch / f"{FILE}.new"
        with open_file(new, "w") as stream:
            stream.write(text)
            settle(stream)
        admit(new).replace(admit(self.scratch / FILE))
        sync(self.scratch)

    def finish(self, place: Path, *, replace: bool = True) -> None:
        """Give the folder its name; an earlier one of that name goes only when this one is
        complete on the disk.

        Args:
            replace: Whether an earlier folder is replaced; else OSError is raised.
        """
        _sync_all(self.folder)
        if replace and place.exists():
            admit(place).rename(admit(self.scratch / "old"))
        admit(self.folder).rename(admit(place))
        sync(place.parent)

    def take_up(self, place: Path, tell: Tell) -> None:
        """Continue the work that an earlier process has left of the same job, or clear away its
        remains of another job.
        """
        if (old := self.scratch / "old").exists() and not place.exists():
            admit(old).rename(admit(place))  # killed between the two renames
        left = _read(self.scratch / FILE)
        if (
            left is not None
            and json.loads(json.dumps(self.job)) == left["job"]
            and self._has(left["bytes"])
        ):
            self.state = left["state"]
            tell(f"{place}: an earlier start was stopped; going on from there")
        else:
            if left is not None:
                changed = differences(left["job"], self.job) or ["its files are damaged"]
                tell(
                    f"{place}: starting afresh, an unfinished start does not fit"
                    f" ({'; '.join(changed[:3])})"
                )
            self.clear()
        admit(self.folder).mkdir(exist_ok=True)

    def clear(self) -> None:
        for file in self.scratch.iterdir():
            if file.is_dir():
                shutil.rmtree(admit(file))
            elif file.name != _LOCK:
                admit(file).unlink()

    def _files(self) -> list[Path]:
        return [
            file
            for file in sorted(self.scratch.rglob("*"))
            if file.is_file() and file.parent.name != "old"
        ]

    def _has(self, sizes: Mapping[str, int]) -> bool:
        """Whether every file is there and as long as it was at the commit."""
        files = [
            (name, self.scratch / name, size)
            for name, size in sizes.items()
            if not name.startswith((FILE, _LOCK))
        ]
        return all(
            not explain_outside(self.scratch, name)
            and file.is_file()
            and file.stat().st_size >= size
            for name, file, size in files
        )


@contextlib.contextmanager
def open_journal(
    place: Path,
    job: Mapping[str, Any],
    *,
    wait: bool = False,
    tell: Tell = ignore_line,
    machine: str = "",
) -> Iterator[Journal]:
    """The journal of the future file or folder `place`, for one process at a time; another process
    is refused, or made to `wait`.

    Locks may not hold between machines. Where several write to one `place`, each has a journal of
    its own, named by `machine`.

    The scratch folder is removed in the end. It stays if a part of the work is done and the
    interruption (a signal, a full disk) is no fault of the text or the settings.
    """
    scratch = own(_find_scratch(place, machine), ours=True)
    journal, lock, keep = Journal(scratch, job), None, False
    try:
        lock = _lock(scratch, place, wait, tell)
        journal.take_up(place, tell)
        yield journal
    except OSError as error:
        keep = bool(journal.state)
        kept = "; what is done is kept, the same command goes on from there" if keep else ""
        problem = f"cannot be written ({error.strerror}){kept}"
        fix = "free some space, or give another folder (out=, data.cache_dir=)"
        raise DataError(problem, file=place, fix=fix) from error
    except (UsageError, DataError):
        raise
    except BaseException:
        keep = bool(journal.state)
        raise
    finally:
        if lock is not None:
            if not keep:
                shutil.rmtree(admit(scratch), ignore_errors=True)
            lock.close()


def read_left(place: Path) -> dict[str, Any] | None:
    """The journal of a stopped job on the way to `place`: its "job" and "state"; None without
    one.
    """
    return _read(_find_scratch(place) / FILE)


def has_left(place: Path) -> bool:
    """Whether there are files of a stopped job on the way to `place`."""
    return _find_scratch(place).is_dir()


def _find_scratch(place: Path, machine: str = "") -> Path:
    return place.with_name(f".{place.name}{machine and '.'}{machine}.partial")


def differences(old: Any, new: Any, path: str = "") -> list[str]:
    """`path: old -> new` for every leaf that differs."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = dict.fromkeys([*old, *new])
        return [
            d
            for key in keys
            for d in differences(old.get(key), new.get(key), f"{path}.{key}" if path else str(key))
        ]
    if old == new:
        return []
    shown = [json.dumps(value, ensure_ascii=False) for value in (old, new)]
    return [f"another {path}" if max(map(len, shown)) > 60 else f"{path}: {shown[0]} -> {shown[1]}"]


def _lock(scratch: Path, place: Path, wait: bool, tell: Tell) -> IO[Any]:
    """Record locks end with their process and do not pass to its children, so a killed one never
    stands in the way.
    """
    while True:
        admit(scratch).mkdir(parents=True, exist_ok=True)
        file = open_file(scratch / _LOCK, "w")
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            if not wait:
                file.close()
                raise UsageError(
                    f"out={str(place)!r}: another process is writing it\n  fix: wait for it"
                ) from None
            tell(f"{place}: another process is making it; waiting")
            fcntl.lockf(file, fcntl.LOCK_EX)
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(file.fileno()), (scratch / _LOCK).stat()):
                return file
        file.close()  # the folder that it was in is finished and gone


def _read(file: Path) -> dict[str, Any] | None:
    try:
        left = parse_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        left = None
    whole = isinstance(left, dict) and {"job", "state", "bytes"} <= left.keys()
    return left if whole else {"job": {}, "state": {}, "bytes": {}}


def _sync_all(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        if path.name != _LOCK:  # closing it anywhere in this process would give the lock up
            sync(path)
