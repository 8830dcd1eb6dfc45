"""Where runs lie: `run.dir`, and `run.name`."""

from __future__ import annotations

import os
from pathlib import Path

from plmctl.config.spec import RunSpec
from plmctl.core.errors import ConfigError
from plmctl.storage.paths import fresh, inside

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


def place_run(spec: RunSpec) -> RunSpec:
    """A training with its folder: `run.dir`, or a new one of `run.name`, or of its command."""
    if not spec.select("run.dir") and int(os.environ.get("TORCHELASTIC_MAX_RESTARTS") or 0):
        why = "needed by torchrun --max-restarts: processes that start anew find their run by it"
        raise ConfigError("run.dir", None, why, fix="run.dir=<a folder>")
    name = spec.select("run.name") or spec.provenance.command
    return spec.replace({"run.dir": spec.select("run.dir") or str(fresh(runs_of(name)))})
