"""A tracker that writes the numbers of runs to a table: run, step, name, value."""

import csv
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plmctl.core.parts import part_of
from plmctl.training.trackers.base import Tracker, name_run


@part_of("trackers")
class Sheet(Tracker):
    """Rows at the end of the file that the variable SHEET names, or of numbers.csv."""

    name = "sheet"

    def start(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.run, self.file = name_run(folder), Path(os.environ.get("SHEET", "numbers.csv"))

    def record(self, step: int, numbers: Mapping[str, float]) -> None:
        rows = ((self.run, step, name, value) for name, value in numbers.items())
        with self.file.open("a", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows(rows)

    def finish(self) -> None:
        pass  # each record is written at once
