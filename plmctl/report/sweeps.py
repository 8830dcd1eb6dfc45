"""The results of the jobs of a sweep: the varied settings, exit codes, metrics, and the table of
all jobs.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from plmctl.analysis.likeness import find_examples, list_unlike, list_unlike_examples
from plmctl.analysis.runs import read_result
from plmctl.analysis.statistics import summarise
from plmctl.config.part_help import targets
from plmctl.config.quoting import unquote
from plmctl.config.recipes import part_files
from plmctl.config.saved import read_spec
from plmctl.config.spec import thaw
from plmctl.core.errors import list_some
from plmctl.core.progress import clock
from plmctl.core.rounding import spell_size
from plmctl.core.terminal import counted
from plmctl.report.page import Block, Heading, TableBlock, render_markdown
from plmctl.report.study_tables import format_spread
from plmctl.report.text import format_setting
from plmctl.storage.atomic import write_text
from plmctl.storage.formulas import guard
from plmctl.storage.gate import own
from plmctl.storage.job_events import Event, JobEvents, LastEvent
from plmctl.storage.reading import parse_json
from plmctl.training.stop import STOPPED

RECORD = "job.json"  # in each job's folder, whatever launcher ran it
PAGE, SHEET = "sweep.md", "sweep.csv"
ABSENT = "-"  # the value of a setting that a job does not have
FOLD = "task.fold"
REPEATED = ("seed", "head_seed", FOLD)  # runs that differ in these alone are one run, repeated
TASK = "task"
SPELLED: dict[str, Callable[[float], str]] = {
    "seconds": clock,
    "bytes": spell_size,
    "busy_seconds": clock,
}
FEW = 3  # metrics that are shown; the file of comma-separated values has all


def read_record(folder: Path) -> dict[str, Any]:
    """The record of the job in this folder; empty if it belongs to no sweep."""
    try:
        record = parse_json((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return (
        record if isinstance(record, dict) and "overrides" in record and "metrics" in record else {}
    )


def read_events(folder: Path) -> dict[str, LastEvent]:
    """The last event of each job of the sweep in `folder`.

    The journal has the events; a job that it lacks has its record alone, as older versions left it.
    """
    events = JobEvents(folder).last
    for file in sorted(folder.glob(f"*/{RECORD}")):
        record = read_record(file.parent)
        if record and file.parent.name not in events:
            ended: Event = "failed" if record.get("code", 1) else "finished"
            ended = "started" if record.get("planned") else ended
            events[file.parent.name] = LastEvent(ended, record=record)
    return events


def find_folders(folder: Path) -> list[Path]:
    """The folders of all jobs of the sweep in `folder`, by number."""
    return [folder / name for name in _read_jobs(folder)]


def read_records(folder: Path) -> list[dict[str, Any]]:
    """The records of all jobs of a sweep, in the order of their numbers."""
    return list(_read_jobs(folder).values())


def _read_jobs(folder: Path) -> dict[str, dict[str, Any]]:
    """{folder of a job: its record}, in the order of the numbers of the jobs."""
    last = read_events(folder).items()
    records = {name: event.record for name, event in last if event.record}
    numbers = {name: record.get("job") for name, record in records.items()}
    order = sorted(records, key=lambda n: (numbers[n] is None, numbers[n]))
    known = [number for number in numbers.values() if number is not None]
    if len(set(known)) == len(known):
        return {name: records[name] for name in order}
    # another start had jobs of the same numbers
    return {name: {**records[name], "job": place} for place, name in enumerate(order)}


def name_jobs(jobs: Sequence[dict[str, Any]], *, without: Collection[str] = ()) -> list[str]:
    """A name for each job, of the same settings in the same order: the settings that any job
    varies, with their values in this one. Jobs that differ in settings of `without` alone share a
    name.
    """
    varied = [key for key in list_varied(jobs) if key not in without]
    return [" ".join(f"{key}={find_value(job, key)}" for key in varied) for job in jobs]


def list_varied(jobs: Sequence[dict[str, Any]]) -> list[str]:
    """The settings that any of the jobs varies; those of repetitions are the last."""
    keys = dict.fromkeys(_key(text) for job in jobs for text in job.get("varied") or ())
    return sorted(keys, key=REPEATED.__contains__)


def find_value(job: dict[str, Any], key: str) -> str:
    """The value of a setting in a job, as its words or else its config have it; `ABSENT` where
    neither does.
    """
    given = dict(_pair(text) for text in (*job.get("overrides", ()), *job.get("varied", ())))
    if key in given:
        return unquote(given[key])
    spec = read_spec(Path(job.get("dir") or "."))
    value: Any = thaw(spec) if spec else ABSENT
    for name in key.split("."):
        value = value.get(name, ABSENT) if isinstance(value, dict) else ABSENT
    if not spec or not isinstance(value, dict):
        return format_setting(value)
    return _name_choice(value, part_files(key, spec.provenance.config_dirs))


def _name_choice(value: dict[str, Any], files: Mapping[str, Path]) -> str:
    """The user's name for the part of a slot: that of the only file with this part, or else its
    class. Several parts give a list of their names; other settings give `ABSENT`.
    """
    if "_target_" not in value:
        named = value and all(isinstance(part, dict) for part in value.values())
        return format_setting([*value]) if named else ABSENT
    names = [name for name, file in files.items() if targets(file)[:1] == [value["_target_"]]]
    return names[0] if len(names) == 1 else str(value["_target_"]).rpartition(".")[2]


def make_table(jobs: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """(head, rows): a row for each job, then one for each group of jobs that differ only in their
    seeds or folds. A sweep over tasks has the score of each job, and no groups.
    """
    if TASK in list_varied(jobs):  # whose metrics are different ones
        named = zip(jobs, name_jobs(jobs), strict=True)
        own = [[str(job["job"]), name, _status(job), _spell_best(job)] for job, name in named]
        return ["job", "varied", "status", "score"], own
    names = list(dict.fromkeys(key for job in jobs for key in job["metrics"]))
    shown = (
        [key for key in names if "valid" in key]
        or [key for key in names if "loss" in key or "acc" in key]
        or names
    )
    shown = shown[:FEW]
    rows = []
    for job, name in zip(jobs, name_jobs(jobs), strict=True):
        values = [_spell_score(job, key) if key in job["metrics"] else "-" for key in shown]
        rows.append([str(job["job"]), name or " ".join(job["overrides"]), _status(job), *values])
    groups: dict[str, list[dict[str, Any]]] = {}
    for job, name in zip(jobs, name_jobs(jobs, without=REPEATED), strict=True):
        groups.setdefault(name, []).append(job)
    for shared, group in groups.items():
        if len(group) > 1 and any(
            _key(text) in REPEATED for job in group for text in job.get("varied") or ()
        ):
            done = [job for job in group if _status(job) == "ok"]
            spreads = [
                _spread([job for job in done if key in job["metrics"]], key) for key in shown
            ]
            rows.append(
                ["", f"{shared}: mean ± deviation".removeprefix(": "), f"{len(done)} ok", *spreads]
            )
    return ["job", "varied", "status", *shown], rows


def write(jobs: Sequence[dict[str, Any]], folder: Path, ends: Sequence[Block]) -> Path:
    """Write the table as Markdown with the blocks `ends` behind it, and all metrics and varied
    settings as comma-separated values; return the Markdown.
    """
    blocks: list[Block] = [Heading(counted(len(jobs), "job"), 1), TableBlock(*make_table(jobs))]
    blocks += ends
    write_text(own(folder) / PAGE, render_markdown(blocks, charts=""))
    varied = list_varied(jobs)
    metrics = list(dict.fromkeys(key for job in jobs for key in job["metrics"]))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["job", *varied, "status", *metrics, "dir"])
    for job in jobs:
        numbers = [job["metrics"].get(key, "") for key in metrics]
        words = [guard(find_value(job, key)) for key in varied]
        writer.writerow([job["job"], *words, _status(job), *numbers, job["dir"]])
    write_text(folder / SHEET, text.getvalue())
    return folder / PAGE


def describe_end(jobs: Sequence[dict[str, Any]]) -> list[str]:
    """The fine-tuning with the best score on dev, the first of equals, and the number of jobs that
    learned nothing. Their score is no more than 1% above the most frequent label (Dodge et al.,
    2020; Mosbach et al., 2021, there on train). Scores of different folds or tasks do not
    compare.
    """
    named = [
        job for job in jobs if not job["code"] and (job.get("best") or [""])[0] in job["metrics"]
    ]
    lines = _list_unlike([job for job in jobs if not job["code"]])
    if len(named) < 2 or len({job["best"][0] for job in named}) > 1:  # tasks do not compare
        return lines
    unlike = _list_unlike_examples(named)
    lines += [f"no job is the best: {line}" for line in unlike]
    if not unlike and not {FOLD, TASK} & {*list_varied(jobs)}:
        name, larger = named[0]["best"]
        top = (max if larger else min)(named, key=lambda job: job["metrics"][name])
        tied = [
            f"job {job['job']}" for job in named if job["metrics"][name] == top["metrics"][name]
        ]
        equal = f" (equal: {list_some(tied[1:])})" if len(tied) > 1 else ""
        name = name_jobs(jobs)[list(jobs).index(top)]
        lines += [f"best on dev: job {top['job']}, {_spell_best(top)}{equal}: {name}; {top['dir']}"]
    known = [job for job in named if {"valid/accuracy", "valid/majority"} <= set(job["metrics"])]
    failed = [
        job
        for job in known
        if job["metrics"]["valid/accuracy"] <= job["metrics"]["valid/majority"] + 0.01
    ]
    if failed:
        numbers = ", ".join(str(job["job"]) for job in failed)
        what = "at most 1% above the most frequent label"
        lines.append(f"learned nothing ({what}): {len(failed)} of {len(known)} runs: {numbers}")
    return lines


def describe_job(job: dict[str, Any]) -> str:
    """`ok: valid/accuracy 0.91, valid/loss 0.24`, as its row of the table."""
    head, (row,) = make_table([job])
    _, _, status, *values = row
    numbers = ", ".join(f"{name} {value}" for name, value in zip(head[3:], values, strict=True))
    return f"{status}: {numbers}" if numbers else status


def describe_plan(jobs: Sequence[dict[str, Any]]) -> list[str]:
    """The time, the work and the memory of all jobs that a dry run foresees, one after the other;
    nothing where no job was foreseen.
    """
    planned = [job for job in jobs if job.get("planned") and not job["code"]]
    sums, most = Counter[str](), 0.0
    for job in planned:
        sums.update({key: job["metrics"].get(key, 0.0) for key in ("seconds", "flops")})
        sums["busy"] += job["metrics"].get("busy_seconds", job["metrics"].get("seconds", 0.0))
        most = max(most, job["metrics"].get("bytes", 0.0))
    if not sums["seconds"]:
        return []
    unknown = sum("seconds" not in job["metrics"] for job in planned)
    alone, busy = clock(sums["seconds"]), clock(sums["busy"])
    line = f"{counted(len(planned), 'job')}: about {alone}"
    line += f" alone, about {busy} now" if busy != alone else ""
    line += f", {sums['flops']:.3g} training FLOPs" if sums["flops"] else ""
    line += f", {spell_size(most)} of memory at most"
    return [f"{line}; the time of {unknown} is not known" if unknown else line]


def _list_unlike_examples(jobs: Sequence[dict[str, Any]]) -> list[str]:
    """A line on jobs of one task and fold whose dev has different examples."""
    if {FOLD, TASK} & {*list_varied(jobs)}:
        return []
    examples = {f"job {job['job']}": find_examples(Path(job["dir"]), "dev") for job in jobs}
    return list_unlike_examples(examples)


def _list_unlike(jobs: Sequence[dict[str, Any]]) -> list[str]:
    """Lines on losses of the pretrainings of a sweep that do not compare."""
    configs = {f"job {job['job']}": thaw(read_spec(Path(job["dir"])) or {}) for job in jobs}
    pretrained = {name: own for name, own in configs.items() if own.get("objective")}
    having: dict[str, list[str]] = {}
    for job in jobs:
        for key in job["metrics"]:
            if key.startswith("valid/"):
                having.setdefault(key, []).append(f"job {job['job']}")
    return list_unlike(pretrained, having) if len(pretrained) == len(configs) else []


def _status(job: dict[str, Any]) -> str:
    code = job["code"]
    if job.get("planned") and not code:
        return "not run"
    return "ok" if not code else "stopped" if code in STOPPED else f"failed ({code})"


def _spell_score(job: dict[str, Any], key: str) -> str:
    value = job["metrics"][key]
    return SPELLED[key](value) if key in SPELLED else f"{value:.4g}{find_unit(job, key)}"


def _spell_best(job: dict[str, Any]) -> str:
    """The score of dev that chooses the checkpoint, with its name."""
    key = (job.get("best") or [""])[0]
    if key not in job["metrics"]:
        return ABSENT
    return f"{key.removeprefix('valid/')} {_spell_score(job, key)}"


def find_unit(job: dict[str, Any], key: str) -> str:
    """`%` of a metric from 0 to 100, else ""."""
    percent = (read_result(Path(job["dir"])) or {}).get("percent") or ()
    return "%" if key.removeprefix("valid/") in percent else ""


def _pair(text: str) -> tuple[str, str]:
    return _key(text), text.partition("=")[2]


def _key(text: str) -> str:
    return text.partition("=")[0].lstrip("+~")


def _spread(jobs: Sequence[dict[str, Any]], key: str) -> str:
    values = [job["metrics"][key] for job in jobs]
    return f"{format_spread(*summarise(values))}{find_unit(jobs[0], key)}" if values[1:] else "-"
