"""Where the runs of a name lie: `run.name`."""

from __future__ import annotations

from pathlib import Path

from plmctl.core.errors import ConfigError
from plmctl.storage.paths import inside

RUNS = Path("runs")


def runs_of(name: str) -> Path:
    """`runs/<name>`; ConfigError for a name that leads out of `runs`."""
    fix = "run.name=<a name>, or run.dir=<any folder>"
    return inside(
        RUNS,
        name,
        lambda why: ConfigError("run.name", name, f"{RUNS}/{name} {why}", fix=fix),
        links=False,
    )
