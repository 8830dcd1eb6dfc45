"""Arrays on disk: `.npy` files that grow piece by piece, with a hash of their content, and `.npz`
files of several arrays.
"""

from __future__ import annotations

import hashlib
import math
import os
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from plmctl.core.errors import DataError
from plmctl.core.tables import release
from plmctl.storage.atomic import open_atomic
from plmctl.storage.gate import open_file


class ArrayWriter:
    """Writes a one-dimensional `.npy` file; its header is written last, when the length is known.

    With a `length` the file exists already: it is cut to so many values and continued.
    """

    def __init__(self, file: Path, dtype: np.dtype[Any] | type, length: int | None = None) -> None:
        self.file, self.dtype, self.length = file, np.dtype(dtype), 0
        self._digest = hashlib.sha256()
        self._stream = open_file(file, "wb" if length is None else "r+b")
        self._write_header()
        if length is not None:
            self._continue_from(length)

    def append(self, values: np.ndarray) -> None:
        """Append values to the file."""
        data = np.ascontiguousarray(values, self.dtype)
        self._stream.write(data.data)
        self._digest.update(data.data)
        self.length += len(data)

    def flush(self) -> int:
        """Write everything to the operating system; the length, with which another writer
        continues.
        """
        self._stream.flush()
        return self.length

    def close(self) -> dict[str, Any]:
        """Close the file; the entry of the array in the manifest."""
        self._stream.seek(0)
        self._write_header()
        self._stream.close()
        return {"length": self.length, "dtype": self.dtype.name, "sha256": self._digest.hexdigest()}

    def _continue_from(self, length: int) -> None:
        end = self._stream.tell() + length * self.dtype.itemsize
        while left := end - self._stream.tell():
            self._digest.update(data := self._stream.read(min(left, 1 << 22)))
            if not data:
                raise ValueError(f"{self.file} is shorter than {length} values")
        os.ftruncate(self._stream.fileno(), end)
        self._stream.seek(end)
        self.length = length

    def _write_header(self) -> None:
        head = {
            "descr": npy.dtype_to_descr(self.dtype),
            "fortran_order": False,
            "shape": (self.length,),
        }
        npy.write_array_header_1_0(self._stream, head)


def walk(array: np.ndarray, size: int = 1 << 22) -> Iterator[np.ndarray]:
    """Yield an array in pieces of `size` rows; those of a mapped file leave memory again, so that a
    walk takes as much whatever the length.
    """
    for start in range(0, len(array), size):
        yield array[start : start + size]
        release(array)


def hash_array(array: np.ndarray) -> str:
    """The hash that `ArrayWriter` gives the same values."""
    digest = hashlib.sha256()
    for piece in walk(array):
        digest.update(np.ascontiguousarray(piece).data)
    return digest.hexdigest()


def write_npz(file: Path, arrays: Iterable[tuple[str, np.ndarray]]) -> None:
    """Write named arrays as an .npz that appears when it is complete; one array is in memory at a
    time. Its list has them by the numbers behind their names, those without a number last.
    """
    try:
        with (
            open_atomic(file, "wb") as stream,
            zipfile.ZipFile(_WriteOnly(stream), "w", allowZip64=True) as archive,
        ):
            for name, array in arrays:
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    npy.write_array(member, array, allow_pickle=False)
            archive.filelist.sort(key=_find_number)  # the list at the end is written by it
    except OSError as error:
        what, fix = f"cannot write: {error.strerror or error}", "out=<a writable file with room>"
        raise DataError(what, file=file, fix=fix) from error


def _find_number(member: zipfile.ZipInfo) -> float:
    number = member.filename.removesuffix(".npy").rpartition("_")[2]
    return int(number) if number.isdecimal() else math.inf


class _WriteOnly:
    """A stream without positions: a zip file then puts sizes behind its members, as a pipe and a
    device need it.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self.write, self.flush, self.close = stream.write, stream.flush, stream.close
