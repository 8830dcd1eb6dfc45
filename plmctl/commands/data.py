"""`plmctl data check`: what a careful person looks for in text, tokens or labelled files before
a long run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from plmctl.core.errors import UsageError
from plmctl.core.terminal import remark, tell
from plmctl.report import checked
from plmctl.report.checked import make_lines
from plmctl.run.data_check import check_files
from plmctl.run.tokenize import progress
from plmctl.storage.atomic import is_stream

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from plmctl.run.compose import Flags


def run(cfg: DictConfig, *, flags: Flags) -> int:
    """Check, say it, and write the page where one is asked for; what is found changes no exit
    code.
    """
    if cfg.out and Path(cfg.out).suffix not in (".md", ".html") and not is_stream(Path(cfg.out)):
        raise UsageError(f"--out {cfg.out}: a .md or a .html file")
    with progress() as say:
        report = check_files(cfg, flags, say)
    tell(
        json.dumps(report.as_json(), ensure_ascii=False)
        if flags.json
        else "\n".join(make_lines(report))
    )
    if cfg.out:
        remark("\n".join(map(str, checked.write(report, Path(cfg.out)))))
    return 0
