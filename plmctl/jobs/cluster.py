"""`launcher=slurm`: runs and jobs on a cluster, or as jobs of this machine, by submitit."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from plmctl.config import command
from plmctl.config.launcher import Launcher
from plmctl.config.plugins import as_words
from plmctl.config.spec import RunSpec, key_of
from plmctl.core.errors import ConfigError, DataError, UsageError
from plmctl.core.extras import require_library
from plmctl.core.spelling import spell_line
from plmctl.core.terminal import WARN, remark, tell
from plmctl.jobs.on_cluster import ClusterJob, NodeRun
from plmctl.jobs.work import Outcome
from plmctl.storage.gate import admit, open_file, own
from plmctl.storage.paths import SUBMITTED, fresh
from plmctl.training import rundir
from plmctl.training.stop import listen

MOST = 256  # jobs at the same time, the number of submitit itself
LOOK = 0.5  # seconds between two looks at the jobs
LOST = 137  # the exit code of a job that has left no result, as after SIGKILL
PATIENCE = 30.0  # seconds that cancelled jobs have to end


class Cluster:
    """Submits jobs, and waits for them.

    Args:
        launcher: Its settings.
        folder: The folder of submitted functions and of logs.
        name: The name of the jobs.
    """

    def __init__(self, launcher: Launcher, folder: Path, *, name: str = "plmctl") -> None:
        what = f"launcher={launcher.cluster}"
        self._submitit = require_library("submitit", "submitit", what)
        self.launcher, self.folder, self.name = launcher, folder, name

    def submit(self, calls: Sequence[ClusterJob]) -> list[Any]:
        """Submit one job for each call; several are an array of the cluster."""
        executor = self._open()
        local = self.launcher.cluster == "local"
        quiet = _print_into(self.folder / "log.txt") if local else contextlib.nullcontext()
        with self._submitit.helpers.clean_env(), quiet:
            try:
                return executor.submit_array(list(calls))
            except (self._submitit.core.utils.FailedJobError, OSError, RuntimeError) as error:
                said = str(error).strip().splitlines()
                problem = f"the cluster does not take the job: {said[-1] if said else error}"
                raise DataError(problem, file=self.folder, fix="plmctl help launcher") from error

    def describe(self) -> str:
        """The script that is submitted, without a cluster being there."""
        if self.launcher.cluster == "local":
            return f"launcher=local: a background job of this machine, logs in {self.folder}"
        from submitit.slurm.slurm import SlurmExecutor

        class Described(SlurmExecutor):
            """An executor that submits nothing."""

            @classmethod
            def affinity(cls) -> int:
                return 1

        executor: Any = object.__new__(Described)
        executor.folder, executor.parameters = self.folder.absolute(), {}
        executor.python = shlex.quote(sys.executable)
        shared, special = self._parameters()
        executor.parameters = {**executor._convert_parameters(shared), **special}
        return str(executor._make_submission_file_text(executor._submitit_command_str, ""))

    def run(self, calls: Sequence[ClusterJob], ended: Callable[[int, Outcome], None]) -> int:
        """Submit jobs, and wait for all of them; a job that has left no result is submitted again.

        Args:
            calls: The work of each job.
            ended: Called with the index of each job that has ended, and its outcome.

        Returns:
            0, or the exit code of the signal that has ended the waiting, and with it the jobs.
        """
        heard: list[int] = []
        waiting, starts = list(range(len(calls))), Counter[int]()
        running: dict[int, Any] = {}
        most = self.launcher.parallel or (1 if self.launcher.cluster == "local" else MOST)
        most = most if self.launcher.cluster == "local" else len(calls)  # else an array says it
        with listen(lambda number, frame: heard.append(number)):
            while (waiting or running) and not heard:
                now = waiting[: most - len(running)]
                waiting = waiting[len(now) :]
                if now:
                    jobs = self.submit([calls[index] for index in now])
                    running |= dict(zip(now, jobs, strict=True))
                    starts.update(now)
                time.sleep(LOOK)
                for index, job in list(running.items()):
                    if not job.done():
                        continue
                    del running[index]
                    outcome = self._read(job)
                    if outcome.code == LOST and starts[index] <= self.launcher.restarts:
                        remark(f"job {job.job_id} was lost; it is submitted again", WARN)
                        waiting.append(index)
                    else:
                        ended(index, outcome)
            if heard and (heard[0] != signal.SIGHUP or self.launcher.cluster == "local"):
                self._cancel(running.values())
        return 128 + heard[0] if heard else 0

    def _read(self, job: Any) -> Outcome:
        """The outcome of a job that has ended."""
        local = self.launcher.cluster == "local"
        if local and not job.paths.result_pickle.exists():  # no slow disk between the two
            return Outcome(LOST, f"it has left no result; see {job.paths.stderr}")
        error = job.exception()
        if error is None:
            found = job.result()
            return found if isinstance(found, Outcome) else Outcome(0, result=found)
        lost = isinstance(error, self._submitit.core.utils.UncompletedJobError)
        last = str(error).strip().splitlines()[-1]
        where = f"see {job.paths.stderr}"
        return Outcome(LOST, f"it has left no result; {where}") if lost else Outcome(1, last)

    def _cancel(self, jobs: Any) -> None:
        """Have jobs save and end."""
        for job in jobs:
            job.cancel(check=False)
        end = time.monotonic() + PATIENCE
        while self.launcher.cluster == "local" and time.monotonic() < end:
            if all(job.done() for job in jobs):
                return
            time.sleep(LOOK)

    def _open(self) -> Any:
        """The executor of submitit."""
        launcher, folder = self.launcher, admit(self.folder)
        turns = {"slurm_max_num_timeout": launcher.timeouts}
        turns |= {"local_max_num_timeout": launcher.timeouts}
        try:
            executor = self._submitit.AutoExecutor(folder, cluster=launcher.cluster, **turns)
        except RuntimeError as error:  # it looks for srun
            raise UsageError(
                f"launcher={launcher.cluster}: this machine has no srun, by which SLURM starts"
                " jobs\n  fix: launcher=local"
            ) from error
        admit(folder).mkdir(parents=True, exist_ok=True)
        shared, special = self._parameters()
        executor.update_parameters(**shared, **{f"slurm_{key}": special[key] for key in special})
        if launcher.cluster == "local":
            executor.parameters.update(signal_delay_s=launcher.warning, setup=launcher.setup)
        return executor

    def _parameters(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """(the parameters that all clusters have, those of SLURM), as submitit calls them. There is
        a task for each machine, which starts the processes of that machine.
        """
        launcher = self.launcher
        shared = {
            "name": self.name,
            "timeout_min": launcher.minutes,
            "nodes": launcher.nodes,
            "tasks_per_node": 1,
            "gpus_per_node": launcher.gpus or None,
            "cpus_per_task": launcher.cpus,
            "mem_gb": launcher.memory,
        }
        special = {
            "signal_delay_s": launcher.warning,
            "array_parallelism": launcher.parallel or MOST,
            "setup": list(launcher.setup) or None,
            # a machine that is lost takes the others with it, and all begin again
            "srun_args": ["--kill-on-bad-exit=1"],
            "additional_parameters": {"requeue": True, **launcher.more},
            **{key: launcher[key] for key in ("partition", "account", "qos", "constraint")},
        }
        return tuple(  # type: ignore[return-value]
            {key: value for key, value in each.items() if value is not None}
            for each in (shared, special)
        )


@contextlib.contextmanager
def _print_into(file: Path) -> Iterator[None]:
    """Give processes that start inside a file to print into, since they outlive this one."""
    sys.stdout.flush()
    sys.stderr.flush()
    ours = [os.dup(1), os.dup(2)]
    with open_file(file, "ab") as log:
        for number in (1, 2):
            os.dup2(log.fileno(), number)
    try:
        yield
    finally:
        for number, old in enumerate(ours, 1):
            os.dup2(old, number)
            os.close(old)


def submit(asked: RunSpec, launcher: Launcher) -> command.Result:
    """Submit one command, and say where it is; with --dry-run print what would be submitted."""
    _refuse_idle_machines(asked, launcher)
    given = asked.provenance
    place = asked.select("run.dir")
    if place:
        folder = Path(place).expanduser().absolute()
        cluster = Cluster(launcher, folder / SUBMITTED, name=given.command)
    else:
        cluster = Cluster(launcher, fresh(Path(SUBMITTED)), name=given.command)
    if given.dry_run:
        result = command.perform(asked)
        tell(cluster.describe())
        return result
    if place and not given.resume:
        rundir.refuse_live(folder)
        rundir.refuse_used(folder)
        _refuse_waiting(folder)
        command.check(asked)
        own(folder)
    run = NodeRun(_spell(asked), _count_processes(asked, launcher), launcher.restarts)
    (job,) = cluster.submit([ClusterJob(run, os.getcwd(), ends=True)])
    log = job.task(0).paths.stderr
    if given.json:
        tell(json.dumps({"job": job.job_id, "log": str(log), "dir": place}))
        return 0
    end = f"scancel {job.job_id}" if launcher.cluster == "slurm" else f"kill -INT {job.job_id}"
    remark(f"submitted: job {job.job_id}\nlog: {log}\nend it: {end}")
    if place:
        words = (*given.command.split(), "--resume", f"run.dir={place}", *given.launcher)
        line = spell_line(*words, *as_words(given.plugins, given.config_dirs))
        remark(f"to go on once it has ended:\n  {line}")
    return 0


def _count_processes(asked: RunSpec, launcher: Launcher) -> int:
    """The processes that each machine starts: one, where a command does not train."""
    trained = asked.select("train.processes")
    if trained is None:
        return 1
    return launcher.gpus or (int(trained) if launcher.nodes > 1 else 1)


def _refuse_idle_machines(asked: RunSpec, launcher: Launcher) -> None:
    """Raise ConfigError for several machines of a command that runs on one: each would do all of
    the work.
    """
    if launcher.nodes > 1 and asked.select("train.processes") is None:
        allowed = f"1: plmctl {asked.provenance.command} runs on one machine"
        raise ConfigError("nodes", launcher.nodes, allowed, fix="nodes=1")


def _refuse_waiting(folder: Path) -> None:
    """Raise UsageError if a job waits for its turn to begin a run in `folder`. The first of two
    such jobs would begin the run, and the second would go on with its settings.
    """
    place = folder / SUBMITTED
    for file in sorted(place.glob("*_submitted.pkl")):
        job = file.name.removesuffix("_submitted.pkl")
        if not any(place.glob(f"{job}_*_result.pkl")):
            raise UsageError(
                f"run.dir={folder}: job {job} was submitted for it, and has not begun\n"
                f"  fix: run.dir=ANOTHER  # or cancel the job, and: rm -r {shlex.quote(str(place))}"
            )


def _spell(asked: RunSpec) -> tuple[str, ...]:
    """The command line of a run behind `plmctl`; its folder is known now, whenever it begins."""
    given = asked.provenance
    words = [word for word in given.overrides if key_of(word) != "run.dir"]
    if place := asked.select("run.dir"):
        words.append(f"run.dir={place}")
    head = ["--resume"] if given.resume else [given.recipe] if given.recipe else []
    return (*given.command.split(), *head, *words, *as_words(given.plugins, given.config_dirs))
