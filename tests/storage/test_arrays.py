"""Arrays on disk that are read from end to end."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest

from plmctl.storage.arrays import hash_array, walk
from plmctl.text.frequencies import count_tokens

STATUS = Path("/proc/self/status")
SIZE = 24 << 20  # bytes


def _mapped() -> int:
    """Bytes of files that are in the memory of this process."""
    found = re.search(r"RssFile:\s+(\d+) kB", STATUS.read_text())
    assert found
    return 1024 * int(found[1])


@pytest.mark.skipif(not STATUS.exists(), reason="this system does not count mapped files")
def test_mapped_arrays_leave_memory_as_they_are_read(tmp_path: Path) -> None:
    array = np.arange(SIZE // 2, dtype=np.uint16)
    np.save(tmp_path / "ids.npy", array)
    mapped = np.load(tmp_path / "ids.npy", mmap_mode="r")
    before = _mapped()
    assert hash_array(mapped) == hashlib.sha256(array.tobytes()).hexdigest()
    assert (count_tokens(mapped, 1 << 16) == SIZE // 2 // (1 << 16)).all()
    assert _mapped() - before < SIZE / 4
    assert (mapped == array).all()  # read from the file again


@pytest.mark.parametrize("size", [1, 3, 7, 8])
def test_a_walk_gives_every_value_once(size: int) -> None:
    pieces = list(walk(np.arange(7), size))
    assert np.concatenate(pieces).tolist() == list(range(7))
    assert max(map(len, pieces)) <= size
