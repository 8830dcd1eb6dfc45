"""MLflow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plmctl.core.extras import require_library
from plmctl.training.trackers.base import Tracker, name_run

AT_ONCE = 100  # settings of a request
LONGEST = 500  # letters of a setting
_OTHER = re.compile(r"[^\w\-. /]", re.ASCII)  # in no name of a metric: `mrr@10`


class MLflow(Tracker):
    """A run of MLflow. `MLFLOW_TRACKING_URI`, `MLFLOW_EXPERIMENT_NAME` and the other variables of
    the library count.
    """

    name = "mlflow"

    def __init__(self) -> None:
        other = "leave run.trackers out"
        what = "run.trackers=[mlflow]"
        self._library = require_library("mlflow", self.name, what, otherwise=other)

    def start(self, folder: Path, settings: Mapping[str, Any]) -> None:
        known, library = self.read_id(folder), self._library
        nested = library.active_run() is not None  # a run of the program that trains
        if known:
            library.start_run(run_id=known, nested=nested)
            return
        run = library.start_run(run_name=name_run(folder), nested=nested)
        self.write_id(folder, run.info.run_id)
        flat = list(_flatten(settings))
        for first in range(0, len(flat), AT_ONCE):
            library.log_params(dict(flat[first : first + AT_ONCE]))

    def record(self, step: int, numbers: Mapping[str, float]) -> None:
        named = {_OTHER.sub("_", name): value for name, value in numbers.items()}
        self._library.log_metrics(named, step=step)

    def finish(self) -> None:
        self._library.end_run()


def _flatten(settings: Any, path: str = "") -> list[tuple[str, str]]:
    """(dotted key, value) of everything in nested mappings."""
    if not isinstance(settings, Mapping):
        return [(_OTHER.sub("_", path), str(settings)[:LONGEST])]
    inner = ((f"{path}.{key}" if path else str(key), value) for key, value in settings.items())
    return [pair for key, value in inner for pair in _flatten(value, key)]
