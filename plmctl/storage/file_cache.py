"""A folder of downloaded files of bounded size. The file without a read for the longest time goes
first.

Files are named by the hash of their content. All processes of a machine share the folder: a lock
for each file, so that one of them downloads it, and one for the room.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from plmctl.core.errors import DataError
from plmctl.storage.atomic import lives
from plmctl.storage.durable import settle
from plmctl.storage.gate import admit, open_file, own

_END, _PARTIAL, _LOCK = ".file", ".partial", ".lock"
# locks of files are of a process: its threads have these
_THREADS: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
Download = Callable[[IO[bytes]], None]


class FileCache:
    """Downloaded files.

    Args:
        folder: The folder, which nothing else uses.
        limit: Bytes that all files may take together.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self.limit = own(folder), limit

    def get(self, name: str, size: int, sha256: str, download: Download) -> Path:
        """The file with this content, from the folder or downloaded.

        Args:
            name: The name of its source, for messages.
            size: Its bytes.
            sha256: The hash of its content.
            download: Writes its content to a stream.

        Raises:
            DataError: The source has another content, or the folder cannot be written.
        """
        file = self.folder / f"{sha256}{_END}"
        if not self._has(file, size):
            try:
                admit(self.folder).mkdir(parents=True, exist_ok=True)
                with self._lock(sha256):
                    if not self._has(file, size):
                        self._download(name, file, size, sha256, download)
            except OSError as error:
                what = f"cannot be kept ({error.strerror or error})"
                fix = "# free some space, or a smaller data.cache_size, or another data.cache_dir"
                raise DataError(what, file=self.folder, fix=fix) from error
        return file

    def _has(self, file: Path, size: int) -> bool:
        """Whether the folder has a file, which then counts as read now."""
        with contextlib.suppress(OSError):
            if file.stat().st_size == size:
                os.utime(admit(file))
                return True
        return False

    def _download(self, name: str, file: Path, size: int, sha256: str, download: Download) -> None:
        partial = file.with_name(f"{file.name}.{os.getpid()}{_PARTIAL}")
        try:
            with self._lock("room"):
                self._make_room(size)
                with open_file(partial, "wb") as stream:
                    _reserve(stream, size)
            for _ in range(2):  # a line may turn a bit; a changed file stays changed
                with open_file(partial, "r+b") as stream:
                    download(stream)
                    settle(stream)
                with partial.open("rb") as stream:
                    found = hashlib.file_digest(stream, "sha256").hexdigest()
                if found == sha256:
                    break
            else:
                what = (
                    f"sha256 {found[:16]}..., not {sha256[:16]}... as in the manifest: the file"
                    " has changed, or was written in part"
                )
                raise DataError(what, file=name, fix="# copy all files of the folder there again")
            os.replace(admit(partial), admit(file))
        finally:
            admit(partial).unlink(missing_ok=True)

    def _make_room(self, size: int) -> None:
        """Remove the files that were not read for the longest time. Processes that have mapped one
        keep it until they are done.
        """
        known = []
        for file in self.folder.iterdir():
            if file.name.endswith(_PARTIAL) and not lives(int(file.name.split(".")[-2])):
                admit(file).unlink(missing_ok=True)
            elif file.name.endswith((_END, _PARTIAL)):
                with contextlib.suppress(FileNotFoundError):
                    known.append((file.stat().st_mtime_ns, file.stat().st_size, file))
        taken = sum(own for _, own, _ in known)
        for _, bytes_of_it, file in sorted(known):
            if taken + size <= self.limit:
                break
            if file.name.endswith(_END):
                admit(file).unlink(missing_ok=True)
                admit(file.with_name(file.name.removesuffix(_END) + _LOCK)).unlink(missing_ok=True)
                taken -= bytes_of_it

    @contextlib.contextmanager
    def _lock(self, name: str) -> Iterator[None]:
        """One process, and one thread of it, at a time."""
        place = self.folder / f"{name}{_LOCK}"
        with _THREADS[str(place)]:
            while True:
                file = open_file(place, "w")
                fcntl.lockf(file, fcntl.LOCK_EX)
                with contextlib.suppress(OSError):
                    if os.path.samestat(os.fstat(file.fileno()), place.stat()):
                        break
                file.close()  # removed meanwhile
            try:
                yield
            finally:
                file.close()


def _reserve(stream: IO[bytes], size: int) -> None:
    """Take the room of a file at once, so that others see it, and a full disk is known before the
    download.
    """
    if size and hasattr(os, "posix_fallocate"):
        os.posix_fallocate(stream.fileno(), 0, size)
