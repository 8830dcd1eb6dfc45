"""Jobs that write their names down, and a program that runs them: `python toy_jobs.py FOLDER`.

FOLDER/notes.txt gets "NAME starts" and "NAME ends" lines; a job with `waits` ends when FOLDER/go is
there, one with `starts` when so many have started, one with `fails` or
`lacks_memory` raises.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plmctl.core.errors import DataError
from plmctl.core.terminal import remark
from plmctl.jobs.display import show_jobs
from plmctl.jobs.job import Job
from plmctl.jobs.journal import JobJournal
from plmctl.jobs.runners import PRELOAD, Processes

PRINTED = ["resumed from x", "step 120 40%  mlm 5.31 (18.2%)  nsp 0.69  grad 1.2  3:20 left"]


def job(folder: Path, name: str, *needs: str, **settings: Any) -> Job:
    inputs = [f"job:{need}" for need in needs]
    return Job(name, "toy", f"the {name}", {"folder": str(folder), "inputs": inputs, **settings})


def execute(record: dict[str, Any], run: Path) -> int:
    config, name = record["config"], run.parent.name
    folder = Path(config["folder"])
    if not all((Path(place) / "made").is_file() for place in config["inputs"]):
        raise DataError("what it needs is not there")
    note(folder, f"{name} starts")
    for line in config.get("prints", ()):
        remark(line)
    while config.get("waits") and not (folder / "go").exists():
        time.sleep(0.01)
    deadline = time.monotonic() + 60
    while sum(line.endswith("starts") for line in notes(folder)) < config.get("starts", 0):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    if config.get("lacks_memory"):
        raise MemoryError
    if config.get("fails"):
        raise DataError(config["fails"])
    run.mkdir(parents=True, exist_ok=True)
    (run / "made").touch()
    note(folder, f"{name} ends")
    return int(config.get("code", 0))


def note(folder: Path, line: str) -> None:
    with (folder / "notes.txt").open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def notes(folder: Path) -> list[str]:
    file = folder / "notes.txt"
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def chain(folder: Path) -> dict[str, Job]:
    """first <- second (waits) <- third, and one beside them."""
    made = [
        job(folder, "first"),
        job(folder, "second", "first", waits=True, prints=PRINTED, train={"steps": 300}),
        job(folder, "third", "second"),
        job(folder, "beside"),
    ]
    return {each.name: each for each in made}


def journal(folder: Path, jobs: dict[str, Job], **settings: Any) -> JobJournal:
    return JobJournal(jobs, folder / "jobs", **settings)


def run(
    folder: Path, jobs: dict[str, Job], *, count: int = 1, preload: Sequence[str] = PRELOAD
) -> tuple[int, JobJournal]:
    kept = journal(folder, jobs)
    with show_jobs(kept):
        return Processes(kept, count, execute, preload).run(), kept


if __name__ == "__main__":
    place = Path(sys.argv[1])
    sys.exit(run(place, chain(place), count=2, preload=["plmctl.jobs.runners"])[0])
