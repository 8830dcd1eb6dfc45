"""`plmctl ablate`: run a study's arms over its seeds and write the table of their differences."""

from __future__ import annotations

import hashlib
import json
import shlex
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich import box
from rich.console import Console
from rich.table import Table

from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.terminal import remark, screen, tell
from plmctl.run.build import plain
from plmctl.run.compose import Flags
from plmctl.run.plugins import as_words
from plmctl.run.schema import LENGTHS
from plmctl.study import plan as planning
from plmctl.study.launched import Launched
from plmctl.study.local import Local
from plmctl.study.plan import Plan
from plmctl.study.results import Results
from plmctl.study.run import Runner, opened
from plmctl.study.study import parse
from plmctl.study.table import write_table

EDITED = (
    "The study's file was edited while it ran;"
    " this is the table of the study as it was at the start. Run it again."
)


def run(cfg: DictConfig, flags: Flags) -> int:
    """Run the study, or with --dry-run show its plan; 0, or 1 where a cell failed, or 130, 143
    or 129 after a signal.
    """
    settings = {str(key): value for key, value in plain(cfg).items()}
    file = Path(settings["recipe"])
    before = _digest(file)
    study = parse(settings, name=file.stem, config_dirs=flags.config_dirs)
    folder = Path(settings["out"] or Path("studies") / study.name)
    plan = planning.plan(study, flags)
    if flags.dry_run:
        return _show(plan, folder, flags)
    for line in study.left_out:
        _say(f"left out, and its metrics with it, until it is given: {line}")
    with opened(folder, {**settings, "jobs": {name: job.label for name, job in plan.jobs.items()}}):
        runner = _runner(plan, folder, settings["processes"], flags)
        code = runner.run()
        notes = [EDITED] if _digest(file) != before else []
        record = write_table(study, Results(plan, runner.states, runner.place), folder, notes=notes)
    for note in record["notes"]:
        _say(note)
    _conclude(record, folder, flags, code)
    return code


def _runner(plan: Plan, folder: Path, processes: int, flags: Flags) -> Runner:
    """Processes of this machine, or with `hydra/launcher=` whatever that starts."""
    common: dict[str, Any] = {"plugins": flags.plugins, "say": _say}
    if not flags.launcher:
        return Local(plan, folder, processes=processes, **common)
    if not any(word.startswith("hydra/launcher=") for word in flags.launcher):
        raise UsageError(
            f"{flags.launcher[0]}: of which launcher?\n  fix: hydra/launcher=<name> before it"
        )
    if processes != 1:
        raise ConfigError(
            "processes",
            processes,
            "the launcher decides how many jobs run at a time",
            fix="leave it out",
        )
    return Launched(plan, folder, words=flags.launcher, **common)


def _conclude(record: dict[str, Any], folder: Path, flags: Flags, code: int) -> None:
    if flags.json:
        tell(json.dumps(record))
    else:
        _print(record)
    remark(f"table: {folder / 'table.md'}")
    if code:
        what = (
            "stopped; what is finished stays so"
            if code > 1
            else "some jobs failed; what is finished stays so"
        )
        folders = [word for each in flags.config_dirs for word in ("--config-dir", each)]
        line = [
            str(flags.recipe),
            *flags.overrides,
            *flags.launcher,
            *folders,
            *as_words(flags.plugins),
        ]
        remark(f"{what}. To go on:\n  plmctl ablate {shlex.join(line)}")


def _print(record: dict[str, Any]) -> None:
    lines = []
    for row in record["rows"]:
        numbers = [_number(row[name]) for name in ("mean", "sd", "difference", "p_holm")]
        published = f"{_number(row['published'])} {row['unit']}".strip()
        lines.append(
            [
                row["metric"],
                row["arm"],
                str(row["n"]),
                *numbers,
                row["expected"],
                row["verdict"],
                published,
            ]
        )
    head = ["metric", "arm", "n", "mean", "sd", "diff", "p", "expected", "verdict", "published"]
    shown = [place for place in range(len(head)) if any(line[place] for line in lines)]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for place in shown:
        table.add_column(head[place], overflow="fold", min_width=len(head[place]))
    for line in lines:
        table.add_row(*(line[place] for place in shown))
    console = screen()
    console.print(table)
    for each in record["missing"]:
        console.print(f"{each['state']}: {each['label']}: {each['why'].splitlines()[0]}")


