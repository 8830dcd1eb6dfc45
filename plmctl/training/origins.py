"""`origins.json` of a run: the checkpoints that its settings `checkpoint`, `init` and `teacher`
named when it began.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NotRequired, TypedDict

from plmctl.storage.atomic import write_json
from plmctl.storage.parts.kinds import PARTED, WEIGHTS
from plmctl.storage.reading import read_json

FILE = "origins.json"
SHOWN = 12  # digits of a hash on a line


class BegunFrom(TypedDict):
    """A checkpoint of a run, or a published model, as it was read."""

    folder: str
    saved: str  # time of the save, in UTC
    step: NotRequired[int]
    sha256: NotRequired[str]  # hash of the file of its weights


def identify(folder: Path) -> BegunFrom:
    """Describe the model in a folder; a published one has no step and no hash."""
    manifest, trainer = folder / "manifest.json", folder / "trainer.json"
    written = max(file.stat().st_mtime for file in [folder, *folder.glob("*.*")])
    own = manifest.is_file()
    time = manifest.stat().st_mtime if own else written
    saved = datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds")
    found = BegunFrom(folder=str(folder), saved=saved)
    if own:
        files: Mapping[str, Mapping[str, str]] = read_json(manifest).get("files") or {}
        if entry := files.get(WEIGHTS) or files.get(PARTED):
            found["sha256"] = entry["sha256"]
    if trainer.is_file():
        found["step"] = int(read_json(trainer)["progress"].get("step", 0))
    return found


def keep_origin(run: Path, setting: str, folder: Path) -> None:
    """Write into a run which checkpoint a setting named; a resumed run may add a later one."""
    known, new = read_origins(run), identify(folder)
    if new not in known.get(setting, ()):
        write_json(run / FILE, {**known, setting: [*known.get(setting, ()), new]})


def read_origins(run: Path) -> dict[str, list[BegunFrom]]:
    """The checkpoints by setting; empty for a run that began with new weights."""
    return dict(read_json(run / FILE)) if (run / FILE).is_file() else {}


def describe_origin(origin: BegunFrom) -> str:
    """`step 40, saved 2026-11-30T18:20:05+00:00, sha256 0a1b2c3d4e5f`."""
    step = f"step {origin['step']:,}" if "step" in origin else ""
    digest = f"sha256 {origin['sha256'][:SHOWN]}" if "sha256" in origin else ""
    return ", ".join(filter(None, (step, f"saved {origin['saved']}", digest)))
