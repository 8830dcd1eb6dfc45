"""Results in places that nobody named: a new one takes the name, and an earlier one is kept."""

from __future__ import annotations

import contextlib
import filecmp
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from plmctl.core.terminal import remark
from plmctl.storage.atomic import is_stream
from plmctl.storage.gate import admit, own

EARLIER = "earlier"  # the folder of earlier versions, next to the files
HELD, BUT = "other results: these are", " (not with overwrite=true)"


@contextlib.contextmanager
def keep_earlier(
    file: Path, *, overwrite: bool = False, held: str = HELD, but: str = BUT
) -> Iterator[None]:
    """Write `file` inside. Its earlier content becomes `earlier/<its name>-<number>`, and a message
    names it.

    Nothing is stored if the file stays the same, nor with `overwrite`; `held` is the name of the
    earlier content in the message, and `but` its end.
    """
    if overwrite or is_stream(file) or not file.is_file():
        yield
        return
    folder = file.parent / EARLIER
    names = (folder / f"{file.stem}-{number}{file.suffix}" for number in count(1))
    kept = next(name for name in names if not name.exists())
    admit(own(folder, ours=True)).mkdir(exist_ok=True)
    shutil.copy2(file, admit(kept))
    try:
        yield
    finally:
        if same := filecmp.cmp(file, kept, shallow=False):
            admit(kept).unlink()
            with contextlib.suppress(OSError):
                admit(folder).rmdir()
    if not same:
        remark(f"{file} had {held} kept as {kept}{but}")
