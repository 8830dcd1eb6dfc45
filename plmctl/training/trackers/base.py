"""The base of trackers, and how a tracker recognises the run of its service on a resume."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plmctl.storage.atomic import write_json
from plmctl.storage.reading import read_json

NAMES = "trackers.json"  # {tracker: the run's own name in its service}, in the run directory


class Tracker(ABC):
    """Sends the numbers of a run to a service, in addition to metrics.jsonl.

    The environment variables of its library decide where, and whether at all.
    """

    name: str  # in messages and files; of ours in run.trackers and in pyproject.toml, too

    @abstractmethod
    def start(self, folder: Path, settings: Mapping[str, Any]) -> None:
        """Begin, or go on with the run that `folder` says it began.

        Args:
            folder: The folder of the run.
            settings: all of the run's.
        """

    @abstractmethod
    def record(self, step: int, numbers: Mapping[str, float]) -> None:
        """Send numbers of an update."""

    @abstractmethod
    def finish(self) -> None:
        """Send what is left."""

    def read_id(self, folder: Path) -> str | None:
        """The service's name for the run of `folder`; None: it has none."""
        found = _read(folder).get(self.name)
        return None if found is None else str(found)

    def write_id(self, folder: Path, own: str) -> None:
        """Keep what the service calls the run."""
        write_json(folder / NAMES, {**_read(folder), self.name: own})


def name_run(folder: Path) -> str:
    """The name of a run for people: `bert/20260101-120000`."""
    return "/".join(folder.absolute().parts[-2:])


def _read(folder: Path) -> dict[str, Any]:
    file = folder / NAMES
    return dict(read_json(file, dict[str, str])) if file.is_file() else {}
