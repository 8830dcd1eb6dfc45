"""Trackio."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plmctl.core.extras import require_library
from plmctl.training.trackers.base import Tracker, name_run

PROJECT = "TRACKIO_PROJECT"  # a variable of ours: the library has none for it


class Trackio(Tracker):
    """A run of Trackio, in a database on this machine (`TRACKIO_DIR`), which needs no network,
    unless `TRACKIO_SPACE_ID` or `TRACKIO_SERVER_URL` names a Space or a server. Its project is that
    of `TRACKIO_PROJECT` (default: plmctl).
    """

    name = "trackio"

    def __init__(self) -> None:
        other, what = "leave run.trackers out", "run.trackers=[trackio]"
        self._library = require_library("trackio", self.name, what, otherwise=other)
        self._run: Any = None

    def start(self, folder: Path, settings: Mapping[str, Any]) -> None:
        known = self.read_id(folder)
        name = known or name_run(folder)
        with contextlib.redirect_stdout(sys.stderr):  # it prints how to look at the run
            self._run = self._library.init(
                project=os.environ.get(PROJECT, "plmctl"),
                name=name,
                config=dict(settings),
                resume="allow" if known else "never",
            )
        self.write_id(folder, self._run.name)

    def record(self, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log(dict(numbers), step=step)

    def finish(self) -> None:
        with contextlib.redirect_stdout(sys.stderr):
            self._run.finish()
