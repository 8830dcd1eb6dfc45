"""`plmctl self-train`: a fine-tuned teacher labels texts, a student learns from them, and is the
next teacher.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plmctl.artifacts.label_rows import facts_of
from plmctl.chain.page import list_lower, read_scores
from plmctl.config.build import class_of
from plmctl.config.spec import Provenance, key_of
from plmctl.core.errors import ConfigError, UsageError, did_you_mean, find_alike, raise_all
from plmctl.core.progress import clock
from plmctl.core.spelling import spell_word
from plmctl.core.terminal import print_table, remark, tell
from plmctl.core.values import Count, Rate, Share, fit
from plmctl.datasets.label import name_only_label
from plmctl.jobs.configs import Configs, find_missing_files
from plmctl.jobs.job import Job, locate_runs, remark_next
from plmctl.jobs.journal import JobJournal, hold_folder
from plmctl.jobs.key import compute_key
from plmctl.jobs.runners import run_here
from plmctl.storage.job_events import Event
from plmctl.storage.paths import refuse_file_name
from plmctl.storage.reading import read_json
from plmctl.tasks.predictions import BUNDLE
from plmctl.tasks.readers.files import match_patterns
from plmctl.tasks.readers.tables import SHARES, TEXTS, Table
from plmctl.tasks.unlabelled import read_unlabelled

COMMAND, TUNE, LABEL = "self-train", "finetune", "label"
OUT = "self-trained"  # the folder, without out=
MISSPELT = 0.8  # the least likeness of letters to a setting of the rounds
HEAD = ("round", "folder", "time", "score on dev", "texts")
# the columns and files that `plmctl data label` writes
NAMES, FILES = (*TEXTS, BUNDLE, "label", SHARES), {"train": "train.jsonl", "dev": "dev.jsonl"}


@dataclass(frozen=True)
class SelfTraining:
    """The settings of `plmctl self-train`, except for those of the fine-tuning.

    Args:
        input: the texts without labels.
        rounds: The number of times that a teacher labels them.
        threshold: The least probability of a label that a student learns from.
        share: The share of the texts of each label, the surest ones.
        out: the folder of all jobs.
    """

    input: str
    rounds: Count = 1
    threshold: Rate = 0.0
    share: Share = 1.0
    out: str = OUT


def self_train(words: Sequence[str], given: Provenance) -> int:
    """Run what is not done yet of the rounds, and show their scores; with `dry_run` print the
    commands. Returns the exit code of the step that ended it, else 0.

    Each student begins with the same checkpoint as the first teacher. It learns from the labelled
    examples and from texts whose label is sure for its teacher. This is self-training (Scudder,
    1965; Yarowsky, 1995; with noise, as dropout is: Xie et al., 2020, arXiv:1911.04252, algorithm
    1).
    """
    asked, tuning = sort_words(words)
    jobs, out = plan(asked, tuning, given), Path(asked.out).expanduser()
    refuse_file_name(out)
    runs = locate_runs(jobs, out)
    if given.dry_run:
        tell("\n".join(job.line(runs) for job in jobs.values()))
        return 0
    command = f"plmctl {COMMAND}"
    with hold_folder(out, {"words": list(words)}, kind=COMMAND, command=command):
        journal = _open_journal(jobs, out)
        with contextlib.redirect_stdout(sys.stderr):
            code = run_here(journal)
    table = describe(journal)
    if given.json:
        tell(json.dumps({"code": code, "rounds": table}))
    elif table:
        print_table(HEAD, [spell_row(row) for row in table])
    if code:
        ended = next(job for job in jobs.values() if job not in journal.done)
        what = f"{ended.label} {'was stopped' if code > 128 else 'failed'}"
        right = find_threshold(journal.states[ended.name].why)
        kept = [word for word in words if not (right and key_of(word) == "threshold")]
        remark_next(what, COMMAND, *kept, *right, given=given)
    elif table:
        best = find_best(table)
        remark(f"best on dev: {best['round']}, {best['folder']}")
    return code


def find_best(table: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The row of the best score, the first of equals."""
    return (min if table[0]["lower"] else max)(table, key=lambda row: row["score"])


def find_threshold(why: str) -> list[str]:
    """The threshold that the error of a labelling names as its fix, as a word; else none."""
    return re.findall(r"fix: (threshold=[\d.]+)$", why, re.MULTILINE)[:1]


def sort_words(words: Sequence[str]) -> tuple[SelfTraining, list[str]]:
    """(the settings of the rounds, the words of the fine-tunings); all that is wrong with them."""
    hints = typing.get_type_hints(SelfTraining, include_extras=True)
    own: dict[str, Any] = {}
    rest, wrong = [], list[ConfigError | UsageError]()
    for word in words:
        key, equals, value = word.partition("=")
        if not equals and not word.startswith("~"):
            wrong.append(UsageError(f"'{word}': settings are key=value"))
        elif key in hints:
            try:
                own[key] = fit(value if hints[key] is str else _read_number(value), hints[key])
            except ValueError as error:
                wrong.append(ConfigError(key, value, str(error)))
        elif key in ("run.dir", "resume"):
            allowed, fix = "none: each round has a folder of its own", "out=<a folder for all>"
            wrong.append(ConfigError(key, value, allowed, fix=fix))
        elif meant := find_alike(key, hints, least=MISSPELT):
            allowed = f"there is no such setting{did_you_mean(meant)}"
            fix = spell_word(f"{meant[0]}={value}")
            wrong.append(ConfigError(key, value, allowed, fix=fix))
        else:
            rest.append(word)
    if "input" not in own:
        allowed = "must be given: the texts without labels"
        wrong.append(ConfigError("input", ..., allowed, fix="input=new.txt"))
    raise_all(wrong)
    return SelfTraining(**own), rest


