"""`--dry-run` of commands that use a trained model: a few rows are answered, and the time of all
follows from theirs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from plmctl.core.machine import measure_peak_memory
from plmctl.core.progress import Took
from plmctl.core.rounding import spell_size
from plmctl.use.predict import ScoreTable, Told

T = TypeVar("T")
FIRST, MORE = 8, 4  # rows of the first try, which takes longer than others, and how it grows
SECONDS = 1.0  # the least time of the last try


@dataclass(frozen=True)
class Rehearsal:
    """The work that a few rows foresee.

    Args:
        what: The task and its texts, for people.
        count: The number of all rows; None of a stream, which has no end yet.
        tried: The number of rows that were answered.
        took: The seconds of these.
        memory: The bytes that the process has held by then.
        start: The seconds of the processor before the first answer.
    """

    what: str
    count: int | None
    tried: int
    took: Took
    memory: int
    start: float = 0.0

    @property
    def costs(self) -> dict[str, float]:
        """{seconds, bytes, busy_seconds} of all rows, for the sum of a sweep: on a processor alone,
        and as busy as now.
        """
        whole = self._whole
        if whole is None:
            return {"bytes": self.memory}
        return {"seconds": whole.busy, "bytes": self.memory, "busy_seconds": whole.passed}

    @property
    def _whole(self) -> Took | None:
        """The seconds of the start and of all rows; None of a stream."""
        if self.count is None:
            return None
        times, slower = self.count / self.tried, self.took.passed / max(self.took.busy, 1e-9)
        busy = self.start + times * self.took.busy
        return Took(busy, slower * busy)

    def tabulate(self) -> ScoreTable:
        """The rows, the time and the memory."""
        each = f"{1000 * self.took.busy / self.tried:.3g} ms a row"
        whole = self._whole
        begun = f"{each} and {self.start:.1f} s of start"
        of = each if whole is None else f"{whole.describe(1)}, at {begun}"
        of += f", of {self.tried:,} that were answered now"
        left_out = "scores, files that are written" + ("; start" if whole is None else "")
        said = {"time": Told(of, self.costs.get("seconds"))}
        said["memory"] = Told(f"{spell_size(self.memory)} so far", self.memory)
        rows: Any = "as many as come" if self.count is None else self.count
        facts = {"task": self.what, "rows": rows, **said, "not in this time": left_out}
        return ScoreTable(self.what, {}, facts)


def rehearse(
    what: str,
    things: Sequence[T],
    answer: Callable[[list[T]], Any],
    *,
    count: int | None = -1,
    start: float | None = None,
) -> Rehearsal:
    """Answer some of the things, drawn at random, and time it: more and more, until it takes a
    second. Many rows of like lengths are a batch with little padding, as in the work itself.

    Args:
        what: The task and its texts, for people.
        things: The things, or those of a first piece.
        count: The number of all; None: not known; -1: `things` are all.
        start: The seconds before; None: all that this process has used by now.
    """
    start = time.process_time() if start is None else start
    drawn = np.random.default_rng(0).permutation(len(things)).tolist()
    answer([things[index] for index in drawn[:FIRST]])
    tried = FIRST
    while True:
        tried *= MORE
        some = [things[index] for index in sorted(drawn[:tried])]
        took = Took.by(partial(answer, some))
        if took.passed >= SECONDS or tried >= len(things):
            break
    known = len(things) if count == -1 else count
    return Rehearsal(what, known, len(some), took, measure_peak_memory(), start)
