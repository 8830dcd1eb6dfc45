"""The display of jobs while they run: a table on a terminal, elsewhere a line for each event."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from plmctl.core.errors import first_with_fix
from plmctl.core.terminal import hears, remark, screen
from plmctl.jobs.job import Job, without_seed
from plmctl.jobs.journal import JobJournal
from plmctl.jobs.work import LOG
from plmctl.storage.job_events import Event

HEAD = ("job", "state", "step", "newest numbers", "left")
TAIL = 2048  # bytes at the end of a log that are read for its newest line
# a line of training (training/log.py): "step 200 12%  mlm 5.31 (18.2% of train)  ...  3:20 left"
_STEP = re.compile(r"step (\d+)(?: (\d+)%)?(?:  (.*?))?(?:  ([\d:]+) left)?\s*")


@contextmanager
def show_jobs(journal: JobJournal, *, live: bool = True) -> Iterator[None]:
    """Show what happens to the jobs of a journal.

    Args:
        live: whether a terminal shows a table, too; not where jobs print in this process.
    """
    running: dict[str, Event] = {}  # job -> how it was started
    told = defaultdict[str, set[str]](set)  # jobs that differ in their seed -> fixes

    def tell(event: Event, job: Job, why: str) -> None:
        running.pop(job.name, None)
        if event in ("started", "resumed"):
            running[job.name] = event
        head = f"[{journal.ended}/{len(journal.jobs)}] {event}: {job.label}"
        fixes = told[without_seed(job.label)]
        remark(f"{head}: {first_with_fix(why, told=fixes)}" if why else head)

    journal.tell = tell
    console = screen(stderr=True)
    if not (live and console.is_terminal and hears()):
        yield
        return
    from rich.live import Live
    from rich.table import Table

    def draw() -> Table:
        title = f"{journal.ended} of {len(journal.jobs)} jobs ended"
        table = Table(*HEAD, title=title, title_justify="left")
        for name, event in list(running.items()):
            job = journal.jobs[name]
            table.add_row(job.label, event, *read_progress(journal.locate(name) / LOG, job))
        return table

    # transient: the table goes when it ends, however it ends, and the lines of events stay
    with Live(console=console, get_renderable=draw, refresh_per_second=2, transient=True):
        yield


def read_progress(log: Path, job: Job) -> tuple[str, str, str]:
    """(updates of all updates, newest numbers, time left) by the log of a job; "" where unknown."""
    if not log.is_file():
        return "", "", ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL))
        lines = file.read().decode(errors="replace").splitlines()
    matches = (_STEP.fullmatch(line) for line in reversed(lines))
    if (newest := next(filter(None, matches), None)) is None:
        return "", next((line.strip() for line in reversed(lines) if line.strip()), ""), ""
    step, percent, numbers, left = newest.groups(default="")
    steps = (job.config.get("train") or {}).get("steps")
    whole = f" of {steps:,}" if steps else f" ({percent}%)" if percent else ""
    return f"{int(step):,}{whole}", "  ".join(numbers.split("  ")[:2]), left
