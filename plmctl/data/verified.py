"""A record of arrays that were compared with their manifest: they are read completely the first
time and after a change.

<cache>/verified/<hash>: an empty file; the hash is of the arrays' paths, sizes, times, inodes and
stated hashes. A bit that a disk turns later, without a write, is found by `plmctl data check`,
which reads everything.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from plmctl.core.progress import Say
from plmctl.data.shards import Shards
from plmctl.data.survey import ignore_progress
from plmctl.storage.gate import admit

FOLDER = "verified"


def verify_once(shards: Shards, cache: Path, *, say: Say = ignore_progress) -> None:
    """`shards.verify()`, unless the same files have passed it before; 100 MB take about 0.3 s.

    If nothing can be written in `cache`, they are compared each time.
    """
    mark = cache / FOLDER / _hash_files(shards)
    if mark.is_file():
        return
    say(f"comparing {shards.folder} ({shards.split}) with its manifest", 0, 0)
    shards.verify()
    with contextlib.suppress(OSError):
        admit(mark.parent).mkdir(parents=True, exist_ok=True)
        admit(mark).touch()


def _hash_files(shards: Shards) -> str:
    """A hash of the facts that change with every write to the files."""
    digest = hashlib.sha256()
    for file, stated in sorted(shards.list_stated_hashes().items()):
        status = file.stat()
        facts = (
            str(file.resolve()),
            status.st_size,
            status.st_mtime_ns,
            status.st_dev,
            status.st_ino,
            stated,
        )
        digest.update(repr(facts).encode())
    return digest.hexdigest()
