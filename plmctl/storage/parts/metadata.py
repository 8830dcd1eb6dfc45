"""The list of tensors of torch.distributed.checkpoint, `.metadata`, read without its code.

The file is a pickle, which may run any code of its writer. Here no name in it is looked up: records
stand for its objects, they are checked, and new objects are made of them.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from plmctl.core.errors import DataError
from plmctl.storage.paths import explain_outside
from plmctl.storage.reading import COPY, blame_file, read_bytes, summarize_error

METADATA = ".metadata"
_ROOM = "torch.distributed.checkpoint."
_RECORDS = {
    *(f"{_ROOM}metadata.{name}" for name in ("Metadata", "MetadataIndex", "StorageMeta")),
    *(f"{_ROOM}metadata.{name}" for name in ("TensorProperties", "_MEM_FORMAT_ENCODING")),
    *(f"{_ROOM}metadata.{name}" for name in ("TensorStorageMetadata", "ChunkStorageMetadata")),
    f"{_ROOM}filesystem._StorageInfo",
}


class _Record:
    """An object of torch, as the values that it is made from."""

    def __init__(self, *arguments: Any) -> None:
        self.state: Any = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    """Reads records, sizes and types of numbers; UnpicklingError for any other name."""

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content))
        # a pickle may change the classes that it names: these are of this reading alone
        self._classes: dict[str, Any] = {}

    def find_class(self, module: str, name: str) -> Any:
        import torch

        full = f"{module}.{name}"
        if full in _RECORDS:
            return self._classes.setdefault(full, type(name, (_Record,), {}))
        if full == "torch.Size":
            return _tuple
        if full == "builtins.getattr":
            return _member
        if full == "torch.serialization._get_layout" or full.startswith("pathlib."):
            return _ignore
        found = getattr(torch, name, None) if module == "torch" and "." not in name else None
        if isinstance(found, torch.dtype):
            return found
        raise _refuse(full)


def _refuse(name: str) -> pickle.UnpicklingError:
    return pickle.UnpicklingError(f"names {name}, which is not read: it may run any code")


def _member(owner: Any = None, name: Any = None, *rest: Any) -> Any:
    """A member of an enumeration, as Python 3.11.0 to 3.11.3 write it; of a record alone."""
    if rest or not (isinstance(owner, type) and issubclass(owner, _Record)):
        raise _refuse("builtins.getattr")
    return owner(name)


def _tuple(values: Any = ()) -> tuple[Any, ...]:
    return tuple(values)


def _ignore(*given: Any) -> None:
    return None


def read_metadata(folder: Path, *, fix: str = COPY) -> Any:
    """The `Metadata` of the checkpoint in a folder.

    Raises:
        DataError: The file is damaged, names anything but tensors, or a file outside the folder.
    """
    file = folder / METADATA
    content = read_bytes(file, fix=fix)
    with blame_file(file, "damaged, or no list of tensors", fix=fix):
        try:
            found = _Unpickler(content).load()
        except (pickle.UnpicklingError, EOFError, RecursionError) as error:
            raise ValueError(summarize_error(error)) from error
        return _build(_state(found, "Metadata"), lambda name: _check_file(folder, name, file, fix))


def _build(state: Mapping[str, Any], check: Callable[[str], None]) -> Any:
    from torch.distributed.checkpoint.filesystem import _StorageInfo
    from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex

    tensors = {_text(name): _tensor(each) for name, each in state["state_dict_metadata"].items()}
    storage = {}
    for record, place in state["storage_data"].items():
        index, info = _state(record, "MetadataIndex"), _state(place, "_StorageInfo")
        if info.get("transform_descriptors"):
            raise ValueError("its files are packed")
        check(_text(info["relative_path"]))
        key = MetadataIndex(
            _text(index["fqn"]), _sizes(index["offset"]), _whole(index["index"] or 0)
        )
        storage[key] = _StorageInfo(
            info["relative_path"], _whole(info["offset"]), _whole(info["length"])
        )
    for name, tensor in tensors.items():
        if any(MetadataIndex(name, chunk.offsets) not in storage for chunk in tensor.chunks):
            raise ValueError(f"a part of {name} lies in no file")
        if sum(chunk.sizes.numel() for chunk in tensor.chunks) != tensor.size.numel():
            raise ValueError(f"the parts of {name} are not all of it")
    return Metadata(tensors, storage_data=storage)


def _tensor(record: Any) -> Any:
    import torch
    from torch.distributed.checkpoint.metadata import (
        ChunkStorageMetadata,
        TensorProperties,
        TensorStorageMetadata,
    )

    state = _state(record, "TensorStorageMetadata")
    dtype = _state(state["properties"], "TensorProperties")[0]
    if not isinstance(dtype, torch.dtype):
        raise ValueError("the type of a tensor is none")
    size = _sizes(state["size"])
    chunks = [_state(chunk, "ChunkStorageMetadata") for chunk in state["chunks"]]
    made = [ChunkStorageMetadata(_sizes(c["offsets"]), _sizes(c["sizes"])) for c in chunks]
    if any(len(chunk.offsets) != len(size) or len(chunk.sizes) != len(size) for chunk in made):
        raise ValueError("a part of a tensor has another number of dimensions")
    return TensorStorageMetadata(TensorProperties(dtype=dtype), size, made)


def _state(record: Any, name: str) -> Any:
    """The content of a record of this name."""
    if not isinstance(record, _Record) or type(record).__name__ != name:
        raise ValueError(f"holds another object than a {name}")
    return record.state


def _sizes(values: Any) -> Any:
    import torch

    return torch.Size([_whole(value) for value in values])


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("a number is not whole")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError("a name is no text")
    return value


def _check_file(folder: Path, name: str, file: Path, fix: str) -> None:
    if why := explain_outside(folder, name):
        raise DataError(f"names the file {name!r}: {why}", file=file, fix=fix)
