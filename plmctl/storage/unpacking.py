"""Files of data as a stream of bytes, packed or not. A file that holds nothing, or unpacks to far
more than anybody packed, is refused while it is read.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

from plmctl.core.errors import DataError

UNPACK: dict[str, Callable[[Any], Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
RATIO, FREE = 200, 1 << 26  # text packs to a tenth; bytes that may be unpacked in any case
HOLE = 1 << 26  # zero bytes in a row that were never written


def open_data(file: Path, unpack: Callable[[Any], Any] | None = None) -> BinaryIO:
    """Open a file of data, by `unpack` if it is packed; OSError if it cannot be read.

    Raises:
        DataError: The file is a hole without content, or, while it is read, it unpacks to more
            than `RATIO` times its size.
    """
    stream = file.open("rb")
    _refuse_hole(stream, file)
    if unpack is None:
        return stream
    return cast(BinaryIO, io.BufferedReader(_Bounded(unpack(stream), stream, file), 1 << 17))


class _Bounded(io.RawIOBase):
    """The unpacked content, up to a bound."""

    def __init__(self, unpacked: Any, packed: BinaryIO, file: Path) -> None:
        self._unpacked, self.packed, self._file = unpacked, packed, file
        self._left = max(FREE, RATIO * file.stat().st_size) if file.is_file() else 1 << 62

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        # one piece at a time, so that of a file that is cut off all before the end is read
        data = getattr(self._unpacked, "read1", self._unpacked.read)(len(buffer))
        count = len(data)
        buffer[:count] = data
        self._left -= count
        if self._left < 0:
            raise bomb_error(self._file)
        return count

    def close(self) -> None:
        self._unpacked.close()
        self.packed.close()
        super().close()


def bomb_error(file: Path) -> DataError:
    """The error for a file that was packed to fill a disk or a memory."""
    what = f"it unpacks to more than {RATIO} times its size"
    return DataError(what, file=file, fix="unpack it yourself, if it is what you want")


def refuse_bomb(file: Path) -> None:
    """Raise DataError for a zip file, such as an .npz, one of whose members unpacks to too much."""
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if member.file_size > max(FREE, RATIO * member.compress_size):
                raise bomb_error(file)


def _refuse_hole(stream: BinaryIO, file: Path) -> None:
    """DataError for a long stretch that was never written, which reads as zero bytes for hours."""
    try:
        size, begin = os.fstat(stream.fileno()).st_size, 0
        if size < HOLE:
            return
        begin = os.lseek(stream.fileno(), 0, os.SEEK_HOLE)
        end = size if begin >= size else _next_data(stream, begin, size)
    except OSError:  # a pipe, or a file system that does not state it
        return
    finally:
        if stream.seekable():
            stream.seek(0)
    if end - begin >= HOLE:
        what = f"{end - begin:,} bytes from byte {begin:,} on were never written"
        stream.close()
        raise DataError(what, file=file, fix="copy or download it again")


def _next_data(stream: BinaryIO, begin: int, size: int) -> int:
    try:
        return os.lseek(stream.fileno(), begin, os.SEEK_DATA)
    except OSError:  # nothing but the hole
        return size
