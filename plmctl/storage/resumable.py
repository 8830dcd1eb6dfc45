"""A folder that a long job writes. It appears when it is complete, with a record of the job, and a
stopped job continues.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from plmctl.core.errors import ConfigError, DataError
from plmctl.core.progress import ProgressLine
from plmctl.core.terminal import remark
from plmctl.storage.atomic import write_bytes
from plmctl.storage.gate import admit, open_file, own
from plmctl.storage.journal import Journal, open_journal
from plmctl.storage.paths import inside, refuse_file_name

RECORD = "made.json"  # in the folder: which model wrote it, from what, and how
_COMMIT = 10.0  # seconds of work that a kill may cost

# (some rows, the number of the first of them) -> the lines that are written for them
Transform = Callable[[Sequence[Any], int], Iterable[str]]


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


class NewFolder:
    """The files of a folder that is being written.

    Args:
        counted: The numbers of written things. A stopped job finds them again.
        record: The entries of `made.json` behind those of the job.
    """

    def __init__(self, journal: Journal, counted: dict[str, Any]) -> None:
        self.folder, self.counted = journal.folder, counted
        self.record: dict[str, Any] = {"counted": counted}
        self._journal = journal
        counted.update(journal.state.get("counted", {}))

    def write(self, name: str, content: Path | str) -> None:
        """Write a file: a copy of another, or a text."""
        whole = content.read_bytes() if isinstance(content, Path) else content.encode()
        write_bytes(self._place(name), whole)

    def write_rows(
        self,
        name: str,
        rows: Sequence[Any],
        transform: Transform,
        *,
        begin: str = "",
        together: int = 64,
        what: str = "examples",
    ) -> None:
        """Write a file: `begin`, and the lines that `transform` makes of all `rows`, in their
        order. Where the job was stopped, the same job continues, with the same bytes.
        """
        done, size = self._journal.state.get(name, (0, 0))
        show, last = ProgressLine(what, len(rows), begun=done), time.monotonic()
        file = self._place(name)
        with open_file(file, "r+b" if file.exists() else "w+b") as stream:
            stream.truncate(size)
            stream.seek(size)
            stream.write(begin.encode() if not size else b"")
            while done < len(rows):
                some = rows[done : done + together]
                stream.write("".join(transform(some, done)).encode())
                done += len(some)
                show(done)
                if time.monotonic() - last > _COMMIT or done == len(rows):
                    last = time.monotonic()
                    stream.flush()
                    so_far = {name: (done, stream.tell()), "counted": dict(self.counted)}
                    self._journal.commit(**so_far)

    def _place(self, name: str) -> Path:
        """The path of a file inside the folder, whose parent exists."""
        file = inside(self.folder, name, partial(ConfigError, "task.path", name))
        admit(file.parent).mkdir(parents=True, exist_ok=True)
        return file


@contextlib.contextmanager
def write_folder(
    out: Path, job: Mapping[str, Any], counted: dict[str, Any] | None = None
) -> Iterator[NewFolder]:
    """The folder `out`, which appears when it is complete, with a record of its job.

    Args:
        job: Everything that decides the bytes of the files.
        counted: Receives the numbers of written things.
    """
    with open_journal(out, job, tell=lambda line: remark(f"plmctl: {line}")) as journal:
        made = NewFolder(journal, {} if counted is None else counted)
        yield made
        text = json.dumps({**job, **made.record}, indent=1, ensure_ascii=False)
        made.write(RECORD, f"{text}\n")
        journal.finish(out)
