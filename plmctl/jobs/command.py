"""What a job does: an ordinary command from its composed config, resumed where it can be."""

from __future__ import annotations

import contextlib
import importlib
import shutil
from pathlib import Path
from typing import Any

from plmctl.run.compose import Flags

RESUMABLE = ("pretrain", "finetune")


def execute(record: dict[str, Any], run: Path) -> int:
    """Run the command of a job's record; what it makes goes into `run`. Returns its exit code."""
    from omegaconf import OmegaConf

    verb, cfg = record["verb"], OmegaConf.create(record["config"])
    flags = Flags(verb, overrides=tuple(record["words"]), plugins=tuple(record["plugins"]))
    if verb in RESUMABLE and (saved := _saved(record, run)) is not None:
        cfg, flags = saved, Flags(verb, plugins=flags.plugins, resume=True)
    elif verb in RESUMABLE:
        shutil.rmtree(run, ignore_errors=True)
        cfg.run.dir = str(run)
    else:
        cfg.out = str(run)
    if verb != "eval":
        return _command(verb, cfg, flags)
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir(parents=True)
    flags = Flags(verb, overrides=flags.overrides, plugins=flags.plugins, json=True)
    with (run / "result.json").open("w", encoding="utf-8") as out, contextlib.redirect_stdout(out):
        return _command(verb, cfg, flags)


def _command(verb: str, cfg: Any, flags: Flags) -> int:
    return int(importlib.import_module(f"plmctl.commands.{verb}").run(cfg, flags=flags) or 0)


def _saved(record: dict[str, Any], run: Path) -> Any:
    """The config of a run that can be resumed: it has a checkpoint, and lies where it started."""
    from plmctl.run.resume import resumed
    from plmctl.training.checkpoint import Checkpoints

    if (
        not (run / "config.yaml").is_file()
        or Checkpoints(run / "checkpoints", say=lambda message: None).newest() is None
    ):
        return None
    words, plugins = (f"run.dir={run}",), tuple(record["plugins"])
    cfg, _ = resumed(Flags(record["verb"], overrides=words, plugins=plugins, resume=True))
    config = record["config"]
    same = all(cfg.get(name) == config.get(name) for name in ("checkpoint", "init"))
    return cfg if same and cfg.data.path == (config.get("data") or {}).get("path") else None
