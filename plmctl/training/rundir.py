"""A run directory: its files, its lock, and the environment that its numbers depend on.

config.yaml  overrides.txt  env.json  lock
metrics.jsonl  events.out.tfevents.*  checkpoints/step-N/
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from plmctl.core.errors import DataError, UsageError
from plmctl.core.machine import describe_cpu
from plmctl.core.terminal import remark
from plmctl.storage.atomic import write_text
from plmctl.storage.gate import admit, open_file, own
from plmctl.storage.paths import LOG, SUBMITTED
from plmctl.storage.reading import parse_json
from plmctl.training import origins
from plmctl.training.log import METRICS
from plmctl.training.processes.watch import RANKS
from plmctl.training.trackers import base as trackers

CONFIG, LOCK = "config.yaml", "lock"
# in the order in which they are written: a folder with the last one is a run
FILES = ("overrides.txt", "env.json", CONFIG)
# in the environment of a process that was given the lock of its run, as an open file
LOCKED = "PLMCTL_RUN_LOCK"
# other folders, and files, that exist before the first update; `wandb` is that of its tracker,
# `profile` that of traces
FOLDERS = ("tokenizer", "checkpoints", "wandb", "profile", RANKS)
NAMES = (trackers.NAMES, "held_out.json", origins.FILE)


def refuse_used(folder: Path) -> None:
    """Raise UsageError if `folder` is not empty: a run never overwrites another."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"run.dir={folder} is a file\n  fix: another run.dir")
    if folder.exists() and not _holds_only_a_start(folder):
        file = folder / CONFIG
        started = file.is_file() and file.stat().st_size > 0
        go_on = "--resume to continue that run, or " if started else ""
        raise UsageError(f"run.dir={folder} is not empty\n  fix: {go_on}another run.dir")


def refuse_live(folder: Path) -> None:
    """Raise UsageError if another process trains in `folder`, before a new run asks for it."""
    if (holder := find_holder(own(folder))) is not None:
        where = f"run.dir={folder}: a run is going on there{_name_holder(holder)[0]}"
        raise UsageError(f"{where}\n  fix: another run.dir")


def find_holder(folder: Path) -> str | None:
    """Return what the holder of the lock of `folder` wrote into it; None where nobody holds it."""
    with contextlib.suppress(OSError), admit(folder / LOCK).open(encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read()
    return None


def describe_training(folder: Path) -> str:
    """Describe the training of another process in `folder`; "" for none, and for that of this
    process or of its parent.
    """
    given = os.environ.get(LOCKED)
    with contextlib.suppress(OSError):
        if given and os.path.samestat(os.fstat(int(given)), (folder / LOCK).stat()):
            return ""
    holder = find_holder(folder)
    if holder is None or int(os.environ.get("RANK", 0)) or holder.startswith(f"{os.getpid()} "):
        return ""
    return f"it is being trained{_name_holder(holder)[0]}"


def _name_holder(written: str) -> tuple[str, str]:
    """(holder of the lock, how to end it); "" for a process that has not named itself."""
    number, _, machine = written.partition(" ")
    return (f", process {number} on {machine}", f": kill {number}") if machine else ("", "")


def _holds_only_a_start(folder: Path) -> bool:
    """Whether the folder holds only what a start leaves that was interrupted before the config was
    written.
    """
    names, partial = [file.name for file in folder.iterdir()], tuple(f".{name}." for name in FILES)
    started = CONFIG in names and (folder / CONFIG).stat().st_size > 0
    known = (*FILES, LOCK, LOG, SUBMITTED)
    return not started and all(name in known or name.startswith(partial) for name in names)


def create(
    folder: Path,
    *,
    config: str,
    overrides: Sequence[str],
    config_dirs: Sequence[str] = (),
    code: Mapping[str, str] | None = None,
    lock: Callable[[Path], object] = lambda folder: None,
) -> list[Path]:
    """Start a run directory.

    Args:
        config_dirs: the folders of --config-dir, which --resume reads again.
        code: {file: hash} of plug-ins, with which --resume compares.
        lock: called with the folder before anything is read or written in it.

    Returns:
        The folders that were created for it, the innermost first.

    Raises:
        UsageError: if the folder is not empty.
        DataError: if it cannot be written.
    """
    refuse_used(folder)
    created = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    dirs = [str(Path(each).expanduser().resolve()) for each in config_dirs]
    start = {**environment(), "folder": str(Path.cwd()), "config_dirs": dirs}
    start |= {"code": dict(code)} if code else {}
    texts = ("".join(f"{line}\n" for line in overrides), json.dumps(start, indent=1), config)
    try:
        admit(own(folder)).mkdir(parents=True, exist_ok=True)
        lock(folder)
        refuse_used(folder)
        for name, text in zip(FILES, texts, strict=True):
            write_text(folder / name, text)
    except OSError as error:
        undo_create(folder, created)
        problem = f"cannot write the run directory: {error.strerror}"
        raise DataError(problem, file=folder, fix="run.dir=<a writable folder>") from error
    except KeyboardInterrupt:
        undo_create(folder, created)
        raise
    return created


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[dict[str, int]]:
    """Lock `folder`, so that no other process trains in it.

    Yields:
        The environment through which child processes share the lock.

    The system releases the lock when the last process that has it ends. UsageError if another
    process has it.
    """
    places = [own(folder) / name for name in (*FILES, *FOLDERS, *NAMES, METRICS)]
    for place in (*places, *folder.glob("checkpoints/*")):
        admit(place)  # before hours of training, not behind them
    if LOCKED in os.environ:
        yield {}
        return
    with open_file(folder / LOCK, "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            who, end = _name_holder(file.read())
            raise UsageError(
                f"run.dir={folder}: another process is training there{who}\n"
                f"  fix: wait until it has ended, or end it{end}"
            ) from None
        except OSError as error:  # a network file system without locks
            message = (
                f"{folder} cannot be locked ({error.strerror}):"
                " make sure that no other process trains there"
            )
            remark(f"plmctl: {message}")
        file.truncate(0)
        file.write(f"{os.getpid()} {platform.node()}")
        file.flush()
        yield {LOCKED: file.fileno()}


def undo_create(folder: Path, created: Sequence[Path]) -> None:
    """Undo `create`, unless an update was made in `folder`.

    Args:
        made: the folders that `create` returned.

    Other files stay, and so do the folders with them.
    """
    if (folder / METRICS).exists() or any((folder / "checkpoints").glob("step-*")):
        return
    for name in FOLDERS:
        shutil.rmtree(admit(folder / name), ignore_errors=True)
    with contextlib.suppress(OSError):
        for name in (*FILES, *NAMES, LOCK):
            admit(folder / name).unlink(missing_ok=True)
        for path in created:
            admit(path).rmdir()


def environment() -> dict[str, Any]:
    """The properties of machine and software on which bit-exact numbers depend."""
    return {
        "torch": torch.__version__,
        "cpu": describe_cpu(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
    }


def restore_environment(folder: Path, say: Callable[[str], None], *, threads: bool = True) -> None:
    """Set the saved number of threads (unless `threads` is false), and report in one line what
    differs from the first session.
    """
    try:
        saved = parse_json((folder / "env.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    if threads:
        torch.set_num_threads(int(saved["threads"]))
    now = environment()
    changed = [
        f"{name} {saved[name]} -> {now[name]}"
        for name in ("torch", "cpu", "threads")
        if saved.get(name) != now[name]
    ]
    if changed:
        say(f"not bit-exact from here on: {', '.join(changed)}")
