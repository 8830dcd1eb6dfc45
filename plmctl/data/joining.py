"""The arrays of a split that were written in parts, joined."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from plmctl.core.errors import DataError
from plmctl.data.shards import COUNTS
from plmctl.storage.arrays import ArrayWriter, walk
from plmctl.storage.reading import read_array

OFFSETS = {"sentences": "tokens", "documents": "sentences"}  # arrays that begin with a 0


class DamagedPart(Exception):
    """The number of a part whose arrays are not those of its record, and the reason."""

    def __init__(self, part: int, why: str) -> None:
        super().__init__(part, why)
        self.part, self.why = part, why


def join_arrays(
    folder: Path, split: str, parts: Sequence[tuple[Path, dict[str, Any]]]
) -> dict[str, Any]:
    """Write the arrays of a split into `folder`, each that of all parts in their order; a piece is
    in memory at a time.

    Args:
        parts: The folder of each part, and its entry of the split.

    Returns:
        The entry of the split in the manifest.
    """
    entries: dict[str, Any] = {}
    for name, stated in parts[0][1]["arrays"].items():
        writer = ArrayWriter(folder / f"{split}.{name}.npy", np.dtype(stated["dtype"]))
        before = 0
        for part, (home, entry) in enumerate(parts):
            skipped = int(name in OFFSETS and part > 0)
            for piece in _read(home, split, name, entry["arrays"][name], part):
                values = piece[skipped:]
                writer.append(values + values.dtype.type(before) if before else values)
                skipped = 0
            before += _count_moved(name, entry)
        entries[name] = writer.close()
    names = ("documents", "sentences", "tokens", *COUNTS)
    return {**{n: sum(entry[n] for _, entry in parts) for n in names}, "arrays": entries}


def is_sound(home: Path, splits: dict[str, Any]) -> bool:
    """Whether the arrays of a part are those of its record."""
    try:
        for split, entry in splits.items():
            for name, stated in entry["arrays"].items():
                for _ in _read(home, split, name, stated, 0):
                    pass
    except DamagedPart:
        return False
    return True


def _count_moved(name: str, entry: dict[str, Any]) -> int:
    """The number by which a part moves the values of an array in the parts behind it."""
    if name.endswith(".start"):
        return int(entry["tokens"])
    return int(entry[OFFSETS[name]]) if name in OFFSETS else 0


def _read(
    home: Path, split: str, name: str, stated: dict[str, Any], part: int
) -> Iterator[np.ndarray]:
    """The pieces of an array; DamagedPart at the end where its content is another."""
    file, digest = home / f"{split}.{name}.npy", hashlib.sha256()
    try:
        array = read_array(
            file, dtype=stated["dtype"], length=stated["length"], what="damaged", fix=""
        )
    except DataError as error:
        raise DamagedPart(part, f"{file.name}: {error.message}") from error
    for piece in walk(array):
        digest.update(np.ascontiguousarray(piece).data)
        yield piece
    if digest.hexdigest() != stated["sha256"]:
        raise DamagedPart(part, f"the content of {file.name} has changed")
