"""What a report is about, and what the reader wishes to see of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plmctl.core.errors import DataError, UsageError
from plmctl.report.runs import CONFIG, METRICS, RunLog, read_predictions, read_result
from plmctl.report.studies import STUDY, StudyFolder, is_study
from plmctl.report.sweeps import find_folders, name_job, read_record

if TYPE_CHECKING:
    from plmctl.run.loading import Loaded


@dataclass(frozen=True)
class Labels:
    """Labelled words: a column file (CoNLL), or JSON lines `{word, sentence1, sentence2, label}`
    (WiC).
    """

    file: Path
    tokens: int = 0
    tags: int = 1


@dataclass(frozen=True)
class Wishes:
    """What is drawn only where it is asked for."""

    heads: Sequence[tuple[int, int]] = ()  # (layer, head) whose attention is drawn, from 0
    sentences: Sequence[str] = ()  # on which; none: two of those that come with plmctl
    # what is asked of the layers: labelled words
    probes: Mapping[str, Labels] = field(default_factory=dict)


@dataclass(frozen=True)
class ReportedRun:
    """One run directory under the name that it has on the page; `group`: that of its repetitions
    with other seeds.
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
        """The name of the task that it was fine-tuned on; empty for a pretraining."""
        return str((self.log.config.get("task") or {}).get("name") or "")

    @cached_property
    def loaded(self) -> Loaded:
        """Its model, its best checkpoint if it has one; DataError where there is none, or one of
        another version's parts.
        """
        from plmctl.run.loading import load  # brings torch, which whoever reads logs does not need

        try:
            return load(self.folder, plugins=self.plugins)
        # of parts that take other settings by now
        except (TypeError, KeyError, AttributeError) as error:
            raise DataError(
                f"this version of plmctl cannot build its model: {error}", file=self.folder
            ) from error

    @cached_property
    def result(self) -> dict[str, Any] | None:
        """The scores of a fine-tuning; None where there are none."""
        return read_result(self.folder)

    @cached_property
    def predictions(self) -> dict[str, list[dict[str, Any]]]:
        """{split: its predictions}."""
        return read_predictions(self.folder)


@dataclass(frozen=True)
class Subject:
    """Runs side by side, or one study."""

    runs: Sequence[ReportedRun] = ()
    study: StudyFolder | None = None
    wishes: Wishes = field(default_factory=Wishes)


def find_subject(
    folders: Sequence[Path], wishes: Wishes | None = None, plugins: Sequence[str] = ()
) -> Subject:
    """The subject that `folders` are; DataError for a folder that is neither run nor study."""
    wishes = wishes or Wishes()
    studies = [folder for folder in folders if is_study(folder)]
    if studies and len(folders) > 1:
        raise UsageError(
            f"{studies[0]} is a study: a report shows one study, or runs\n"
            f"  fix: plmctl report {studies[0]}"
        )
    if studies:
        return Subject(study=StudyFolder.read(studies[0]), wishes=wishes)
    folders = [inner for folder in folders for inner in _jobs(folder)]
    for folder in folders:
        _check(folder)
    return Subject(_named(folders, plugins), wishes=wishes)


def _jobs(folder: Path) -> list[Path]:
    """The runs of a sweep, where `folder` holds one; otherwise itself."""
    if (folder / METRICS).is_file() or (folder / CONFIG).is_file():
        return [folder]
    return [job for job in find_folders(folder) if (job / CONFIG).is_file()] or [folder]


def _named(folders: Sequence[Path], plugins: Sequence[str]) -> list[ReportedRun]:
    """Runs by the names of their folders, the jobs of a sweep by what it varied; by their paths
    where names are not unique.
    """
    jobs = [read_record(folder) for folder in folders]
    names = [
        name_job(job) or folder.resolve().name for job, folder in zip(jobs, folders, strict=True)
    ]
    if len(set(names)) < len(names):
        names = [str(folder) for folder in folders]
    groups = [
        name_job(job, seeds=False) or "all seeds" if job.get("varied") else None for job in jobs
    ]
    return [
        ReportedRun(name, RunLog.begun(folder), group, plugins)
        for name, folder, group in zip(names, folders, groups, strict=True)
    ]


def _check(folder: Path) -> None:
    if not folder.is_dir():
        raise DataError(
            "is a file, but a folder is needed" if folder.exists() else "there is no such folder",
            file=folder,
        )
    if (folder / METRICS).is_file() or (folder / CONFIG).is_file():
        return
    wanted = (f"{pattern}/{name}" for pattern in ("*", "jobs/*/run") for name in (METRICS, STUDY))
    inside = sorted(file.parent for each in wanted for file in folder.glob(each))
    fix = (
        f"give one of those in it: {', '.join(map(str, inside[:5]))}"
        if inside
        else "give a run.dir, or a study's out"
    )
    raise DataError("neither a run (metrics.jsonl) nor a study (study.json)", file=folder, fix=fix)
