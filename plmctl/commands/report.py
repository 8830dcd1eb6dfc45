"""`plmctl report`: one page, Markdown and HTML, on finished or running runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from plmctl.report.runs import write_report

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from plmctl.config.compose import Flags


def run(cfg: DictConfig, *, flags: Flags) -> int:
    """Write the page and print the files that were made."""
    print("\n".join(str(file) for file in write_report([Path(folder) for folder in cfg.runs], Path(cfg.out))))
    return 0
