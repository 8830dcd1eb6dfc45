"""Tensors of a checkpoint in parts, read one by one, or only the block that a process needs."""

from __future__ import annotations

import math
import mmap
import os
import pickle
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from plmctl.core.errors import DataError
from plmctl.core.shares import is_shared
from plmctl.storage.parts.blocks import TensorBlock, block_of, target_like
from plmctl.storage.parts.metadata import read_metadata
from plmctl.storage.reading import COPY, blame_file, summarize_error

if TYPE_CHECKING:
    import torch
    from torch import Tensor

LINE = 64  # bytes: where a tensor in a buffer begins


class ShardedTensors(Mapping[str, "Tensor"]):
    """The tensors of a checkpoint below a prefix. Each access reads one tensor, so that no more
    than the caller keeps is in memory.

    Args:
        folder: The folder of the parts.
        prefix: The beginning of the names of these tensors; it is left out here.
        like: Names with DTensors of this process: only its block is read, into a new one.
        rows: The rows of tokens of padded tables, by whole names.
    """

    def __init__(
        self,
        folder: Path,
        prefix: str = "",
        *,
        like: Mapping[str, Tensor] | None = None,
        rows: Mapping[str, int] | None = None,
        fix: str = COPY,
    ) -> None:
        self.folder, self.prefix, self.fix = folder, prefix, fix
        self._like, self._rows = like or {}, rows or {}

    @cached_property
    def _metadata(self) -> Any:
        return read_metadata(self.folder, fix=self.fix)

    @cached_property
    def _names(self) -> dict[str, Any]:
        return {
            name.removeprefix(self.prefix): found
            for name, found in self._metadata.state_dict_metadata.items()
            if name.startswith(self.prefix)
        }

    def below(self, prefix: str) -> ShardedTensors:
        """The tensors below a further prefix, which is left out."""
        found = ShardedTensors(self.folder, self.prefix + prefix, fix=self.fix)
        found.__dict__["_metadata"] = self._metadata
        return found

    def placed(self, like: Mapping[str, Tensor], rows: Mapping[str, int]) -> ShardedTensors:
        """The same tensors, in the layout of the DTensors of `like` that have their shape."""
        found = ShardedTensors(self.folder, self.prefix, like=like, rows=rows, fix=self.fix)
        found.__dict__["_metadata"] = self._metadata
        return found

    @property
    def nbytes(self) -> int:
        """The bytes of all of them."""
        return sum(
            found.size.numel() * found.properties.dtype.itemsize for found in self._names.values()
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> Tensor:
        import torch

        found = self._names[name]
        like = self._like.get(name)
        if like is not None and is_shared(like):
            if found.properties.dtype != like.dtype:
                what = f"{name} is {found.properties.dtype} there, and {like.dtype} here"
                raise DataError(what, file=self.folder, fix="train.precision as in its config")
            rows = self._rows.get(f"{self.prefix}{name}")
            shape = like.shape if rows is None else (rows, *like.shape[1:])
            if tuple(found.size) == tuple(shape):
                made, block = target_like(like, rows)
                self._read({name: block})
                return made
        whole = torch.empty(found.size, dtype=found.properties.dtype)
        self._read({name: block_of(whole)})
        return whole

    def spread(self) -> dict[str, Tensor]:
        """All of them as mapped memory of a file without a name: the system may move them out of
        memory at any time. For readers that want all at once.

        Raises:
            DataError: The disk of temporary files has no room for them.
        """
        places, size = {}, 0
        for name, found in self._names.items():
            places[name] = size
            size += -(-found.size.numel() * found.properties.dtype.itemsize // LINE) * LINE
        if not size:
            return {name: self[name] for name in self}
        with tempfile.TemporaryFile() as file:
            try:
                _allocate(file, size)
            except OSError as error:
                what = f"{size:,} bytes in {tempfile.gettempdir()}: {error.strerror}"
                fix = "export TMPDIR=<a folder on a disk with room>"
                raise DataError(what, file=self.folder, fix=fix) from error
            memory = mmap.mmap(file.fileno(), size)
        made = {}
        for name, found in self._names.items():
            whole = view(memory, places[name], found.properties.dtype, tuple(found.size))
            self._read({name: block_of(whole)})
            made[name] = whole
        return made

    def _read(self, blocks: Mapping[str, TensorBlock]) -> None:
        """Fill blocks, by torch.distributed.checkpoint."""
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.api import CheckpointException

        some = {f"{self.prefix}{name}": block for name, block in blocks.items()}
        with blame_file(self.folder, "truncated or damaged", fix=self.fix), quiet():
            try:
                dcp.load(
                    dict(some),
                    storage_reader=_reader(self.folder, self._metadata, list(some)),
                    planner=_planner(),
                    no_dist=True,
                )
            except (CheckpointException, OSError, EOFError, pickle.UnpicklingError) as error:
                raise ValueError(summarize_error(_cause(error))) from error


def quiet() -> Any:
    """A context without the remark that no process group is used."""
    return warnings.catch_warnings(action="ignore", category=UserWarning)


def view(memory: mmap.mmap, place: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """A tensor in mapped memory, from byte `place` on."""
    import torch

    count = math.prod(shape)
    if not count:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(memory, dtype=dtype, count=count, offset=place).view(shape)


def _allocate(file: IO[bytes], size: int) -> None:
    """Take the room on the disk now: a map of a file without room ends the process later."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
    else:
        file.truncate(size)


def _cause(error: BaseException) -> BaseException:
    """The error of the one process that a CheckpointException reports."""
    failures = getattr(error, "failures", None) or {}
    return next((failure[0] for failure in failures.values()), error)


def _reader(folder: Path, metadata: Any, names: list[str]) -> Any:
    """A reader of torch.distributed.checkpoint for some tensors, whose list is read already."""
    from torch.distributed.checkpoint import FileSystemReader
    from torch.distributed.checkpoint.metadata import Metadata, StorageMeta

    some = {name: metadata.state_dict_metadata[name] for name in names}

    class Reader(FileSystemReader):
        def read_metadata(self, *given: Any, **more: Any) -> Metadata:
            return Metadata(
                some,
                storage_data=metadata.storage_data,
                storage_meta=StorageMeta(load_id=self.load_id),
            )

    return Reader(folder)


def _planner() -> Any:
    from torch.distributed.checkpoint import DefaultLoadPlanner

    class Planner(DefaultLoadPlanner):
        def set_up_planner(
            self, state_dict: Any, metadata: Any = None, is_coordinator: bool = False
        ) -> None:  # torch's own knows tensors only
            self.original_state_dict = self.state_dict = state_dict
            self.metadata, self.is_coordinator = metadata, is_coordinator

        def lookup_tensor(self, index: Any) -> Tensor:
            return self.state_dict[index.fqn].find(index)  # type: ignore[no-any-return]

        def load_bytes(self, item: Any, value: Any) -> None:
            raise ValueError(f"{item.dest_index.fqn} is no tensor")  # torch would unpickle it

    return Planner(flatten_state_dict=False, flatten_sharded_tensors=False)
