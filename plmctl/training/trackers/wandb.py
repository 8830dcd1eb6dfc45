"""Weights & Biases."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plmctl.core.extras import require_library
from plmctl.training.trackers.base import Tracker, name_run


class WeightsAndBiases(Tracker):
    """A run of Weights & Biases. `WANDB_PROJECT`, `WANDB_MODE=offline`, `WANDB_NAME`, `WANDB_DIR`
    and the other variables of the library count.
    """

    name = "wandb"

    def __init__(self) -> None:
        other = "leave run.trackers out"
        self._library = require_library("wandb", self.name, "run.trackers=[wandb]", otherwise=other)
        self._run: Any = None

    def start(self, folder: Path, settings: Mapping[str, Any]) -> None:
        own: dict[str, str] = {}  # an argument counts more than its variable
        if "WANDB_NAME" not in os.environ:
            own["name"] = name_run(folder)
        if "WANDB_DIR" not in os.environ:
            own["dir"] = str(folder)
        if known := self.read_id(folder):
            own |= {"id": known, "resume": "allow"}
        self._run = self._library.init(config=dict(settings), **own)
        self.write_id(folder, self._run.id)

    def record(self, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log(dict(numbers), step=step)

    def finish(self) -> None:
        self._run.finish()
