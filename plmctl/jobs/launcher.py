"""What Hydra calls: a task in each of the processes that its launchers start, joblib, a SLURM
cluster through submitit, or another plug-in.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from plmctl.core.children import follow_launcher
from plmctl.core.errors import UsageError
from plmctl.jobs.work import Outcome
from plmctl.run.compose import reason

if TYPE_CHECKING:
    from hydra._internal.hydra import Hydra
    from omegaconf import DictConfig


@dataclass(frozen=True)
class LauncherTask:
    """One job of a multirun: it ends with the process that started it, and only a signal is
    raised.
    """

    call: Callable[[DictConfig], Outcome]
    starter: int = field(default_factory=os.getpid)

    def __call__(self, cfg: DictConfig) -> Any:
        follow_launcher(self.starter)
        outcome = self.call(cfg)
        if outcome.stopped:
            raise KeyboardInterrupt
        return outcome.result


def multirun(
    hydra: Hydra, task: LauncherTask, words: Sequence[str], *, verb: str | None = None
) -> bool:
    """Have Hydra's sweeper and launcher run a task; returns whether a signal interrupted it."""
    with reword_errors(hydra, verb or "ablate"):
        try:
            hydra.multirun(verb, task, list(words))
        except KeyboardInterrupt:
            return True
    return False


@contextmanager
def reword_errors(hydra: Hydra, verb: str) -> Iterator[None]:
    """Hydra's complaints as ours."""
    from hydra.errors import HydraException

    try:
        yield
    except HydraException as error:
        raise UsageError(reason(error, hydra, verb)) from None
