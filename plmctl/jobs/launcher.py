"""What Hydra calls: a task in each of the processes that its launchers start, joblib, a SLURM
cluster through submitit, or another plug-in.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from plmctl.core.children import follow_launcher
from plmctl.jobs.work import Outcome
from plmctl.run.composer import to_plain


@dataclass(frozen=True)
class LauncherTask:
    """One job of a multirun: it ends with the process that started it, and only a signal is
    raised.
    """

    call: Callable[[dict[str, Any]], Outcome]  # is given the job's settings
    starter: int = field(default_factory=os.getpid)

    def __call__(self, composed: Any) -> Any:
        follow_launcher(self.starter)
        outcome = self.call(to_plain(composed))
        if outcome.stopped:
            raise KeyboardInterrupt
        return outcome.result
