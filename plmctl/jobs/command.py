"""The work of a job: an ordinary command from its composed config, resumed where possible."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

from plmctl.config import command
from plmctl.config.make_spec import spec_of
from plmctl.config.spec import Provenance, RunSpec, thaw
from plmctl.core.spelling import spell
from plmctl.storage.gate import admit, open_file

PAUSE = "train.pause_at"
RESUMABLE = ("pretrain", "finetune")
AFRESH = ("eval", "inject")  # commands that cannot use the files of an earlier start


def execute(record: dict[str, Any], run: Path) -> Any:
    """Run the command of a job's record, and return what it returns; what it makes goes into
    `run`.
    """
    verb, words, plugins = record["verb"], tuple(record["words"]), tuple(record["plugins"])
    given = Provenance(verb, overrides=words, plugins=plugins, json=verb == "eval", within=True)
    config = record["config"]
    place: dict[str, Any] = {"out": str(run)}
    if verb in RESUMABLE:
        if (saved := _read_saved(record, run)) is not None:
            return command.perform(_pause(saved, config["train"]["pause_at"]))
        shutil.rmtree(admit(run), ignore_errors=True)
        place = {"run": {**config["run"], "dir": str(run)}}
    spec = spec_of(verb, config | place, given)
    if verb in AFRESH:
        shutil.rmtree(admit(run), ignore_errors=True)
    if verb != "eval":
        return command.perform(spec)
    admit(run).mkdir(parents=True)
    with open_file(run / "result.json", "w") as out, contextlib.redirect_stdout(out):
        return command.perform(spec)


def _pause(saved: RunSpec, at: int | None) -> RunSpec:
    """The spec of a run that goes on up to its end, or to its next pause.

    Args:
        saved: Its spec so far.
        at: The update of the pause.
    """
    before = saved.select("train.pause_at")
    if before == at:
        return saved.asked(overrides=(), changes=(), within=True)
    word, change = f"{PAUSE}={spell(at)}", f"{PAUSE}: {spell(before)} -> {spell(at)}"
    return saved.replace({PAUSE: at}).asked(overrides=(word,), changes=(change,), within=True)


def _read_saved(record: dict[str, Any], run: Path) -> RunSpec | None:
    """The spec of a run that can be resumed: it has a checkpoint, and lies where it started."""
    from plmctl.runs.resume import resume_spec
    from plmctl.training.checkpoint import Checkpoints

    if (
        not (run / "config.yaml").is_file()
        or Checkpoints(run / "checkpoints", say=lambda message: None).newest() is None
    ):
        return None
    words, plugins = (f"run.dir={run}",), tuple(record["plugins"])
    spec = resume_spec(Provenance(record["verb"], overrides=words, plugins=plugins, resume=True))
    config = record["config"]
    same = all(spec.get(name) == config.get(name) for name in ("checkpoint", "init"))
    path = (config.get("data") or {}).get("path")
    return spec if same and thaw(spec.select("data.path")) == path else None
