"""One sitting of a run: its directory, its processes, its device and log, and its last lines."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from plmctl.artifacts.exportable import describe_unexportable
from plmctl.config.plugins import as_words, hash_code, option
from plmctl.config.saved import spec_text
from plmctl.config.spec import thaw
from plmctl.core.spelling import spell_word
from plmctl.core.terminal import DETAIL, REMARK, WARN, remark, spell_level
from plmctl.runs.resume import keep_changes, list_changed_code, list_told
from plmctl.training import rundir
from plmctl.training.device.allocator import keep_freed_memory
from plmctl.training.device.precision import Precision, choose
from plmctl.training.log import Log
from plmctl.training.origins import keep_origin
from plmctl.training.processes.launch import FINAL, is_launched, launch
from plmctl.training.processes.threads import THREADS, count_threads, describe_busy
from plmctl.training.processes.watch import watching
from plmctl.training.processes.world import (
    World,
    check_alike,
    environment,
    explain_loss,
    form_teams,
    is_loss,
    join,
    leave,
)
from plmctl.training.trackers.choose import open_trackers
from plmctl.training.trainer import Result

# the first step of every process, of the main one before there are others: read the data, which may
# change the spec
Prepare = Callable[[Any], tuple[Any, Any]]


@dataclass(frozen=True)
class Session:
    """One sitting of a run: its spec (as saved), its directory, and this process' rank in it."""

    spec: Any  # RunSpec of pretraining or fine-tuning
    folder: Path
    world: World
    precision: Precision
    log: Log
    prepared: Any  # the result of `prepare` in this process besides the spec

    def say(self, message: str, level: int = REMARK) -> None:
        self.log.say(message, level)

    def keep_origin(self, setting: str, folder: Path) -> None:
        """Keep which checkpoint a setting named, as a file of the run."""
        if self.world.main:
            keep_origin(self.folder, setting, folder)


After = Callable[[Session, Result], Result]  # the work of another command once the training is over
# {a command that goes on from a session's run, with {run} for its folder: a remark on it, or ""}
Next = Callable[[Session], Mapping[str, str]]


def run_session(spec: Any, prepare: Prepare, train: Callable[[Session], Result], then: Next) -> int:
    """Run `train` in a fresh or resumed run directory, in `train.processes` processes; returns the
    exit code.

    The main process prepares the data and opens the directory before a process group exists; every
    process then has the spec that is saved there, so that one process, several, and a resumed run
    take the same way. Whatever ends it before the first update, a new directory goes again, so that
    the corrected command finds it free.

    Args:
        prepare: Reads the data; returns the spec with their decisions, and the data.
        then: The commands that the last lines of a finished run name.
    """
    if "TORCHELASTIC_ERROR_FILE" in os.environ:  # by which torchrun reports the first error
        from torch.distributed.elastic.multiprocessing.errors import record

        return record(_run_session)(spec, prepare, train, then) or 0
    return _run_session(spec, prepare, train, then)


def _run_session(
    spec: Any, prepare: Prepare, train: Callable[[Session], Result], then: Next
) -> int:
    rank, _, size = environment()
    if rank != 0:
        return _sitting(spec, prepare, None, train, then)
    with contextlib.ExitStack() as stack:
        lock: dict[str, int] = {}
        spec, prepared, created = _open(
            spec,
            prepare,
            lambda folder: lock.update(stack.enter_context(rundir.lock_folder(folder))),
        )
        try:
            # one process that may start anew has a launcher, too
            if size == 1 and (
                spec.train.processes > 1 or (spec.train.restarts and not is_launched())
            ):
                return _launch(spec, lock)
            return _sitting(spec, prepare, prepared, train, then)
        finally:
            if created is not None:
                rundir.undo_create(Path(spec.run.dir), created)


def quoted(path: Path) -> str:
    """A path as a command line takes it."""
    return spell_word(str(path))


def _sitting(
    spec: Any, prepare: Prepare, prepared: Any, train: Callable[[Session], Result], then: Next
) -> int:
    """This process' part, once the directory is open; returns the exit code."""
    world = everyone = join(spec.train.device, timeout=spec.train.timeout)
    try:
        # the words of the command line stay those of this process
        if not world.alone:
            own = spec.provenance
            spec = world.broadcast(spec)
            spec = replace(spec, provenance=replace(own, resume=spec.run.resume))
        folder, timeout = Path(spec.run.dir), spec.train.timeout
        with watching(folder, rank=everyone.rank, size=everyone.size, timeout=timeout):
            world = form_teams(everyone, spec.train.tensor_parallel)
            session, result = _train(spec, world, prepare, prepared, train)
    finally:
        leave()
    if world.main:
        _say_farewell(result, session, then)
    return result.exit_code


