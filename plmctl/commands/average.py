"""`plmctl average`: the mean of a run's last checkpoints, as a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from plmctl.run.compose import Flags


def run(cfg: DictConfig, *, flags: Flags) -> int:
    """Write the checkpoint and print its folder."""
    from plmctl.core.terminal import tell
    from plmctl.training.averaging import average, kept

    run, out = Path(cfg.run), Path(cfg.out)
    tell(kept(run, out) if cfg.kept else average(run, out, last=cfg.last))
    return 0
