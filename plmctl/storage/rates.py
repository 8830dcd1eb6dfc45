"""Rates of this machine, measured once and kept, so that all runs see the same number."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from pathlib import Path

from plmctl.storage.atomic import write_json
from plmctl.storage.gate import admit
from plmctl.storage.reading import parse_json

FILE = "speed.json"  # in the cache folder: {machine and computation: rate}


def time_fastest(run: Callable[[], object], repeated: int) -> float:
    """Seconds of the fastest of so many passes, behind a first one."""
    run()
    fastest = math.inf
    for _ in range(repeated):
        start = time.perf_counter()
        run()
        fastest = min(fastest, time.perf_counter() - start)
    return fastest


def keep(name: str, measure: Callable[[], float], folder: Path) -> float:
    """The rate that is kept under `name`; the first time, what `measure` returns."""
    file = folder / FILE
    if name not in _read(file):
        rate = float(f"{measure():.3g}")
        with contextlib.suppress(OSError):  # a cache that cannot be written to keeps nothing
            admit(folder).mkdir(parents=True, exist_ok=True)
            write_json(file, {name: rate, **_read(file)})  # the first of two processes counts
        return _read(file).get(name, rate)
    return _read(file)[name]


def _read(file: Path) -> dict[str, float]:
    """{machine: rate} of the file; damaged entries are left out."""
    try:
        kept = parse_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    items = kept.items() if isinstance(kept, dict) else ()
    return {
        name: float(rate)
        for name, rate in items
        if isinstance(rate, (int, float)) and not isinstance(rate, bool) and rate > 0
    }
