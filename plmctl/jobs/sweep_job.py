"""One job of a sweep: the run that an earlier start left in its folder, and the record that it
leaves itself.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from plmctl.analysis.runs import CONFIG
from plmctl.config import command
from plmctl.config.first_session import first_lines, first_words
from plmctl.config.recipes import option_name
from plmctl.config.saved import read_spec
from plmctl.config.schema import OF_THE_MODEL
from plmctl.config.spec import RunSpec, key_of
from plmctl.config.walks import scalars_in, select
from plmctl.core.errors import UsageError, first_problem, flatten
from plmctl.jobs.work import Outcome, attempt
from plmctl.report import sweeps
from plmctl.runs.resume import resume_spec
from plmctl.storage.atomic import write_json
from plmctl.storage.gate import admit, own
from plmctl.storage.job_events import Event, JobEvents, LastEvent
from plmctl.storage.lines import read_lines
from plmctl.storage.reading import parse_json

LONGEST = 100  # characters of the name of a folder
FOLDERS = ("run.dir", "out")  # the settings that say where a command writes


@dataclass(frozen=True)
class SweepJob:
    """One job, composed.

    Args:
        number: The number from 0, in the order of the sweep; None where a launcher has no numbers.
        folder: The folder of its record, and of its run unless its words name another one;
            `find_folder`.
        words: all its settings, and its recipe.
        varied: The words in which jobs differ.
        done: whether an earlier start has finished it.
    """

    sweep: Path
    number: int | None
    folder: Path
    words: tuple[str, ...]
    varied: tuple[str, ...]
    spec: RunSpec
    done: bool = False

    @property
    def label(self) -> str:
        """Its name for people."""
        return " ".join(self.varied or self.words)

    @property
    def run(self) -> Path:
        """Where it writes."""
        places = (self.spec.select(key) for key in FOLDERS)
        return Path(next(filter(None, places), self.folder))

    @property
    def makes_runs(self) -> bool:
        """Whether it does more than to show what it would do."""
        given = self.spec.provenance
        return not (given.dry_run or given.preview)

    def place(self) -> SweepJob:
        """This job with its own folder, and done or resumed where that holds its run.

        Raises:
            UsageError: The folder holds a run with other settings.
        """
        spec = self.spec.asked(within=True)
        key = next((key for key in FOLDERS if key.partition(".")[0] in spec), "")
        if key and not spec.select(key):
            spec = spec.replace({key: str(self.folder)})
        job = replace(self, spec=spec)
        if job.is_finished():
            return replace(job, done=True)
        if not (self.makes_runs and job._has_begun()):
            return job
        finished = job._last.event == "finished"
        spec = job._resume()
        return replace(job, spec=spec, done=finished and not spec.provenance.changes)

    def is_finished(self) -> bool:
        """Whether a start has finished it by now: an earlier one, or another one meanwhile."""
        if self.done or not (self.makes_runs and self._has_begun()):
            return self.done
        last = self._last
        same = self.record.get("overrides") == list(self.words)
        return last.event == "finished" and same

    def _has_begun(self) -> bool:
        """Whether its folder has a run."""
        config = self.run / CONFIG
        # an empty one is that of a start which ended before anything was saved
        return config.is_file() and config.stat().st_size > 0

    def check(self) -> None:
        """Raise what is wrong with a job that would begin, before it does."""
        if self.makes_runs and not self.done and not self.spec.provenance.resume:
            command.check(self.spec)

    def do(self) -> Outcome:
        """Do it unless it is done, and write down how it ended; the result is the score that a
        search minimises.
        """
        if self.is_finished():
            record = self.record
            if (record.get("overrides"), record.get("job")) != (list(self.words), self.number):
                self.write_end(Outcome(0), record["metrics"])
            return Outcome(0, result=score(record["metrics"], self._find_best()))
        if not self.makes_runs and self._last.event not in ("", "started"):
            # the record of its run stays
            return replace(attempt(lambda: command.perform(self.spec)), result=score({}))
        own(self.sweep)
        admit(self.folder).mkdir(parents=True, exist_ok=True)
        if self.makes_runs:  # the rest of a job that never began is no run
            admit(self.folder / sweeps.RECORD).unlink(missing_ok=True)
        outcome = attempt(lambda: command.perform(self.spec))
        result = outcome.result if isinstance(outcome.result, Mapping) else {}
        # a refused job has made none: a run in its folder is that of another process
        refused = outcome.code == UsageError.exit_code
        metrics = {} if refused else dict(result) or read_last_metrics(self.run)
        self.write_end(outcome, metrics)
        return replace(outcome, result=score(metrics, self._find_best() if metrics else None))

    def write_end(self, outcome: Outcome, metrics: Mapping[str, Any]) -> None:
        """Write down how it ended."""
        known: dict[str, Any] = {
            "job": self.number,
            "overrides": list(self.words),
            "varied": list(self.varied),
            "dir": str(self.run),
            "metrics": metrics,
        }
        if metrics and (best := self._find_best()):
            known["best"] = list(best)
        known |= {} if self.makes_runs else {"planned": True}
        event = outcome.event if self.makes_runs else "started"
        write_end(self.sweep, self.folder, outcome, known, event=event)

    def _find_best(self) -> tuple[str, bool] | None:
        """(the metric of dev that chooses the checkpoint of a fine-tuning, whether a larger one is
        better); None of another command, and of a run that never began.
        """
        given = self.spec.provenance
        if given.verb != "finetune" or not self.makes_runs:
            return None
        spec: Any = read_spec(self.run, given)  # with the decisions on side tasks, too
        if spec is None:
            return None
        from plmctl.runs.parents import build_task  # torch, which composing does not need
        from plmctl.runs.side_tasks import choose_metric

        name, larger = choose_metric(spec, build_task(spec))
        return f"valid/{name}", larger

    @property
    def record(self) -> dict[str, Any]:
        """How it has ended, as it is written down; empty before its end."""
        return self._last.record or {}

    @property
    def _name(self) -> str:
        return os.path.relpath(self.folder, self.sweep)

    @property
    def _last(self) -> LastEvent:
        return sweeps.read_events(self.sweep).get(self._name, LastEvent())

    def _resume(self) -> RunSpec:
        """The spec of the run in its folder, to go on with; UsageError for one with other
        settings.
        """
        given, saved = self.spec.provenance, read_spec(self.run)
        recipe = saved and saved.get("recipe")
        words = () if first_words(self.run) == list(given.overrides) else given.overrides
        try:
            if recipe and recipe != self.spec.get("recipe"):
                raise UsageError(f"the run was started with the recipe {recipe}")
            asked = replace(given, overrides=(*words, f"run.dir={self.run}"), resume=True)
            return resume_spec(asked)
        except UsageError as error:
            reasons = [str(reason).partition("; --resume")[0] for reason in flatten(error)]
            raise UsageError(
                f"{self.run} holds another run: {'; '.join(reasons)}"
                f"\n  fix: run.dir=<another folder> for the sweep, or remove {self.run}"
            ) from None


def find_folder(job: SweepJob, taken: Collection[Path]) -> Path:
    """The folder of a job. Its name shows the settings in which jobs differ, so that a sweep may
    grow, and its jobs may come in any order. One of an earlier version has a number, and is known
    by its words.

    Args:
        taken: The folders of other jobs.
    """
    if not job.varied:
        return job.folder
    own = set(job.varied)
    there = sorted(job.sweep.iterdir() if job.sweep.is_dir() else ())
    for old in there:
        if not old.name.isdecimal() or old in taken:
            continue
        if old.name == str(job.number) and not (old / CONFIG).is_file():
            return old  # the rest of a job that never began is no run
        record = sweeps.read_record(old)
        if own == set(record["varied"]) if "varied" in record else own <= _words_in(old):
            return old
    plain = ",".join(sorted(text.lstrip("+~") for text in job.varied))
    plain = re.sub(r"[\[\]'\"]", "", plain)
    name = re.sub(r"[^\w.,=+@-]+", "-", plain)
    if name != plain or len(name) > LONGEST:
        name = f"{name[:LONGEST]}-{zlib.crc32(plain.encode()):08x}"
    names = (f"{name}-{number}" if number > 1 else name for number in itertools.count(1))
    named = next(folder for each in names if (folder := job.sweep / each) not in taken)
    others = [old for old in there if old not in taken and sweeps.read_record(old)]
    if (named / CONFIG).is_file():
        return named
    return next((old for old in others if _is_same_work(job, old)), named)


def _is_same_work(job: SweepJob, folder: Path) -> bool:
    """Whether a folder has the run of a job under other words. An earlier start may have left out a
    setting that now has its default, such as `seed=0`. Made again, the run would count twice.
    """
    record = sweeps.read_record(folder)
    ours = {key_of(word): word for word in job.words}
    theirs = {key_of(word): word for word in record["overrides"]}
    if any(ours[key] != theirs[key] for key in ours.keys() & theirs.keys()):
        return False
    saved = read_spec(Path(record["dir"])) if job.makes_runs else None
    if saved is None or saved.provenance.verb != job.spec.provenance.verb:
        return False
    asked, had = job.spec.used(), saved.used()
    stated = [(select(asked, key), select(had, key)) for key in ours.keys() ^ theirs.keys()]
    brought = OF_THE_MODEL if asked.get("checkpoint") or asked.get("init") else ()
    settled = [  # the values that a run itself decides are not known before it
        (value, select(had, path))
        for path, value in scalars_in(asked)
        if value not in (None, {}, "auto")
        and not (path in FOLDERS or path.partition(".")[0] in brought)
    ]
    return all(a is not None and a == b for a, b in (*stated, *settled))


def _words_in(run: Path) -> set[str]:
    """The words with which the run of a job began, its recipe among them; of a job that never
    began, none.
    """
    words = first_lines(run)
    return {*words, *(f"recipe={option_name(word)}" for word in words if "=" not in word)}


def write_end(
    sweep: Path,
    folder: Path,
    outcome: Outcome,
    known: Mapping[str, Any],
    *,
    event: Event | None = None,
) -> None:
    """Write down how a job ended.

    Args:
        outcome: The outcome of its work.
        known: its record so far.
        event: The event for the journal; default: the event of the outcome.
    """
    record = {"varied": [], "dir": str(folder), "metrics": {}, **known, "code": outcome.code}
    record |= {"error": first_problem(outcome.error)} if outcome.error else {}
    with contextlib.suppress(OSError):  # a full disk ends the job, not the sweep
        write_json(folder / sweeps.RECORD, record)
        JobEvents(sweep).write(
            event or outcome.event, os.path.relpath(folder, sweep), record=record
        )


def forget_plans(sweep: Path) -> None:
    """Remove the jobs that earlier dry runs foresaw: this start may ask for others."""
    for name, last in sweeps.read_events(sweep).items():
        if not (last.record or {}).get("planned"):
            continue
        admit(own(sweep) / name / sweeps.RECORD).unlink(missing_ok=True)
        JobEvents(sweep).write("started", name)  # without a record
        with contextlib.suppress(OSError):  # its folder holds more
            admit(sweep / name).rmdir()


def read_last_metrics(folder: Path) -> dict[str, float]:
    """The last value of every number in metrics.jsonl, or the scores of dev (of a graph: valid) in
    result.json. Scores of a side task have its name before them.
    """
    file, result = folder / "metrics.jsonl", folder / "result.json"
    # fine-tuning: the scores of the checkpoint that is kept, not of the last one
    if result.is_file():
        read = parse_json(result.read_text(encoding="utf-8"))
        scores = dict(read["metrics"].get("dev") or read["metrics"].get("valid") or {})
        for side, own in read.get("beside", {}).items():
            dev = own["metrics"].get("dev", {})
            scores |= {f"{side}/{name}": value for name, value in dev.items()}
        return {f"valid/{name}": float(value) for name, value in scores.items()}
    last = {key: value for record in read_lines(file)[0] for key, value in record.items()}
    return {key: value for key, value in last.items() if isinstance(value, (int, float))}


def score(metrics: Mapping[str, Any], best: tuple[str, bool] | None = None) -> float:
    """The number that a searching sweeper minimises. It is the metric by which a fine-tuning
    chooses its checkpoint, negative where a larger one is better. Else it is the validation loss
    (of a graph the negative MRR), else the training loss, else nan.
    """
    if best is not None and best[0] in metrics:
        return -float(metrics[best[0]]) if best[1] else float(metrics[best[0]])
    if "valid/mrr" in metrics and "valid/loss" not in metrics:
        return -float(metrics["valid/mrr"])
    names = ["valid/loss", "loss/valid", "loss"]
    names += [key for key in metrics if "valid" in key and "loss" in key]
    return next((float(metrics[name]) for name in names if name in metrics), float("nan"))
