"""A file of lines that appears when it is complete; the unfinished file has a name of its own in
the same folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from plmctl.core.errors import DataError
from plmctl.core.terminal import remark
from plmctl.storage.atomic import end_of, is_stream
from plmctl.storage.gate import admit, open_file


@contextmanager
def open_growing(
    place: Path, *, total: Callable[[], int | None] = lambda: None
) -> Iterator[Callable[[str], None]]:
    """A function that writes one line at once.

    Args:
        total: Gives the number of lines, if it is known, for the message of a stop.
    """
    device, place = is_stream(place), place if is_stream(place) else end_of(place)
    unfinished = place if device else place.with_name(f"{place.name}.partial")
    try:
        admit(place.parent).mkdir(parents=True, exist_ok=True)
        out = admit(place).open("w", encoding="utf-8") if device else open_file(unfinished, "w")
    except OSError as error:
        raise DataError(
            f"cannot write: {error.strerror or error}", file=place, fix="out=<a writable file>"
        ) from error
    written = 0

    def write(line: str) -> None:
        nonlocal written
        out.write(f"{line}\n")
        out.flush()
        written += 1

    try:
        with out:
            yield write
    except BaseException:  # any stop, an interrupt too, is reported and raised again
        if written:
            of = "" if (count := total()) is None else f" of {count}"
            remark(
                f"plmctl: {written}{of} lines are answered, in {unfinished}, which is not complete"
            )
        elif not device:
            admit(unfinished).unlink()
        raise
    if not device:
        os.replace(admit(unfinished), admit(place))