def _read_number(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


def plan(asked: SelfTraining, tuning: Sequence[str], given: Provenance) -> dict[str, Job]:
    """All jobs by name: a fine-tuning, then a labelling and a fine-tuning for each round."""
    configs, jobs = Configs(given), dict[str, Job]()

    def add(label: str, verb: str, words: Sequence[str]) -> Job:
        later = ["out=later"] if verb == LABEL else []
        config = configs.compose(verb, [*words, *later])
        name = f"{label.replace(' ', '-')}-{compute_key(verb, config)[:8]}"
        job = Job(name, verb, label, config, None, tuple(words), given.plugins, given.config_dirs)
        return jobs.setdefault(name, job)

    teacher = first = add("teacher", TUNE, tuning)
    _check(configs, teacher.config, asked)
    device = first.config["train"]["device"]
    for number in range(1, asked.rounds + 1):
        labelled = add(
            f"label {number}",
            LABEL,
            [
                f"checkpoint={teacher.reference}",
                f"input={asked.input}",
                f"threshold={asked.threshold:g}",
                f"share={asked.share:g}",
                f"device={device}",
                # the texts, and the names of columns: students read files of their own
                *([] if teacher is first else [f"labelled_from={first.reference}"]),
            ],
        )
        files = [f"task.path={labelled.reference}", *_spell_layout(teacher.config)]
        kept = [word for word in tuning if key_of(word) not in map(key_of, files)]
        teacher = add(f"round {number}", TUNE, [*kept, *files])
    return jobs


def _spell_layout(config: Mapping[str, Any]) -> list[str]:
    """The words that say which columns the new files have, and that their dev set is a file."""
    columns, folds = config["task"]["columns"], config["task"].get("folds")
    given = [name for name, column in columns.items() if column is not None]
    words = [f"task.columns.{name}={name if name in NAMES else 'null'}" for name in given]
    return [*words, *(["task.folds=null", "task.fold=0"] if folds else [])]


def _check(configs: Configs, config: dict[str, Any], asked: SelfTraining) -> None:
    """Raise the mistakes that would end a later job: a task that does not read the new files,
    missing or unreadable texts, no dev set. A share of the examples is also one: the students would
    not learn from the same ones.
    """
    task = config["task"] or {}
    if not _reads_tables(task, configs.given.plugins):
        allowed = "one label for each text or pair of a table, as task=classification has"
        raise ConfigError("task", task.get("name", ...), allowed, fix="task=classification")
    if (share := config["train"]["share"]) != 1:
        allowed = "1: students would learn a share of labelled and new texts together"
        raise ConfigError("train.share", share, allowed, fix="task.path=<fewer examples>")
    texts = asked.input.strip("'\"")  # as the grammar of Hydra quotes
    for error in find_missing_files({**config, "input": texts, "data": {"path": None}}):
        raise error
    read_unlabelled(configs.read_task(task["name"], config, {"pooling": "first"}), texts)


def _reads_tables(task: Mapping[str, Any], plugins: Sequence[str]) -> bool:
    """Whether a task chooses a label, and reads the files that `plmctl data label` writes."""
    if not task:
        return False
    facts, reader = facts_of(task, plugins), task.get("reader") or {}
    if facts is None or facts.answer != "class":
        return False
    splits = reader.get("splits", {})
    return class_of(reader, plugins) is Table and all(
        match_patterns([(name, Path(name))], splits.get(split, []), Path(), fix="")
        for split, name in FILES.items()
    )


def describe(journal: JobJournal) -> list[dict[str, Any]]:
    """Each fine-tuning that is done: its score on dev, and how many texts its teacher labelled."""
    runs, rows = locate_runs(journal.jobs, journal.folder), []
    for job in journal.done:
        if job.verb != TUNE:
            continue
        run = Path(runs[job.name])
        name, score = next(iter(read_scores(run).items()))
        labelled = next((need for need in job.needs if journal.jobs[need].verb == LABEL), None)
        made = Path(runs[labelled]) / "made.json" if labelled else None
        labels = read_json(made)["counted"] if made else {}
        rows.append(
            {
                "round": job.label,
                "folder": str(run),
                "seconds": round(journal.events.of(job.name).seconds, 3),
                "metric": name,
                "score": score,
                "lower": name in list_lower(run),  # whether a lower score is better
                "texts": sum(labels.values()),
                "labels": labels,
            }
        )
    return rows


def spell_row(row: Mapping[str, Any]) -> list[str]:
    """A row of the table; it marks texts that all have one label."""
    score = f"{row['metric']} {row['score']:.4g}"
    alone = name_only_label(row["labels"])
    all_of = f", all {alone}" if alone else ""
    return [row["round"], row["folder"], clock(row["seconds"]), score, f"{row['texts']:,}{all_of}"]


def _open_journal(jobs: Mapping[str, Job], out: Path) -> JobJournal:
    """The journal of the jobs; it prints a line for each job that is done, and for others when they
    end.
    """
    runs = locate_runs(jobs, out)

    def tell_event(event: Event, job: Job, why: str) -> None:
        if event in ("started", "resumed"):
            verb = "goes on" if event == "resumed" else "starts"
            remark(f"{job.label}: {verb}\n$ {job.line(runs)}")

    journal = JobJournal(jobs, out, tell=tell_event)
    for job in journal.done:
        remark(f"{job.label}: finished before; {runs[job.name]}")
    return journal
