"""Files of `torch.save`, read without executing a pickle: of the globals that they name, tensors
and ordered dictionaries are made by functions of this module. Settings of fairseq become records
without behaviour. Every other name raises an error, and nothing is imported.

Both layouts are read: a zip file with `data.pkl` and a file for each storage, and the stream of
PyTorch before 1.6. A storage is read when a tensor of it is.
"""

from __future__ import annotations

import io
import math
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from plmctl.core.errors import DataError
from plmctl.storage.reading import blame_file

AGAIN = "download it again"
DTYPES = {
    f"{name}Storage": dtype
    for name, dtype in {
        "Float": torch.float32,
        "Half": torch.float16,
        "BFloat16": torch.bfloat16,
        "Double": torch.float64,
        "Long": torch.int64,
        "Int": torch.int32,
        "Short": torch.int16,
        "Char": torch.int8,
        "Byte": torch.uint8,
        "Bool": torch.bool,
    }.items()
}
# packages whose classes hold settings, and names that are values in them
RECORDS = ("argparse.Namespace", "omegaconf.", "fairseq.")
PLAIN = (
    *("typing.Any", "collections.defaultdict", "builtins.dict", "builtins.list"),
    *("builtins.int", "builtins.float", "builtins.str", "builtins.bool"),
)
MAGIC = 0x1950A86A20F9469CFC6C  # the first value of the old stream
VERSION = 1001  # the second one


class SavedRecord:
    """An object of settings without its behaviour."""

    def __init__(self, *args: Any) -> None:
        self.values: dict[Any, Any] = {}

    def __setstate__(self, state: Any) -> None:  # without __init__ before it
        self.values = dict(state) if isinstance(state, Mapping) else {}

    def __setitem__(self, key: Any, value: Any) -> None:
        self.values[key] = value

    def append(self, item: Any) -> None:
        """An item of a list; it is not kept."""

    def extend(self, items: Any) -> None:
        """Items of a list; they are not kept."""


@dataclass(frozen=True)
class Storage:
    """The numbers of one or several tensors in the file.

    Args:
        dtype: The type of its numbers.
    """

    key: str
    dtype: torch.dtype
    count: int