def _train(
    spec: Any, world: World, prepare: Prepare, prepared: Any, train: Callable[[Session], Result]
) -> tuple[Session, Result]:
    """Train in this process, among others that have the same software."""
    check_alike(world.all, lambda line: remark(line, WARN) if world.main else None)
    if not world.main:
        spec, prepared = prepare(spec)
    session = _session(spec, world, prepared)
    busy = describe_busy() if world.device.type == "cpu" else ""
    if world.main and busy:
        session.say(busy)
    try:
        return session, train(session)
    except RuntimeError as error:
        if world.all.alone or not is_loss(error):
            raise
        raise explain_loss(error) from error
    finally:  # whatever ends it, what is sent to a service has an end
        session.log.close()


def _open(
    spec: Any, prepare: Prepare, lock: Callable[[Path], None]
) -> tuple[Any, Any, list[Path] | None]:
    """The spec of a new run directory, the data, and the folders that were made; no new folders on
    resume. It is locked before anything is written in it.

    Data come first: what they refuse leaves no directory behind.
    """
    torch.set_num_threads(count_threads(spec.train.threads, spec.train.processes))
    given, folder = spec.provenance, Path(spec.run.dir)
    if given.resume:
        lock(folder)
        return *prepare(spec), None
    rundir.refuse_live(folder)
    rundir.refuse_used(folder)
    spec, prepared = prepare(spec)
    decided = given.decision.words if given.decision else ()
    said = [*([given.recipe] if given.recipe else []), *decided, *given.overrides]
    created = rundir.create(
        folder,
        config=spec_text(spec),
        overrides=said,
        config_dirs=given.config_dirs,
        code=hash_code(thaw(spec)) if spec.plugins else {},
        lock=lock,
    )
    return spec, prepared, created


def _launch(spec: Any, lock: Mapping[str, int]) -> int:
    """The children resume the directory that is open now, with the same changes; without a
    checkpoint in it they begin at 0.
    """
    given = spec.provenance
    words = given.overrides if given.resume else ()
    changes = [word for word in words if not word.startswith("run.dir=")]
    command = [given.command, "--resume", f"run.dir={spec.run.dir}", *changes]
    command += [*as_words(given.plugins, given.config_dirs), *spell_level()]
    code = launch(spec.train.processes, command, given=lock, restarts=spec.train.restarts)
    if code not in (1, *FINAL):  # a process was lost
        remark(f"saved updates stay{_spell_again(spec)}", WARN)
    return code


def _spell_again(spec: Any) -> str:
    """The words that end a line with the command that goes on with a run."""
    given = spec.provenance
    options = option(given.plugins, given.config_dirs)
    again = f"plmctl {given.command} --resume run.dir={quoted(Path(spec.run.dir))}{options}"
    return "" if given.within else f". To go on:\n  {again}"


def _session(spec: Any, world: World, prepared: Any) -> Session:
    folder, given = Path(spec.run.dir), spec.provenance
    log = Log(quiet=True)
    if world.main:
        trackers = open_trackers(spec.run.trackers, spec.plugins)
        log = Log(folder, trackers=trackers, settings=spec.used())
    for change in list_told(given.changes):
        log.say(f"resumed with another {change}, which the run keeps")
    if world.main and given.resume:
        keep_changes(spec)
        for line in list_changed_code(spec, folder):
            log.say(line)
    if given.resume:
        keys = ("train.processes", "train.threads")
        as_before = not any(change.startswith(keys) for change in given.changes)
        free = spec.train.threads is None and THREADS not in os.environ
        rundir.restore_environment(folder, log.say, threads=as_before and free)
    keep_freed_memory(world.device)
    if spec.train.deterministic:
        torch.use_deterministic_algorithms(True)
    precision = choose(spec.train.precision, world.device)
    threads = torch.get_num_threads()
    remark(f"{folder} on {world.device}, {precision.name}, {threads} threads", DETAIL)
    return Session(spec, folder, world, precision, log, prepared)


def _say_farewell(result: Result, session: Session, then: Next) -> None:
    """The last lines: where everything is, or how to go on after a signal."""
    folder, given = session.folder, session.spec.provenance
    run, plugins = quoted(folder), option(given.plugins)
    options = option(given.plugins, given.config_dirs)
    if result.exit_code:
        go_on = _spell_again(session.spec)
        remark(f"stopped after {result.progress.step} updates, all saved{go_on}", WARN)
        return
    remark(f"run: {folder}\ncheckpoint: {result.checkpoint}")
    asked = result.checkpoint if "model" in session.spec and not given.within else None
    if asked and (line := describe_unexportable(asked, folder, plugins=given.plugins)):
        remark(line)
    lines = (  # a command with settings reads them from those folders, too
        f"  {command.format(run=run)}{options if '=' in command else plugins}"
        + (f"  # {about}" if about else "")
        for command, about in then(session).items()
    )
    remark("\n".join(["next:", *lines]))
