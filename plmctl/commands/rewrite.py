"""`plmctl data rewrite`: a training set whose targets a teacher wrote (Kim and Rush, 2016), for a
student to be trained on.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from plmctl.core.terminal import tell
from plmctl.run.plugins import option
from plmctl.run.rewrite import rewriting
from plmctl.storage.resumable import new_folder

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from plmctl.distill.rewriting import Rewriting
    from plmctl.run.compose import Flags


def run(cfg: DictConfig, *, flags: Flags) -> int:
    """Write `out` and say what is in it."""
    out = new_folder(cfg.out)
    work = rewriting(cfg, flags)
    work.write(out)
    _report(cfg, work, flags)
    return 0


def _report(cfg: DictConfig, work: Rewriting, flags: Flags) -> None:
    count, names = len(work.examples), work.names
    if flags.json:
        tell(json.dumps({"out": cfg.out, "sources": count, **work.counted}))
        return
    told = ", ".join(f"{value:,} {what}" for what, value in work.counted.items() if value)
    columns = f" task.columns.source={names['source']} task.columns.target={names['target']}"
    tell(f"{cfg.out}: targets of {count:,} sources" + (f"; {told}" if told else ""))
    tell(
        f"next: plmctl finetune task={work.task.name} task.path={cfg.out}{columns}"
        f" ...{option(flags.plugins)}"
    )
