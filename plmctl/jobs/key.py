"""What decides the result of a job, as a key: its config and the content of the files that it
names.
"""

from __future__ import annotations

import functools
import glob
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from plmctl.data.shards import MANIFEST, is_tokens
from plmctl.jobs.job import REFERENCE
from plmctl.run.format_1 import ADDED, TARGETS
from plmctl.run.schema import is_path

WITHOUT_EFFECT = {  # on any figure of the table: another value makes no other job
    "recipe",
    "run",
    "out",
    "data.cache_dir",
    "processes",
    *(f"train.{name}" for name in ("log_every", "save_every", "keep_last")),
    *(f"train.{name}" for name in ("device", "processes", "threads", "micro_batch_size")),
}
# the first name that a part ever had: it keeps the keys of older folders
_FIRST = {now: former for former, now in reversed(TARGETS.items())}
_EXACT = 1 << 26  # bytes of a file that are hashed; of a larger one, size and time of change count


def compute_key(verb: str, config: Mapping[str, Any]) -> str:
    """16 hexadecimal digits: the same for the same work on the same files, wherever the study
    lies, whatever its parts are called by now, and whatever may be set besides by now.
    """
    leaves = {
        path: value
        for path, value in _leaves(config)
        if not _without_effect(path) and not _changes_nothing(path, value)
    }
    for path, value in leaves.items():
        if _names_files(path, value):
            leaves[path] = fingerprint(value)
        elif path.endswith("_target_"):
            now = TARGETS.get(value, value)
            leaves[path] = _FIRST.get(now, now)
    text = json.dumps([verb, leaves], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def fingerprint(path: str) -> list[Any]:
    """[name, size, hash] of every file at `path`, a file, folder or pattern; the path itself
    where there is nothing.
    """
    root = Path(path).expanduser()
    if is_tokens(str(root)):
        return [_state(str(root / MANIFEST), *_changed(root / MANIFEST))]
    if root.is_dir():
        return [
            [str(file.relative_to(root)), *_state(str(file), *_changed(file))[1:]]
            for file in sorted(file for file in root.rglob("*") if file.is_file())
        ]
    files = (
        [root]
        if root.is_file()
        else [Path(file) for file in sorted(glob.glob(str(root), recursive=True))]
    )
    return [_state(str(file), *_changed(file)) for file in files if file.is_file()] or [path]


def _changed(file: Path) -> tuple[int, int]:
    state = os.stat(file)
    return state.st_size, state.st_mtime_ns


@functools.lru_cache(maxsize=100_000)
def _state(file: str, size: int, changed: int) -> list[Any]:
    """Hashed once while it stays as it is, however many jobs read it."""
    digest = hashlib.sha256(Path(file).read_bytes()).hexdigest() if size <= _EXACT else changed
    return [Path(file).name, size, digest]


def _names_files(path: str, value: Any) -> bool:
    owner = path.rpartition(".")[0]
    known = is_path(path) or is_path(owner)  # path: {train: ..., dev: ...} and lists of paths
    return known and isinstance(value, str) and not value.startswith((REFERENCE, "hf:"))


def _changes_nothing(path: str, value: Any) -> bool:
    """Whether it is a setting that came later, with the value of before."""
    return any(f".{path}".endswith(f".{name}") and ADDED[name] == value for name in ADDED)


def _without_effect(path: str) -> bool:
    return path in WITHOUT_EFFECT or any(path.startswith(f"{name}.") for name in WITHOUT_EFFECT)


def _leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, (Mapping, Sequence)) and not isinstance(node, str) and node:
        for name, value in node.items() if isinstance(node, Mapping) else enumerate(node):
            yield from _leaves(value, f"{path}.{name}" if path else str(name))
    else:
        yield path, node
