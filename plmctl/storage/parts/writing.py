"""The parts that the processes of a run write savers, each its own file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from plmctl.core.errors import PlmctlError
from plmctl.core.values import Whole
from plmctl.storage.gate import admit
from plmctl.storage.parts.blocks import TensorBlock
from plmctl.storage.parts.metadata import read_metadata
from plmctl.storage.parts.reading import _cause, quiet
from plmctl.storage.reading import summarize_error

if TYPE_CHECKING:
    from torch import Tensor


class FileEntry(TypedDict):
    """A file in the manifest of a checkpoint."""

    size: Whole
    sha256: str


def describe_file(path: Path) -> FileEntry:
    """The size and the SHA-256 of a file; OSError if it cannot be read."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"size": os.fstat(file.fileno()).st_size, "sha256": digest}


class Savers:
    """The processes of one save, with a group of their own. On the group of training, a save in the
    background and a sum of gradients could wait for each other.

    Args:
        group: The process group (gloo), or None for one process.
    """

    def __init__(self, group: Any | None = None, *, rank: int = 0, size: int = 1) -> None:
        self.group, self.rank, self.size = group, rank, size

    def exchange(self, value: Any) -> list[Any]:
        """The value of every process, by rank."""
        if self.group is None:
            return [value]
        import torch.distributed as dist

        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.group)
        return values


def save_blocks(
    blocks: Mapping[str, TensorBlock],
    folder: Path,
    savers: Savers,
    finish: Callable[[dict[str, FileEntry]], None],
) -> None:
    """Write the blocks of all processes into `folder`; when all of them are on the disk, the first
    process calls `finish` with the size and hash of every file.

    Raises:
        PlmctlError: On every process, with the reason, if one of them has failed.
    """
    entries, problem = _attempt(lambda: _write(blocks, folder, savers))
    found = savers.exchange((entries, problem))
    problems = [why for _, why in found if why]
    if not problems and savers.rank == 0:
        files = {name: entry for some, _ in found for name, entry in some.items()}
        # only a list that names all parts of every tensor is sealed
        _, problem = _attempt(lambda: finish(files) if read_metadata(folder) else None)
    problems += [why for why in savers.exchange(problem) if why]
    if problems:
        raise PlmctlError(problems[0])


def _attempt(work: Callable[[], Any]) -> tuple[Any, str]:
    """(its result, ""), or (None, why it failed)."""
    try:
        return work(), ""
    except Exception as error:  # whatever it is, other processes must learn of it
        cause = _cause(error)
        return None, getattr(cause, "strerror", None) or summarize_error(cause)


def _write(blocks: Mapping[str, TensorBlock], folder: Path, savers: Savers) -> dict[str, FileEntry]:
    """Write the own blocks; the own files by name, with their hashes."""
    import torch.distributed.checkpoint as dcp

    with quiet():
        dcp.save(
            dict(blocks),
            storage_writer=dcp.FileSystemWriter(admit(folder)),  # it syncs every file
            planner=_planner(),
            process_group=savers.group,
            no_dist=savers.group is None,
        )
    own = [file for file in folder.glob(f"__{savers.rank}_*") if file.is_file()]
    own += [file for file in folder.glob(".metadata") if savers.rank == 0]
    return {file.name: describe_file(file) for file in own}


def _planner() -> Any:
    from torch.distributed.checkpoint import DefaultSavePlanner

    class Planner(DefaultSavePlanner):
        def lookup_object(self, index: Any) -> Tensor:
            return self.state_dict[index.fqn].find(index)  # type: ignore[no-any-return]

    return Planner(flatten_state_dict=False, flatten_sharded_tensors=False)
