"""The subject of a report, and the optional panels that a reader asks for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plmctl.analysis.likeness import find_examples, list_unlike_examples
from plmctl.analysis.runs import (
    CONFIG,
    METRICS,
    RunLog,
    is_evaluated,
    read_baselines,
    read_predictions,
    read_result,
)
from plmctl.core.errors import DataError, PlmctlError, UsageError, did_you_mean, list_problems
from plmctl.core.spelling import spell_line, spell_word
from plmctl.core.terminal import counted
from plmctl.report.checkpoint_scores import CheckpointScores, find_checkpoint_scores
from plmctl.report.studies import STUDY, StudyFolder, find_label, is_study
from plmctl.report.sweeps import REPEATED, find_folders, name_jobs, read_record, read_records
from plmctl.storage.paths import find_near
from plmctl.tasks.scores.bundles import add_bundles
from plmctl.tasks.scores.metrics import spell_metric

if TYPE_CHECKING:
    from plmctl.analysis.probing import Labels
    from plmctl.artifacts.loading import Loaded
    from plmctl.report.decided import DecidedRun


SPLITS = ("test", "dev")  # the first that a run has is the one of its result
LONG = 80  # characters of a title
DETAILED = 8  # runs whose models and predictions are read: of 300 they would fill memory and page


@dataclass(frozen=True)
class Wishes:
    """The options for panels that are drawn only on request."""

    heads: Sequence[tuple[int, int]] = ()  # (layer, head) whose attention is drawn, from 0
    # the sentences for it and for `units`; none: texts of the run
    sentences: Sequence[str] = ()
    # the text for the table of heads; (): held-out rows; None: no table
    lines: Sequence[str] | None = None
    # labelled words, which the states of the layers are probed for
    probes: Mapping[str, Labels] = field(default_factory=dict)
    bits: Sequence[int] = ()  # numbers of bits for which one matrix at a time is rounded
    # {word: a file of sentences with it}
    words: Mapping[str, Path] = field(default_factory=dict)
    units: Sequence[
        tuple[int, int]
    ] = ()  # (layer, feed-forward unit) whose texts are shown, from 0

    def spell(self) -> list[str]:
        """One line for each kind of optional panel."""
        return [f"{name} {[*own]}" for name, own in vars(self).items() if own]


@dataclass(frozen=True)
class ReportedRun:
    """A run directory with its name on the page; `group` is the name that its repetitions with
    other seeds share.
    """

    name: str
    log: RunLog
    group: str | None = None
    plugins: Sequence[str] = ()  # packages outside plmctl that may be imported for it

    @property
    def folder(self) -> Path:
        """The run directory."""
        return self.log.folder

    @property
    def task(self) -> str:
        """The name of the task of a fine-tuning; empty for pretraining."""
        return str((self.log.config.get("task") or {}).get("name") or "")

    def spell(self, metric: str) -> str:
        """The metric with its unit: `f1, %`."""
        return spell_metric(metric, (self.result or {}).get("percent") or ())

    @cached_property
    def loaded(self) -> Loaded:
        """Its model, from the best checkpoint if it has one; DataError without a checkpoint, or
        with parts of another version.
        """
        # brings torch, which whoever reads logs does not need
        from plmctl.artifacts.loading import load

        try:
            return load(self.folder, plugins=self.plugins)
        # an error of parts that take other settings by now
        except (TypeError, KeyError, AttributeError) as error:
            raise DataError(
                f"this version of plmctl cannot build its model: {error}", file=self.folder
            ) from error

    @cached_property
    def decided(self) -> DecidedRun | None:
        """Its results by the decision of its checkpoint, with those of test by `plmctl eval`; None
        without both.
        """
        if not is_evaluated(self.folder):
            return None
        from plmctl.report.decided import decide_run  # brings torch

        return decide_run(self.folder, self.plugins)

    @cached_property
    def result(self) -> dict[str, Any] | None:
        """The scores of a fine-tuning; None if they are missing."""
        result = read_result(self.folder)
        result = self.decided.result if result and self.decided else result
        return result and add_bundles(result, self.predictions)

    @cached_property
    def examples(self) -> dict[str, tuple[int, str]]:
        """{split: its number of examples, and a hash of them}."""
        metrics = (self.result or {}).get("metrics") or {}
        return {split: find_examples(self.folder, split) for split in metrics}

    @cached_property
    def baselines(self) -> dict[str, dict[str, dict[str, float]]]:
        """{split: {model without pretraining: {metric: value}}}; empty if they are missing."""
        return read_baselines(self.folder)

    @cached_property
    def predictions(self) -> dict[str, list[dict[str, Any]]]:
        """{split: its predictions}."""
        return self.decided.predictions if self.decided else read_predictions(self.folder)


@dataclass(frozen=True)
class SplitPredictions:
    """The predictions of a run on one split."""

    run: ReportedRun
    split: str
    rows: Sequence[Mapping[str, Any]]

    def load_texts(self) -> tuple[Sequence[Mapping[str, Any]] | None, str]:
        """(the fields of every example, read again from the files of the task; or the reason why
        they cannot be read).
        """
        try:
            return self._read_fields(), ""
        except PlmctlError as error:
            return None, f"{self.run.name}: without the texts: {list_problems(error)}."

    def _read_fields(self) -> Sequence[Mapping[str, Any]]:
        from plmctl.report.decided import read_task  # brings torch

        folder = self.run.folder
        task = read_task(folder, self.run.plugins)
        if task is None:
            raise DataError("its config.yaml names no task or no model", file=folder)
        examples = task.read(self.split)
        if [example.id for example in examples] != [row["id"] for row in self.rows]:
            raise DataError(
                f"the files of the task are other ones by now: {task.splits.path}", file=folder
            )
        return [example.fields for example in examples]


@dataclass(frozen=True)
class Subject:
    """Several runs, one study, or the scores of checkpoints."""

    runs: Sequence[ReportedRun] = ()
    study: StudyFolder | None = None
    scores: CheckpointScores | None = None
    wishes: Wishes = field(default_factory=Wishes)
    plugins: Sequence[str] = ()  # packages outside plmctl whose panels are drawn, too
    folders: Sequence[Path] = ()  # as the user gave them
    brief: bool = False  # whether the page has one sheet

    @property
    def title(self) -> str:
        """The title of the page."""
        if self.study:
            return self.study.title
        if self.scores:
            return f"Scores of {counted(len(self.scores.scores), 'checkpoint')}"
        names = ", ".join(run.name for run in self.runs)
        return f"Report: {names if len(names) <= LONG else f'{len(self.runs)} runs'}"

    @property
    def detailed(self) -> Sequence[ReportedRun]:
        """The runs whose models and predictions are shown: the first ones."""
        return self.runs[:DETAILED]

    def find_results(self, kind: Any) -> Iterator[tuple[int, str, Any]]:
        """(the number of its run or -1, its heading or "", the result) for each result of a type.

        Args:
            kind: `Subject`, `StudyFolder`, `CheckpointScores`, `SplitPredictions` or a measure.
        """
        if kind is StudyFolder:
            yield from [(-1, "", self.study)] if self.study else ()
        elif kind is CheckpointScores:
            yield from [(-1, "", self.scores)] if self.scores else ()
        elif kind is Subject:
            yield from [(-1, "", self)] if self.runs else ()
        elif kind is SplitPredictions:
            for run in self.detailed:
                for split, rows in self._choose_splits(run.predictions).items():
                    yield -1, f"{run.name}, {split}", SplitPredictions(run, split, rows)
        else:
            for number, run in enumerate(self.detailed):
                try:
                    result = kind.of(run.loaded)
                except PlmctlError:  # the panel of layers names a run without a model
                    continue
                if result is not None:
                    yield number, run.name if len(self.runs) > 1 else "", result

    def _choose_splits(self, predictions: Mapping[str, Any]) -> Mapping[str, Any]:
        """The splits that are shown; on one sheet that of the result of a single run."""
        if not self.brief:
            return predictions
        split = choose_split(predictions) if len(self.runs) == 1 else ""
        return {split: predictions[split]} if split else {}

    def list_unlike(self) -> list[str]:
        """A line on each split of a task that its runs have with different examples."""
        known: dict[tuple[str, str], dict[str, tuple[int, str]]] = {}
        for run in self.runs:
            for split, examples in run.examples.items():
                known.setdefault((run.task, split), {})[run.name] = examples
        return [
            f"{task}, {split}: {line}"
            for (task, split), runs in known.items()
            for line in list_unlike_examples(runs)
        ]

    @property
    def key(self) -> str:
        """A hash of the paths of its folders, which differs from others of the same name, and of
        the panels that a reader asks for.
        """
        folders = self.folders or [run.folder for run in self.runs]
        parts = [str(folder.resolve()) for folder in folders]
        parts += [*(["brief"] if self.brief else []), *self.wishes.spell()]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def choose_split(known: Mapping[str, Any]) -> str:
    """The split whose score is the result of a run, or ""."""
    return next((split for split in (*SPLITS, *known) if split in known), "")


def find_subject(
    folders: Sequence[Path], wishes: Wishes | None = None, plugins: Sequence[str] = ()
) -> Subject:
    """Read the runs or the study in `folders`; DataError for a folder that is neither."""
    wishes = wishes or Wishes()
    studies = [folder for folder in folders if is_study(folder)]
    if studies and len(folders) > 1:
        raise UsageError(
            f"{studies[0]} is a study: a report shows one study, or runs\n"
            f"  fix: {spell_line('report', studies[0])}"
        )
    if studies:
        study = StudyFolder.read(studies[0])
        return Subject(study=study, wishes=wishes, plugins=plugins, folders=studies)
    if len(folders) == 1 and (scores := find_checkpoint_scores(read_records(folders[0]))):
        return Subject(scores=scores, wishes=wishes, plugins=plugins, folders=folders)
    folders = [inner for folder in folders for inner in _jobs(folder)]
    for folder in folders:
        _check(folder)
    return Subject(_name_runs(folders, plugins), wishes=wishes, plugins=plugins, folders=folders)


def _jobs(folder: Path) -> list[Path]:
    """The runs of a sweep if `folder` holds one; otherwise the folder itself."""
    if (folder / METRICS).is_file() or (folder / CONFIG).is_file():
        return [folder]
    return [job for job in find_folders(folder) if (job / CONFIG).is_file()] or [folder]


def _name_runs(folders: Sequence[Path], plugins: Sequence[str]) -> list[ReportedRun]:
    """Name runs by their folders, the jobs of a sweep by the varied settings, those of a study by
    their labels; by what differs in their paths if names are not unique.
    """
    jobs = [read_record(folder) for folder in folders]
    swept = [n for n, job in enumerate(jobs) if job]
    of_sweep = [{**jobs[n], "dir": str(folders[n])} for n in swept]
    called = dict(zip(swept, name_jobs(of_sweep), strict=True))
    shared = dict(zip(swept, name_jobs(of_sweep, without=REPEATED), strict=True))
    names = [
        called.get(n) or find_label(folder) or folder.resolve().name
        for n, folder in enumerate(folders)
    ]
    if len(set(names)) < len(names):
        names = _shorten_paths(folders)
    groups = [shared[n] or "all runs" if job.get("varied") else None for n, job in enumerate(jobs)]
    return [
        ReportedRun(name, RunLog.read_started(folder), group, plugins)
        for name, folder, group in zip(names, folders, groups, strict=True)
    ]


def _shorten_paths(folders: Sequence[Path]) -> list[str]:
    """The paths without the parts that all of them begin or end with."""
    parts = [folder.parts for folder in folders]
    first = _count_equal(parts)
    last = _count_equal([own[first:][::-1] for own in parts])
    kept = ["/".join(own[first : len(own) - last]) for own in parts]
    return [name or str(folder) for name, folder in zip(kept, folders, strict=True)]


def _count_equal(rows: Sequence[Sequence[str]]) -> int:
    """How many words all rows begin with."""
    same = [len({*words}) == 1 for words in zip(*rows, strict=False)]
    return [*same, False].index(False)


def _check(folder: Path) -> None:
    if not folder.is_dir():
        setting, equals, value = str(folder).partition("=")
        if equals and setting in ("out", "figures"):
            fix = f"--{setting} {spell_word(value)}"
            raise UsageError(f"{folder}: report takes options with --\n  fix: {fix}")
        near = None if folder.exists() else find_near(folder)
        hint = did_you_mean([near] if near else [])
        raise DataError(
            "is a file, but a folder is needed"
            if folder.exists()
            else f"there is no such folder{hint}",
            file=folder,
            fix=spell_line("report", near) if near else "give a run.dir, or a study's out",
        )
    if (folder / METRICS).is_file() or (folder / CONFIG).is_file():
        return
    if (folder / "search.json").is_file():
        runs = sorted(file.parent for file in folder.glob(f"jobs/*/run/{METRICS}"))
        fix = spell_line("report", *runs[:2])
        raise DataError("a search, whose page is search.html", file=folder, fix=fix)
    patterns = (f"{pattern}/{name}" for pattern in ("*", "jobs/*/run") for name in (METRICS, STUDY))
    inside = sorted(
        file.parent for pattern_of_file in patterns for file in folder.glob(pattern_of_file)
    )
    # the folder of an average or an import: a checkpoint without a run
    inside = inside or sorted(file.parent for file in folder.glob(f"checkpoints/*/{CONFIG}"))[-1:]
    fix = spell_line("report", inside[0]) if inside else "give a run.dir, or a study's out"
    raise DataError("neither a run (metrics.jsonl) nor a study (study.json)", file=folder, fix=fix)
