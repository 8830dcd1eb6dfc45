"""The scores of checkpoints of different age, as a sweep of `eval` leaves them."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from plmctl.analysis.runs import CONFIG
from plmctl.report.studies import StudyFolder, is_study
from plmctl.report.sweeps import ABSENT, find_value, name_jobs
from plmctl.storage.reading import parse_json

CHECKPOINT = "checkpoint"
UNITS = {"step": "update"}  # the names of other ages are their units: words
_AGED = re.compile(r"(?P<unit>[a-z]+)-(?P<age>\d+)")


@dataclass(frozen=True)
class CheckpointScore:
    """The scores of one checkpoint.

    Args:
        group: The name that the repetitions of the run with other seeds share.
        unit: The unit of the age: update, words.
        mark: The updates or words that its name states.
        age: The updates or words before it, in the mean of its group.
    """

    run: str
    group: str
    unit: str
    mark: int
    age: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class CheckpointScores:
    """The scores of the checkpoints of a sweep.

    Args:
        superseded: The number of checkpoints from earlier versions of a study, left out.
    """

    scores: Sequence[CheckpointScore]
    superseded: int = 0


def find_checkpoint_scores(records: Sequence[dict[str, Any]]) -> CheckpointScores | None:
    """The scores in the records of a sweep of `eval`; None where it has none of checkpoints whose
    names have their age.
    """
    jobs = [job for job in records if _is_score(job)]
    studies: dict[Path, Mapping[Path, tuple[str, str]]] = {}
    found, superseded = list[CheckpointScore](), 0
    for job, settings in zip(jobs, name_jobs(jobs, without=[CHECKPOINT]), strict=True):
        place = Path(find_value(job, CHECKPOINT))
        aged = _AGED.fullmatch(place.name)
        if aged is None:
            continue
        names = _name_run(place.parent.parent, studies)
        if names is None:
            superseded += 1
            continue
        run, group = (f"{name} {settings}".strip() for name in names)
        unit = UNITS.get(aged["unit"], aged["unit"])
        mark = int(aged["age"])
        age = _read_age(place, aged["unit"], mark)
        found.append(CheckpointScore(run, group, unit, mark, age, job["metrics"]))
    return CheckpointScores(_share_ages(found), superseded) if found else None


def _share_ages(scores: Sequence[CheckpointScore]) -> list[CheckpointScore]:
    """The scores with the mean age of their group at each mark: updates of other seeds end at other
    words behind it.
    """
    ages: dict[tuple[str, str, int], list[int]] = {}
    for each in scores:
        ages.setdefault((each.group, each.unit, each.mark), []).append(each.age)
    return [
        replace(each, age=round(statistics.fmean(ages[each.group, each.unit, each.mark])))
        for each in scores
    ]


def _read_age(checkpoint: Path, unit: str, named: int) -> int:
    """The words or updates before a checkpoint. An update may end behind the number of its name,
    which stands where the checkpoint is gone.
    """
    try:
        progress = parse_json((checkpoint / "trainer.json").read_text(encoding="utf-8"))["progress"]
        return int(progress.get(unit) or named)
    except (OSError, ValueError, KeyError):
        return named


def _is_score(job: Mapping[str, Any]) -> bool:
    """Whether a job of a sweep has scored a checkpoint, and trained nothing."""
    trains = (Path(job.get("dir") or ".") / CONFIG).is_file()
    return bool(job["metrics"]) and not trains and find_value(dict(job), CHECKPOINT) != ABSENT


def _name_run(
    run: Path, studies: dict[Path, Mapping[Path, tuple[str, str]]]
) -> tuple[str, str] | None:
    """(the name of a run, the name of its group); None for a job that its study no longer plans.

    Args:
        studies: The names of the jobs of the studies that were read before.
    """
    study = run.parent.parent.parent  # STUDY/jobs/JOB/run
    if not is_study(study):
        return str(run), str(run)
    if study not in studies:
        studies[study] = dict(_name_jobs(study))
    return studies[study].get(run)


def _name_jobs(study: Path) -> Iterator[tuple[Path, tuple[str, str]]]:
    for job in StudyFolder.read(study).jobs:
        yield job.folder / "run", (job.label, job.arm or job.label)
