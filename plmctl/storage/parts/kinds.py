"""The tensors in the folder of a checkpoint: one file for each kind, or parts of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from plmctl.storage.parts.metadata import METADATA
from plmctl.storage.parts.reading import ShardedTensors
from plmctl.storage.reading import COPY, read_tensors

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("model", "objective", "optimizer", "random")
WEIGHTS = "model.safetensors"
SHARDS = "shards"  # folder of the parts that the processes of a run have written
PARTED = f"{SHARDS}/{METADATA}"


def has_weights(folder: Path) -> bool:
    """Whether a folder has the weights of a checkpoint."""
    return any((folder / name).is_file() for name in (WEIGHTS, PARTED))


def read_kind(folder: Path, kind: str = "model", *, fix: str = COPY) -> Mapping[str, Tensor]:
    """The tensors of one of `KINDS`; those of parts are read one by one, at each access. A kind
    without a file has none, but the model needs its file.
    """
    if (folder / PARTED).is_file():
        return ShardedTensors(folder / SHARDS, f"{kind}/", fix=fix)
    file = folder / f"{kind}.safetensors"
    return read_tensors(file, fix=fix) if file.is_file() or kind == "model" else {}


def read_at_once(folder: Path, kind: str = "model", *, fix: str = COPY) -> dict[str, Tensor]:
    """The same, all together, in memory that the system can free: mapped files."""
    found = read_kind(folder, kind, fix=fix)
    return found.spread() if isinstance(found, ShardedTensors) else dict(found)


def measure_weights(folder: Path) -> int:
    """The bytes that the weights of a checkpoint take on the disk."""
    if (folder / PARTED).is_file():
        return ShardedTensors(folder / SHARDS, "model/").nbytes
    return (folder / WEIGHTS).stat().st_size
