"""Folders as runs and studies leave them, made without training: numbers by hand, files in the
places of the real ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from plmctl.analysis.statistics import compare, judge, summarise
from plmctl.jobs.work import RECORD
from plmctl.storage.atomic import write_json
from plmctl.storage.job_events import JobEvents
from plmctl.tasks.scores.swaps import correct

CONFIG = {
    "recipe": "bert",
    "data": {"path": None},
    "size": {"num_layers": 2, "width": 32},
    "objective": {"mlm": {"_target_": "plmctl.objectives.mlm.MLM"}},
    "heads": {"mlm": {"_target_": "plmctl.heads.lm.LMHead"}},
    "model": {"_target_": "plmctl.models.encoder.Encoder"},
    "pattern": {"_target_": "plmctl.attention.patterns.base.Full"},
    "optim": {"_target_": "plmctl.training.optim.adamw.AdamW", "lr": 0.001},
    "train": {"steps": 10, "batch_size": 8},
    "seed": 3,
    "run": {"dir": "x"},
}


def run(
    folder: Path,
    *,
    steps: int = 10,
    level: float = 1.0,
    config: Mapping[str, Any] | None = None,
    every: int = 1,
) -> Path:
    """A pretraining of `steps` updates whose loss falls towards `level`."""
    folder.mkdir(parents=True)
    records: list[dict[str, Any]] = []
    for step in range(1, steps + 1, every):
        loss = level + 8.0 / (1 + step)
        records.append(
            {
                "step": step,
                "loss": loss,
                "loss/mlm": loss,
                "acc/mlm": 0.1,
                "lr": 1e-3,
                "tokens_per_second": 1000.0 + step,
                "data_wait": 0.02,
                "mfu": 0.3,
                "tokens": 100 * step,
                "seconds": step / 10,
                "skipped": 0,
            }
        )
        if step == 1 or step % (10 * every) == 1 or step + every > steps:
            records.append(
                {
                    "step": step,
                    "valid/loss": loss + 0.1,
                    "valid/loss/mlm": loss + 0.1,
                    "valid/acc/mlm": 0.25,
                }
            )
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    settings = {**CONFIG, **(config or {})}
    if "task" in settings:  # the task is what a fine-tuning asks
        del settings["objective"]
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    return folder


def tuned(
    folder: Path,
    task: Mapping[str, Any],
    metrics: Mapping[str, Any],
    predictions: Sequence[Mapping[str, Any]] = (),
    **config: Any,
) -> Path:
    """A fine-tuned run with its scores and the predictions of its dev split."""
    run(folder, config={"task": dict(task), **config})
    (folder / "result.json").write_text(json.dumps({"task": task["name"], "metrics": metrics}))
    if predictions:
        (folder / "predictions").mkdir()
        (folder / "predictions" / "dev.jsonl").write_text(
            "".join(json.dumps(each) + "\n" for each in predictions)
        )
    return folder


def study(
    folder: Path, *, arms: int = 3, seeds: int = 2, steps: int = 40, done: bool = True
) -> Path:
    """A study of `arms` x `seeds` pretrainings, one job of which failed and one of which was
    left where it was.
    """
    names = [f"rate {number}" for number in range(arms)]
    settings = {
        "title": "Rates < & > others",
        "recipe": "x/rates.yaml",
        "seeds": list(range(seeds)),
        "baseline": names[0],
        "arms": {name: [f"optim.lr={number}e-3"] for number, name in enumerate(names)},
        "budget": {"steps": steps, "tokens": None},
    }
    folder.mkdir(parents=True)
    write_json(folder / "study.json", settings)
    for number, name in enumerate(names):
        for seed in range(seeds):
            place = folder / "jobs" / f"pretrain-{number:08x}{seed:08x}"
            run(place / "run", steps=steps, level=_level(number, seed))
            label = f"pretrain {name}, seed {seed}"
            record(place, label, "finished")
    for name, event in (("failed", "failed"), ("cut", "started")):
        label = f"sst2 of {names[-1]}, seed {seeds - 1}"
        record(folder / "jobs" / f"finetune-{name}", label, event)
    if done:
        write_json(folder / "table.json", _table(settings, names, seeds))
    return folder


def record(place: Path, label: str, event: Any) -> None:
    """A job of a study that ended so."""
    place.mkdir(parents=True, exist_ok=True)
    write_json(place / RECORD, {"verb": place.name.partition("-")[0], "label": label})
    why = "DataError: no room\nsecond line" if event == "failed" else ""
    JobEvents(place.parent).write("started", place.name, label=label)
    if event != "started":
        JobEvents(place.parent).write(event, place.name, why=why)


def _level(arm: int, seed: int) -> float:
    return 2.0 - 0.1 * arm + 0.003 * math.sin(7 * arm + 3 * seed)


def _table(settings: Mapping[str, Any], names: Sequence[str], seeds: int) -> dict[str, Any]:
    """As plmctl.study.table writes it."""
    values = {
        name: {seed: _level(number, seed) for seed in range(seeds)}
        for number, name in enumerate(names)
    }
    differences = {name: compare(values[name], values[names[0]]) for name in names[1:]}
    corrected = dict(
        zip(
            differences,
            correct([each.p if each else None for each in differences.values()]),
            strict=True,
        )
    )
    rows = []
    for name in names:
        difference, p = differences.get(name), corrected.get(name)
        mean, deviation = summarise(list(values[name].values()))
        expected = "lower" if difference else ""
        rows.append(
            {
                "metric": "loss",
                "arm": name,
                "n": seeds,
                "mean": mean,
                "sd": deviation,
                "difference": difference.mean if difference else None,
                "low": difference.low if difference else None,
                "high": difference.high if difference else None,
                "detectable": 0.021 if difference else None,
                "test": "",
                "p": difference.p if difference else None,
                "p_holm": p,
                "expected": expected,
                "verdict": judge(expected, difference, p),
                "published": 1.5 if name == names[-1] else None,
                "unit": "loss" if name == names[-1] else "",
                "values": values[name],
            }
        )
    costs = [
        {"arm": name, "parameters": 1000, "tokens": 4000.0, "flops": 2.4e7, "seconds": 4.0}
        for name in names
    ]
    missing = [
        {
            "job": "eval-1",
            "label": "eval of last",
            "state": "open",
            "why": "not run yet",
            "cells": f"{names[-1]}, seed 0",
        }
    ]
    return {
        "study": "rates",
        "title": settings["title"],
        "baseline": names[0],
        "seeds": list(range(seeds)),
        "budget": {"steps": 40},
        "seconds": 3723.0,
        "rows": rows,
        "costs": costs,
        "missing": missing,
        "notes": ["A note."],
        "about": {rows[0]["metric"]: "Of what it is; higher is better."},
    }
