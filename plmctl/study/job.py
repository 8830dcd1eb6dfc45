"""One job of a study, as a process of its own.

FOLDER/job.json   verb, config, words, plugins      FOLDER/run/        what the command makes
FOLDER/done.json  it ended well                     FOLDER/error.json  it did not, and why
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import os
import shutil
import sys
import traceback
from pathlib import Path
from typing import Any

from plmctl.core.children import follow_maker
from plmctl.core.errors import PlmctlError
from plmctl.core.terminal import remark
from plmctl.run.compose import Flags
from plmctl.storage.atomic import write_json
from plmctl.training.stop import STOPPED

JOB, DONE, ERROR, RUN, LOG = "job.json", "done.json", "error.json", "run", "log.txt"


def enter(folder: str, here: str) -> None:
    """What a new process does: all output goes to the job's log, signals come from the study
    alone.
    """
    os.setsid()
    os.chdir(here)
    with (Path(folder) / LOG).open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    follow_maker()
    sys.exit(perform(Path(folder)))


def perform(folder: Path) -> int:
    """Run the job unless it is done; continue its run where that has a checkpoint. Returns the
    exit code of the command.
    """
    with (folder / "lock").open("w") as lock:
        # a process that an earlier, killed study left behind is still saving
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / DONE).is_file():
            return 0
        (folder / ERROR).unlink(missing_ok=True)
        job = json.loads((folder / JOB).read_text(encoding="utf-8"))
        try:
            code = _run(job, folder / RUN)
            problem = (
                {} if code in (0, *STOPPED) else {"code": code, "error": f"ended with code {code}"}
            )
        except PlmctlError as error:
            remark(f"plmctl: {error}")
            code, problem = error.exit_code, {"code": error.exit_code, "error": str(error)}
        except KeyboardInterrupt:
            return 130
        except Exception as error:  # the boundary of a job
            traceback.print_exc()
            code, problem = 1, {"code": 1, "error": f"{type(error).__name__}: {error}"}
        if code == 0:
            _conclude(job, folder)
        elif problem:
            write_json(folder / ERROR, problem)
    return code


def _run(job: dict[str, Any], run: Path) -> int:
    from omegaconf import OmegaConf

    verb, cfg = job["verb"], OmegaConf.create(job["config"])
    flags = Flags(
        verb, overrides=tuple(job["words"]), plugins=tuple(job["plugins"]), json=verb == "eval"
    )
    if verb in ("pretrain", "finetune") and (resumed := _saved(job, run)) is not None:
        cfg, flags = resumed, Flags(verb, plugins=flags.plugins, resume=True)
    else:
        # tokenizing goes on by itself
        shutil.rmtree(run, ignore_errors=True) if verb != "tokenize" else None
        if verb in ("pretrain", "finetune"):
            cfg.run.dir = str(run)
        else:
            cfg.out = str(run)
    command = importlib.import_module(f"plmctl.commands.{verb}").run
    if verb != "eval":
        return int(command(cfg, flags=flags) or 0)
    run.mkdir(parents=True, exist_ok=True)
    with (run / "result.json").open("w", encoding="utf-8") as out, contextlib.redirect_stdout(out):
        return int(command(cfg, flags=flags) or 0)


def _saved(job: dict[str, Any], run: Path) -> Any:
    """The config of a run that can go on: it has a checkpoint, and lies where it was started."""
    from plmctl.run.resume import resumed
    from plmctl.training.checkpoint import Checkpoints

    if (
        not (run / "config.yaml").is_file()
        or Checkpoints(run / "checkpoints", say=lambda message: None).newest() is None
    ):
        return None
    cfg, _ = resumed(
        Flags(
            job["verb"], overrides=(f"run.dir={run}",), plugins=tuple(job["plugins"]), resume=True
        )
    )
    same = all(cfg.get(name) == job["config"].get(name) for name in ("checkpoint", "init"))
    data = job["config"].get("data")
    return cfg if same and cfg.data.path == (data or {}).get("path") else None


def _conclude(job: dict[str, Any], folder: Path) -> None:
    write_json(folder / DONE, {"kept": job["keep"]})
    if not job["keep"]:
        shutil.rmtree(folder / RUN / "checkpoints", ignore_errors=True)
