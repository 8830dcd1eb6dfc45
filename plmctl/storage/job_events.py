"""The journal of a folder of jobs: one file to which each job appends its events."""

from __future__ import annotations

import math
import time
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from plmctl.storage.lines import append_line, read_lines

JOURNAL = "journal.jsonl"
STARTS = ("started", "resumed")
ENDS = ("finished", "failed", "stopped")  # events that must survive a power cut

Event = Literal["started", "resumed", "finished", "interrupted", "failed", "stopped", "skipped"]


@dataclass(frozen=True)
class LastEvent:
    """The state of a job by the journal.

    Args:
        event: The last event; "" without one.
        label: The name of the job for people.
        why: The error or the rule that ended the job.
        kept: Whether a finished job still has its checkpoints.
        seconds: The time that it has run, over all starts.
        record: The results of a job of a sweep.
        warnings: The warnings that a finished job has printed.
    """

    event: Event | Literal[""] = ""
    label: str = ""
    why: str = ""
    kept: bool = True
    seconds: float = 0.0
    record: dict[str, Any] | None = None
    warnings: Sequence[str] = ()


class JobEvents:
    """The journal of a folder of jobs; `last` maps each job to its last event, in the order of
    first events.
    """

    def __init__(self, folder: Path) -> None:
        self.file, self.last = folder / JOURNAL, dict[str, LastEvent]()
        self._end = 0
        self.read()

    def of(self, job: str) -> LastEvent:
        """The last event of a job."""
        return self.last.get(job, LastEvent())

    def read(self) -> None:
        """Read the events that any process has appended since the last call."""
        records, self._end = read_lines(self.file, self._end)
        for record in records:
            self._take(record)

    def write(self, event: Event, job: str, **more: Any) -> None:
        """Append an event; `more`: further fields of `LastEvent`, `seconds` those of this start."""
        line = {"time": round(time.time(), 2), "event": event, "job": job, **more}
        append_line(self.file, line, durable=event in ENDS)
        self.read()

    def _take(self, record: dict[str, Any]) -> None:
        before = self.of(name := str(record.get("job")))
        known = {key: record[key] for key in vars(before) if key in record}
        known["seconds"] = before.seconds + known.get("seconds", 0.0)
        self.last[name] = replace(
            before, **{"why": "", "kept": True, "record": None, "warnings": (), **known}
        )


def measure_time(folder: Path, jobs: Container[str]) -> float:
    """The seconds of wall-clock time in which at least one of these jobs ran, over all starts.

    A start that was killed while a job ran wrote no end, and is not counted.
    """
    begun: dict[str, float] = {}
    spans: list[tuple[float, float]] = []
    for line in read_lines(folder / JOURNAL)[0]:
        job, now = str(line.get("job")), float(line.get("time", 0))
        if job not in jobs:
            continue
        if line.get("event") in STARTS:
            begun[job] = now
        elif job in begun:
            spans.append((begun.pop(job), now))
    total, end = 0.0, -math.inf
    for first, last in sorted(spans):
        total += max(0.0, last - max(first, end))
        end = max(end, last)
    return total
