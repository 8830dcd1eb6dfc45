"""The jobs of a study wherever a Hydra launcher puts them: joblib, a SLURM cluster through
submitit, or another plug-in.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plmctl.core.children import follow_launcher
from plmctl.core.errors import UsageError
from plmctl.run.compose import reason, session
from plmctl.run.overrides import quoted
from plmctl.study.job import LOG, perform
from plmctl.study.run import Runner
from plmctl.training.stop import STOPPED

if TYPE_CHECKING:
    from omegaconf import DictConfig


@dataclass(frozen=True)
class Launch:
    """One job as a launcher calls it, here or on a machine that sees the same files; a failure
    is recorded, not raised.
    """

    here: str  # the folder that relative paths start from
    # the process that a worker of a launcher ends with
    study: int = field(default_factory=os.getpid)

    def __call__(self, cfg: DictConfig) -> int:
        follow_launcher(self.study)
        folder = Path(cfg.job_path)
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.chdir(self.here))
            log = stack.enter_context((folder / LOG).open("a", encoding="utf-8"))
            stack.enter_context(contextlib.redirect_stdout(log))
            stack.enter_context(contextlib.redirect_stderr(log))
            code = perform(folder)
        if code in STOPPED:
            raise KeyboardInterrupt
        return code


class Launched(Runner):
    """All jobs that are ready go to the launcher together, then those that they have made ready.

    `words`: the launcher and its settings, like `hydra/launcher=submitit_slurm`,
    `hydra.launcher.partition=gpu`. A rule that stops hopeless runs is applied when they have ended:
    the table is the same, the time is not saved.
    """

    def __init__(self, *settings: Any, words: tuple[str, ...], **others: Any) -> None:
        super().__init__(*settings, **others)
        self.words = words

    def run(self) -> int:
        while jobs := list(self.ready()):
            places = [str(self.prepare(job)) for job in jobs]
            stopped = self._launch(places)
            for job in jobs:
                self.settle(job.name, self.outcome(job, None, ended=stopped))
            if stopped:
                return 130
        return int(self.failed())

    def _launch(self, places: list[str]) -> bool:
        """Hydra's multirun over the folders; whether it was interrupted."""
        from hydra.errors import HydraException

        sweep = [
            "hydra.output_subdir=null",
            "hydra/job_logging=none",
            quoted(f"hydra.sweep.dir={self.folder / 'launched'}"),
        ]
        folders = ",".join(quoted(f"run.dir={place}").partition("=")[2] for place in places)
        with session("ablate") as hydra:
            try:
                hydra.multirun(
                    None, Launch(os.getcwd()), [f"+job_path={folders}", *sweep, *self.words]
                )
            except HydraException as error:
                raise UsageError(reason(error, hydra, "ablate")) from None
            except KeyboardInterrupt:
                return True
        return False
