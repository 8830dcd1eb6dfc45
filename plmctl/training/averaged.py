"""How the mean of checkpoints was made, as its checkpoint says."""

from __future__ import annotations

from pathlib import Path

from plmctl.storage.reading import read_json

MADE = "average.json"  # in a checkpoint that no training wrote


def read_average(folder: Path) -> dict[str, str]:
    """How the checkpoint of a folder was averaged (`what`), and of which `run`; empty for a run
    that training wrote.
    """
    made = next(folder.glob(f"checkpoints/step-*/{MADE}"), None)
    return dict(read_json(made)) if made else {}
