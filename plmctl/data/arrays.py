"""Arrays that grow on disk: `.npy` files written piece by piece, with a hash of their content."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy


class ArrayWriter:
    """A one-dimensional `.npy` file; its header is written last, when the length is known (its size does not change)."""

    def __init__(self, file: Path, dtype: np.dtype[Any] | type) -> None:
        self.file, self.dtype, self.length = file, np.dtype(dtype), 0
        self._digest = hashlib.sha256()
        self._stream = file.open("wb")
        self._header()

    def append(self, values: np.ndarray) -> None:
        data = np.ascontiguousarray(values, self.dtype)
        self._stream.write(data.data)
        self._digest.update(data.data)
        self.length += len(data)

    def close(self) -> dict[str, Any]:
        """What the manifest says of the array."""
        self._stream.seek(0)
        self._header()
        self._stream.close()
        return {"length": self.length, "dtype": self.dtype.name, "sha256": self._digest.hexdigest()}

    def _header(self) -> None:
        head = {"descr": npy.dtype_to_descr(self.dtype), "fortran_order": False, "shape": (self.length,)}
        npy.write_array_header_1_0(self._stream, head)


def sha256(array: np.ndarray) -> str:
    """The hash that `ArrayWriter` gives the same values."""
    digest = hashlib.sha256()
    for start in range(0, len(array), 1 << 22):
        digest.update(np.ascontiguousarray(array[start : start + (1 << 22)]).data)
    return digest.hexdigest()
