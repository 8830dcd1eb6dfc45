"""`-m/--multirun`: Hydra's sweeper makes the jobs, each has a folder, and a table is the end."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from plmctl.core.errors import raise_all
from plmctl.core.terminal import remark, screen, tell
from plmctl.jobs.job import remark_next
from plmctl.jobs.work import LauncherTask, Outcome, attempt
from plmctl.report import sweeps
from plmctl.report.job_events import JobEvents
from plmctl.report.runs import CONFIG
from plmctl.run import action
from plmctl.run.compose import composed
from plmctl.run.composer import LauncherJob, current_job, open_composer, store_recipe
from plmctl.run.finish import finish
from plmctl.run.overrides import OverrideWord, quote
from plmctl.run.recipes import option_name
from plmctl.run.references import UnresolvedReference, work_out
from plmctl.run.resume import resume_spec
from plmctl.run.spec import Provenance, key_of
from plmctl.storage.atomic import write_json
from plmctl.storage.lines import read_lines

SWEEP_DIR = "hydra.sweep.dir"


@dataclass(frozen=True)
class SweepJob:
    """One job as a launcher calls it: it writes down how it ended, so that the sweep goes on.

    A run that an earlier start of the sweep has finished is not made again, and one that it left
    behind is resumed.
    """

    given: Provenance
    swept: frozenset[str]  # the settings that jobs differ in
    folder: Path  # of the sweep

    def __call__(self, settings: dict[str, Any]) -> Outcome:
        job, events = current_job(), JobEvents(self.folder)
        name, run = os.path.relpath(job.folder, self.folder), _run_folder(settings) or job.folder
        known = events.of(name).record or {}
        finished = events.of(name).event == "finished" and known.get("overrides") == job.words
        if finished and self._makes_runs and (run / CONFIG).is_file():
            return Outcome(0, result=score(known["metrics"]))
        outcome = attempt(lambda: self._run(settings, job))
        result = outcome.result if isinstance(outcome.result, Mapping) else {}
        record: dict[str, Any] = {
            "job": job.number,
            "overrides": job.words,
            "varied": [word for word in job.words if key_of(word) in self.swept],
            "code": outcome.code,
            "dir": str(run),
            "metrics": dict(result) or read_last_metrics(run),
        }
        record |= {"error": outcome.error.splitlines()[0]} if outcome.error else {}
        with contextlib.suppress(OSError):  # a full disk ends the job, not the sweep
            write_json(job.folder / sweeps.RECORD, record)
            events.write(outcome.event if self._makes_runs else "started", name, record=record)
        return replace(outcome, result=score(record["metrics"]))

    @property
    def _makes_runs(self) -> bool:
        return not (self.given.dry_run or self.given.preview)

    def _run(self, settings: dict[str, Any], job: LauncherJob) -> Any:
        names = {option_name(name): name for name in (self.given.recipe or "").split(",") if name}
        recipe = names.get(str(job.choices.get("recipe")))
        words = [
            OverrideWord(text, key_of(text), text, group=key_of(text) in job.choices)
            for text in job.words
            if not text.startswith("recipe=")
        ]
        given = replace(self.given, recipe=recipe, overrides=tuple(word.text for word in words))
        spec, errors = finish(settings, words, given)
        raise_all(errors)
        assert spec is not None
        key = "run.dir" if "run" in spec else "out" if "out" in spec else ""
        if key and not spec.select(key):
            spec = spec.replace({key: str(job.folder)})
        if key == "run.dir" and self._makes_runs and Path(spec.select(key), CONFIG).is_file():
            own = (*given.overrides, f"run.dir={spec.select(key)}")
            spec = resume_spec(replace(given, overrides=own, resume=True))
        return action.perform(spec)


def sweep(given: Provenance) -> int:
    """Run every job of a sweep.

    Returns:
        0 when all succeeded, 1 when one failed, 130 when it was interrupted.
    """
    config_dirs = given.config_dirs
    words = composed(given, sweep=True).words
    keys = [word.key for word in words]
    overrides = [_shared_folder(word) for word in words]
    # a run directory starts empty, and keeps its own log
    quiet = {"hydra.output_subdir": "null", "hydra/job_logging": "none"}
    overrides += [f"{key}={value}" for key, value in quiet.items() if key not in keys]
    overrides += ["hydra/hydra_logging=none"] if given.json else []
    recipes = [name for name in (given.recipe or "").split(",") if name]
    with open_composer(given.verb, config_dirs) as composer:
        if recipes:
            options = [store_recipe(name, config_dirs) for name in recipes]
            overrides += [f"recipe={','.join(options)}"]
        folder, swept = composer.sweep_folder(overrides)
        swept |= {word.key for word in words if word.text != word.sample}
        swept |= {"recipe"} if len(recipes) > 1 else set()
        overrides = [text for text in overrides if not text.startswith(f"{SWEEP_DIR}=")]
        overrides += [quote(f"{SWEEP_DIR}={folder}")]
        task = LauncherTask(SweepJob(given, frozenset(swept), Path(folder).resolve()))
        interrupted = composer.multirun(task, overrides)
    records = sweeps.read_records(Path(folder))
    tell(json.dumps(records)) if given.json else _print_table(records, Path(folder))
    if records:
        remark(f"table: {sweeps.write(records, Path(folder))}")
    code = 130 if interrupted else int(any(record["code"] for record in records))
    if code:
        typed = [word for word in given.overrides if key_of(word) not in ("run.dir", SWEEP_DIR)]
        recipe = [given.recipe] if given.recipe else []
        line = (given.command, *recipe, "-m", *typed, f"{SWEEP_DIR}={folder}")
        remark_next("stopped" if interrupted else "some jobs failed", *line, given=given)
    return code


def read_last_metrics(folder: Path) -> dict[str, float]:
    """The last value of every number in metrics.jsonl, or the scores of dev in result.json."""
    file, result = folder / "metrics.jsonl", folder / "result.json"
    # fine-tuning: the scores of the checkpoint that is kept, not of the last one
    if result.is_file():
        scores = json.loads(result.read_text(encoding="utf-8"))["metrics"].get("dev") or {}
        return {f"valid/{name}": float(value) for name, value in scores.items()}
    last = {key: value for record in read_lines(file)[0] for key, value in record.items()}
    return {key: value for key, value in last.items() if isinstance(value, (int, float))}


def score(metrics: Mapping[str, Any]) -> float:
    """What a searching sweeper minimises: the validation loss, else the training loss, else nan."""
    names = ["valid/loss", "loss/valid", "loss"]
    names += [key for key in metrics if "valid" in key and "loss" in key]
    return next((float(metrics[name]) for name in names if name in metrics), float("nan"))


def _shared_folder(word: OverrideWord) -> str:
    """A `run.dir` that is the same for every job holds their folders."""
    shared = word.key == "run.dir" and word.text == word.sample and "${" not in word.text
    return word.text.replace("run.dir=", f"{SWEEP_DIR}=", 1) if shared else word.text


def _run_folder(settings: dict[str, Any]) -> Path | None:
    """The `run.dir` of a job, where its words decide it."""
    try:
        run = work_out(settings).get("run") or {}
    except UnresolvedReference:
        return None
    return Path(run["dir"]) if run.get("dir") else None


def _print_table(records: list[dict[str, Any]], folder: Path) -> None:
    from rich.table import Column, Table

    head, rows = sweeps.make_table(records)
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
