"""A folder of lines that a long job writes. It appears when it is complete, with a record of the
job, and a stopped job continues.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from plmctl.core.errors import ConfigError, DataError
from plmctl.core.progress import ProgressLine
from plmctl.core.terminal import remark
from plmctl.storage.atomic import write_bytes
from plmctl.storage.gate import open_file, own
from plmctl.storage.journal import Journal, open_journal
from plmctl.storage.paths import inside, refuse_file_name

RECORD = "made.json"  # in the folder: which model wrote it, from what, and how
_COMMIT = 10.0  # seconds of work that a kill may cost


def new_folder(out: str) -> Path:
    """ConfigError where there is something already, or no name."""
    if not out.strip():
        raise ConfigError("out", out, "the name of a new folder", fix="out=<a new folder>")
    place = own(Path(out).expanduser())
    if place.exists() and not place.is_dir():
        raise ConfigError("out", out, "there is a file of this name", fix="out=<a new folder>")
    if place.exists() and any(place.iterdir()):
        raise ConfigError("out", out, "is there already, and not empty", fix="out=<a new folder>")
    refuse_file_name(place)
    return place


def hash_text(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def hash_file(file: Path) -> str:
    """SHA-256 of a file; DataError if it cannot be read."""
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", file=file) from error


def write_folder(
    out: Path,
    name: str,
    job: Mapping[str, Any],
    rows: Sequence[Any],
    *,
    of: Callable[[Sequence[Any], int], Iterator[str]],
    begin: str = "",
    together: int = 64,
    others: Mapping[str, Path | str],
    state: dict[str, int],
    what: str = "examples",
) -> None:
    """`out`/`name`: `begin`, and what `of(some rows, number of the first)` makes of all `rows`, in
    their order.

    If the job is stopped, the same job continues, and its bytes are those of a job that was never
    stopped. `state`: its counts. `others`: further files, copied, or given as text.
    """
    with open_journal(out, job, tell=lambda line: remark(f"plmctl: {line}")) as journal:
        file = journal.folder / name
        done, size = journal.state.get("rows", 0), journal.state.get("bytes", 0)
        state.update(journal.state.get("counted", {}))
        show, last = ProgressLine(what, len(rows), begun=done), time.monotonic()
        with open_file(file, "r+b" if file.exists() else "w+b") as stream:
            stream.truncate(size)
            stream.seek(size)
            stream.write(begin.encode() if not size else b"")
            while done < len(rows):
                some = rows[done : done + together]
                stream.write("".join(of(some, done)).encode())
                done += len(some)
                show(done)
                if time.monotonic() - last > _COMMIT or done == len(rows):
                    last = time.monotonic()
                    stream.flush()
                    journal.commit(rows=done, bytes=stream.tell(), counted=dict(state))
        _write_others(
            journal,
            {
                **others,
                RECORD: json.dumps({**job, "counted": state}, indent=1, ensure_ascii=False) + "\n",
            },
        )
        journal.finish(out)


def _write_others(journal: Journal, others: Mapping[str, Path | str]) -> None:
    for name, content in others.items():
        whole = content.read_bytes() if isinstance(content, Path) else content.encode()
        write_bytes(inside(journal.folder, name, partial(ConfigError, "task.path", name)), whole)