def _show(plan: Plan, folder: Path, flags: Flags) -> int:
    """The plan and its cost; nothing is written."""
    runner = _runner(plan, folder, 1, flags)
    verbs = list(dict.fromkeys(job.verb for job in plan.jobs.values()))
    counts = {
        verb: [
            sum(job.verb == verb for job in plan.jobs.values()),
            sum(
                job.verb == verb and runner.states[name].kind == "done"
                for name, job in plan.jobs.items()
            ),
        ]
        for verb in verbs
    }
    arms = [_cost(plan, name) for name in plan.arms]
    if flags.json:
        jobs = [
            {"job": name, "label": job.label, "state": runner.states[name].kind}
            for name, job in plan.jobs.items()
        ]
        tell(
            json.dumps(
                {
                    "cells": len(plan.cells),
                    "jobs": jobs,
                    "arms": arms,
                    "left_out": plan.study.left_out,
                }
            )
        )
        return 0
    console = screen()
    console.print(
        f"{len(plan.cells)} cells: {len(plan.arms)} arms x {len(plan.study.seeds)} seeds,"
        f" in {folder}"
    )
    table = Table("jobs", "all", "done already")
    for verb, (total, done) in counts.items():
        table.add_row(verb, str(total), str(done))
    console.print(table)
    _print_costs(console, arms, len(plan.study.seeds))
    for line in _tuning(plan):
        console.print(line)
    for line in plan.study.left_out:
        console.print(f"left out until it is given: {line}")
    return 0


def _tuning(plan: Plan) -> list[str]:
    """How long the fine-tuning on each task is, which the budget of pretraining does not
    shorten.
    """
    lengths: dict[str, list[str]] = {}
    for each in plan.arms.values():
        for task, points in each.tuned.items():
            for train in (point["train"] for point in points):
                length = ", ".join(
                    f"{train[name]:,} {name}" for name in LENGTHS if train.get(name) is not None
                )
                lengths.setdefault(task, []).append(
                    f"{length} of {train['batch_size']} rows an update"
                )
    note = "budget= is that of pretraining; finetune.overrides=[train.epochs=...] sets this"
    return [
        f"fine-tuning on {task}: {' or '.join(dict.fromkeys(each))} ({note})"
        for task, each in lengths.items()
    ]


def _print_costs(console: Console, arms: list[dict[str, Any]], seeds: int) -> None:
    table = Table(
        "arm",
        "parameters",
        "tokens",
        "training FLOPs",
        f"of all {seeds} seeds",
        title="Pretraining, at most",
    )
    for each in arms:
        flops = each["flops"]
        numbers = [
            _number(each["tokens"]),
            _number(flops),
            _number(None if flops is None else flops * seeds),
        ]
        table.add_row(each["arm"], f"{each['parameters']:,}", *numbers)
    known = [each["flops"] for each in arms if each["flops"] is not None]
    if known:
        table.add_section()
        table.add_row("total", "", "", _number(sum(known)), _number(sum(known) * seeds))
    console.print(table)


def _cost(plan: Plan, name: str) -> dict[str, Any]:
    """Tokens and FLOPs of one seed's pretraining, at most; none are known where time is the
    budget.
    """
    each = plan.arms[name]
    train, length = each.pretrain["train"], each.pretrain["format"]["max_length"]
    steps = train["steps"] and train["steps"] * train["batch_size"] * length
    tokens = (train["tokens"] or steps) if each.arm.pretrain else 0
    flops = None if tokens is None else tokens * each.flops_per_token
    return {"arm": name, "parameters": each.parameters, "tokens": tokens, "flops": flops}


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def _say(line: str) -> None:
    remark(line)
