"""`-m/--multirun`: Hydra's sweepers and launchers, one folder for each job, a table at the end."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plmctl.core.children import follow_launcher
from plmctl.core.errors import PlmctlError, UsageError, raise_all
from plmctl.core.terminal import remark, screen, tell
from plmctl.report import sweeps
from plmctl.report.sweeps import make_table, read_records
from plmctl.run.compose import Flags, composed, reason, session
from plmctl.run.finish import finish
from plmctl.run.overrides import Word, quoted
from plmctl.run.recipes import option_name, store_recipe
from plmctl.training.stop import STOPPED

if TYPE_CHECKING:
    from omegaconf import DictConfig


@dataclass(frozen=True)
class Job:
    """One job as a launcher calls it, in this process or another: a failure is recorded, never
    raised, so the sweep goes on.
    """

    flags: Flags
    swept: frozenset[str]  # the settings that jobs differ in
    # the process that a worker of a launcher ends with
    sweep: int = field(default_factory=os.getpid)

    def __call__(self, cfg: DictConfig) -> float:
        from hydra.core.hydra_config import HydraConfig
        from omegaconf import OmegaConf

        follow_launcher(self.sweep)
        hydra: Any = HydraConfig.get()
        folder = Path(hydra.runtime.output_dir)
        record: dict[str, Any] = {
            "job": OmegaConf.select(hydra, "job.num", throw_on_missing=False),
            "overrides": (told := list(hydra.overrides.task)),
            "varied": [text for text in told if text.lstrip("+~").partition("=")[0] in self.swept],
            "code": 1,
            "dir": str(folder),
        }
        try:
            record |= self._run(cfg, hydra, folder)
        except PlmctlError as error:
            remark(f"plmctl: {error}")
            record |= {"code": error.exit_code, "error": str(error).splitlines()[0]}
        except Exception as error:  # the boundary of a job
            traceback.print_exc()
            record |= {"error": f"{type(error).__name__}: {error}"}
        record["metrics"] = record.get("metrics") or last_metrics(Path(record["dir"]))
        with contextlib.suppress(OSError):  # a full disk ends the job, not the sweep
            (folder / sweeps.RECORD).write_text(json.dumps(record), encoding="utf-8")
        if record["code"] in STOPPED:
            raise KeyboardInterrupt
        return score(record["metrics"])

    def _run(self, cfg: DictConfig, hydra: Any, folder: Path) -> dict[str, Any]:
        names = {option_name(name): name for name in (self.flags.recipe or "").split(",") if name}
        recipe = names.get(hydra.runtime.choices.get("recipe"))
        words = [
            _word(text, hydra) for text in hydra.overrides.task if not text.startswith("recipe=")
        ]
        _, errors = finish(cfg, self.flags.verb, recipe, words, plugins=self.flags.plugins)
        raise_all(errors)
        if "run" in cfg:
            cfg.run.dir = cfg.run.dir or str(folder)
        elif "out" in cfg:
            cfg.out = cfg.out or str(folder)
        flags = replace(self.flags, recipe=recipe, overrides=tuple(word.text for word in words))
        result = importlib.import_module(f"plmctl.commands.{self.flags.command}").run(
            cfg, flags=flags
        )
        place = {"dir": str(cfg.run.dir if "run" in cfg else folder)}
        return place | (
            {"code": 0, "metrics": dict(result)}
            if isinstance(result, Mapping)
            else {"code": int(result or 0)}
        )


def multirun(flags: Flags) -> int:
    """Run every job of the sweep; 0 when all succeeded, 1 when one failed, 130 when it was
    interrupted.
    """
    from hydra.errors import HydraException
    from hydra.types import RunMode

    words = composed(
        flags.verb,
        flags.recipe,
        flags.overrides,
        config_dirs=flags.config_dirs,
        plugins=flags.plugins,
        sweep=True,
    ).words
    given = [word.key for word in words]
    overrides = [_parent(word) for word in words]
    # a run directory starts empty
    overrides += ["hydra.output_subdir=null"] if "hydra.output_subdir" not in given else []
    # and keeps its own log
    overrides += ["hydra/job_logging=none"] if "hydra/job_logging" not in given else []
    overrides += ["hydra/hydra_logging=none"] if flags.json else []
    with session(flags.verb, flags.config_dirs) as hydra:
        options = [
            store_recipe(name, flags.config_dirs)
            for name in (flags.recipe or "").split(",")
            if name
        ]
        overrides += [f"recipe={','.join(options)}"] if options else []
        code = 0
        try:
            own = hydra.compose_config(flags.verb, overrides, RunMode.MULTIRUN).hydra
            folder = str(own.sweep.dir)
            swept = {word.key for word in words if word.text != word.sample} | set(
                own.sweeper.get("params") or ()
            )
            swept |= {"recipe"} if len(options) > 1 else set()
            overrides = [text for text in overrides if not text.startswith("hydra.sweep.dir=")]
            hydra.multirun(
                flags.verb,
                Job(flags, frozenset(swept)),
                [*overrides, quoted(f"hydra.sweep.dir={folder}")],
            )
        except HydraException as error:
            raise UsageError(reason(error, hydra, flags.verb)) from None
        except KeyboardInterrupt:
            code = 130
    records = read_records(Path(folder))
    tell(json.dumps(records)) if flags.json else _print_table(records, Path(folder))
    if records:
        remark(f"table: {sweeps.write(records, Path(folder))}")
    return code or int(any(record["code"] for record in records))


def _parent(word: Word) -> str:
    """A `run.dir` that is the same for every job holds their folders."""
    one = word.key == "run.dir" and word.text == word.sample and "${" not in word.text
    return word.text.replace("run.dir=", "hydra.sweep.dir=", 1) if one else word.text


def last_metrics(folder: Path) -> dict[str, float]:
    """The last value of every number in metrics.jsonl (a line cut short by a kill is passed
    over), or of dev in result.json.
    """
    file, result = folder / "metrics.jsonl", folder / "result.json"
    # fine-tuning: the scores of the checkpoint that is kept, not of the last one
    if result.is_file():
        scores = json.loads(result.read_text(encoding="utf-8"))["metrics"].get("dev") or {}
        return {f"valid/{name}": float(value) for name, value in scores.items()}
    found: dict[str, float] = {}
    if file.is_file():
        for line in file.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                found |= {
                    key: value
                    for key, value in json.loads(line).items()
                    if isinstance(value, (int, float))
                }
    return found


def score(metrics: Mapping[str, Any]) -> float:
    """What a searching sweeper minimises: the validation loss, else the training loss, else
    nothing (nan).
    """
    for key in ("valid/loss", "loss/valid", "loss"):
        if key in metrics:
            return float(metrics[key])
    return next(
        (float(value) for key, value in metrics.items() if "valid" in key and "loss" in key),
        float("nan"),
    )


def _word(text: str, hydra: Any) -> Word:
    key = text.lstrip("+~").partition("=")[0]
    return Word(text, key, text, group=key in hydra.runtime.choices)


def _print_table(records: list[dict[str, Any]], folder: Path) -> None:
    from rich.table import Column, Table

    head, rows = make_table(records)
    widest = max(len(word) for row in rows for word in row[1].split() or [""])
    columns = [
        Column(name, overflow="fold", min_width=min(widest, 36)) if name == "varied" else name
        for name in head
    ]
    shown = Table(*columns, title=f"{len(records)} jobs in {folder}", title_justify="left")
    for row in rows:
        shown.add_row(*row)
    console = screen()
    console.print(shown)
    for record in records:
        if record.get("error"):
            console.print(f"job {record['job']}: {record['error']}")
