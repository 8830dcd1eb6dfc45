"""A cache of the plans and orders of large corpora, in files next to their tokens, so that a
restart maps them into memory.

<token directory>/plans/<hash of what they are made of>/{<array>.npy, ..., plan.json}
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from plmctl.data.formats import base
from plmctl.data.formats.base import Plan
from plmctl.storage.atomic import write_text
from plmctl.storage.gate import admit, own
from plmctl.storage.reading import parse_json

if TYPE_CHECKING:
    from plmctl.data.shards import Shards

# a corpus with fewer sentences is planned within about 0.2 s and not cached
LARGE = 1 << 19
FOLDER, NOTE = "plans", "plan.json"


def cache_plan(shards: Shards, key: object, make: Callable[[], Plan]) -> Plan:
    """`make()`, or its earlier result under the same `key`; equal keys must mean equal bytes.

    Files appear complete or not at all; damaged ones are written again. If nothing can be written,
    there is no cache. All plans together take no more space than the tokens of their split; the
    plans that were not read for the longest time are removed.
    """
    home = Path(getattr(shards, "folder", "") or "")
    if len(shards.sentences) < LARGE or not home.is_dir() or not getattr(shards, "stored", True):
        return make()
    digest = hashlib.blake2b(repr((shards.fingerprint, key)).encode(), digest_size=16).hexdigest()
    folder = home / FOLDER / digest
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return _read(folder)
    plan = make()
    with contextlib.suppress(OSError):
        _write(folder, plan)
        _tidy(folder, limit=shards.ids.nbytes)
    return plan


@cache
def hash_code(source: str) -> str:
    """A hash of the code that plans: the files of all formats and the file `source`, read once in a
    process.
    """
    files = {*Path(base.__file__).parent.glob("*.py"), Path(source)}
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _read(folder: Path) -> Plan:
    note = parse_json((folder / NOTE).read_text(encoding="utf-8"))
    arrays = {
        name: _map_array(folder / f"{name}.npy", length) for name, length in note["arrays"].items()
    }
    os.utime(folder)
    return Plan(note["rows"], arrays, note["report"], note["width"])


def _map_array(file: Path, length: int) -> np.ndarray:
    # an empty file cannot be mapped
    array = np.load(file, mmap_mode="r" if length else None, allow_pickle=False)
    if array.shape != (length,):
        raise ValueError(f"{file} has {array.shape}, not ({length},)")
    return np.asarray(array)


def _write(folder: Path, plan: Plan) -> None:
    own(folder.parents[1])
    admit(folder.parent).mkdir(exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=".new-", dir=admit(folder.parent)))
    try:
        for name, array in plan.arrays.items():
            np.save(admit(unfinished / f"{name}.npy"), array, allow_pickle=False)
        lengths = {name: len(array) for name, array in plan.arrays.items()}
        note = {"rows": plan.rows, "width": plan.width, "report": plan.report, "arrays": lengths}
        write_text(unfinished / NOTE, json.dumps(note))
        if folder.exists():  # damaged
            shutil.rmtree(admit(folder))
        os.replace(admit(unfinished), admit(folder))
    except BaseException:  # an interrupt, too, must leave no unfinished folder
        shutil.rmtree(admit(unfinished), ignore_errors=True)
        raise


def _tidy(newest: Path, limit: int) -> None:
    """Remove the plans that were not read for the longest time while all take more than `limit`
    bytes; never the `newest`.
    """
    others = sorted(
        (p for p in newest.parent.iterdir() if p != newest),
        key=lambda p: p.stat().st_mtime,
        reverse=True,
    )
    total = _bytes(newest)
    for folder in others:
        total += _bytes(folder)
        if total > limit:
            shutil.rmtree(admit(folder), ignore_errors=True)


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())