@dataclass(frozen=True)
class StoredTensor:
    """A view of a storage."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


def _rebuild_tensor(
    storage: Storage, offset: int, shape: Sequence[int], stride: Sequence[int], *rest: Any
) -> StoredTensor:
    if not isinstance(storage, Storage):
        raise pickle.UnpicklingError("a tensor without a storage")
    return StoredTensor(storage, int(offset), tuple(map(int, shape)), tuple(map(int, stride)))


def _take_data(data: Any, *rest: Any) -> Any:
    return data


FUNCTIONS: Mapping[str, Any] = {
    "collections.OrderedDict": OrderedDict,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils._rebuild_parameter": _take_data,
}


class Restricted(pickle.Unpickler):
    """A reader of pickles that finds no global but those of this module."""

    def find_class(self, module: str, name: str) -> Any:
        whole = f"{module}.{name}"
        if whole in FUNCTIONS:
            return FUNCTIONS[whole]
        if module == "torch" and name in DTYPES:
            return DTYPES[name]
        if whole.startswith(RECORDS) or whole in PLAIN:
            return SavedRecord
        raise pickle.UnpicklingError(f"it names {whole}, and a pickle may run any code")

    def persistent_load(self, pid: Any) -> Storage:
        kind, dtype, key, _, count, *view = pid
        if kind != "storage" or not isinstance(dtype, torch.dtype) or (view and view[0]):
            raise pickle.UnpicklingError(f"it has an object of the kind {kind!r}")
        return Storage(str(key), dtype, int(count))


@dataclass(frozen=True)
class Pickled:
    """The content of a file, whose tensors are `StoredTensor`.

    Args:
        content: Its object.
    """

    file: Path
    content: Any
    read_storage: Callable[[Storage], bytes]

    def read(self, tensors: Mapping[str, Any]) -> dict[str, Tensor]:
        """The tensors among some values; DataError for one beyond the end of its storage."""
        found: dict[str, Tensor] = {}
        storages: dict[str, Tensor] = {}
        with blame_file(self.file, "truncated or damaged", fix=AGAIN):
            for name, stored in tensors.items():
                if not isinstance(stored, StoredTensor):
                    continue
                storage = stored.storage
                if storage.key not in storages:
                    storages[storage.key] = self._read(storage)
                found[name] = _view(storages[storage.key], stored, name)
        return found

    def _read(self, storage: Storage) -> Tensor:
        content = self.read_storage(storage)
        if len(content) != storage.count * storage.dtype.itemsize:
            raise ValueError(f"the storage {storage.key} has {len(content)} bytes")
        if not content:
            return torch.zeros(0, dtype=storage.dtype)
        return torch.frombuffer(bytearray(content), dtype=storage.dtype)


def _view(numbers: Tensor, stored: StoredTensor, name: str) -> Tensor:
    sizes = (*stored.shape, *stored.stride, stored.offset)
    reach = sum((n - 1) * step for n, step in zip(stored.shape, stored.stride, strict=True))
    end = stored.offset + reach + 1 if math.prod(stored.shape) else 0
    if min(sizes, default=0) < 0 or end > len(numbers):
        raise ValueError(f"{name} reaches beyond its numbers")
    return numbers.as_strided(stored.shape, stored.stride, stored.offset).contiguous()


def read_pickled(file: Path) -> Pickled:
    """The content of a file of `torch.save`; DataError for one that names other code."""
    try:
        with blame_file(file, "not read", fix=AGAIN):
            _refuse_part(file)
            return _read_zip(file) if zipfile.is_zipfile(file) else _read_stream(file)
    except (pickle.UnpicklingError, EOFError, zipfile.BadZipFile, struct.error) as error:
        what = f"it is not read: {str(error) or 'it is cut short'}"
        fix = "save the tensors alone, as safetensors"
        raise DataError(what, file=file, fix=fix) from error
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", file=file, fix=AGAIN) from error


def _refuse_part(file: Path) -> None:
    """DataError for a file without its end: that of a zip file has the list of its parts."""
    with file.open("rb") as stream:
        begin = stream.read(4)
    if not begin:
        raise DataError("it is empty", file=file, fix=AGAIN)
    if begin == b"PK\x03\x04" and not zipfile.is_zipfile(file):
        raise DataError("it is cut off: its end is missing", file=file, fix=AGAIN)


def _read_zip(file: Path) -> Pickled:
    with zipfile.ZipFile(file) as found:
        names = [name for name in found.namelist() if name.endswith("/data.pkl")]
        if len(names) != 1:
            raise pickle.UnpicklingError("it has no data.pkl")
        home = names[0].removesuffix("data.pkl")
        if f"{home}byteorder" in found.namelist() and found.read(f"{home}byteorder") != b"little":
            raise pickle.UnpicklingError("its numbers begin with the highest byte")
        content = Restricted(io.BytesIO(found.read(names[0])), encoding="utf-8").load()

    def read_storage(storage: Storage) -> bytes:
        with zipfile.ZipFile(file) as found:
            return found.read(f"{home}data/{storage.key}")

    return Pickled(file, content, read_storage)


def _read_stream(file: Path) -> Pickled:
    with file.open("rb") as stream:
        first, version, system = (_load(stream) for _ in range(3))
        if first != MAGIC or version != VERSION or not system.get("little_endian", True):
            raise pickle.UnpicklingError("it is no file of torch.save that plmctl reads")
        content, keys = _load(stream), _load(stream)
        places, sizes = {}, _find_sizes(content)
        for key in keys:
            (count,) = struct.unpack("<q", stream.read(8))
            width = sizes.get(str(key))
            if width is None:
                raise pickle.UnpicklingError(f"the storage {key} has no tensor")
            places[str(key)] = stream.tell()
            stream.seek(count * width, io.SEEK_CUR)

    def read_storage(storage: Storage) -> bytes:
        with file.open("rb") as stream:
            stream.seek(places[storage.key])
            return stream.read(storage.count * storage.dtype.itemsize)

    return Pickled(file, content, read_storage)


def _load(stream: BinaryIO) -> Any:
    return Restricted(stream, encoding="utf-8").load()


def _find_sizes(content: Any) -> dict[str, int]:
    """{key: bytes of a number} of all storages in an object."""
    sizes: dict[str, int] = {}
    waiting, seen = [content], set()
    while waiting:
        each = waiting.pop()
        if isinstance(each, StoredTensor):
            sizes[each.storage.key] = each.storage.dtype.itemsize
        elif id(each) not in seen:
            seen.add(id(each))
            inner = each.values if isinstance(each, SavedRecord) else each
            if isinstance(inner, Mapping):
                waiting += inner.values()
            elif isinstance(inner, list | tuple | set):
                waiting += inner
    return sizes
