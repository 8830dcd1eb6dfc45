"""Progress displays: continuous on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from plmctl.core.terminal import hears, remark, screen, tell, visible

T = TypeVar("T")
EVERY = 10.0  # seconds between lines that are not on a terminal
# (what is done, bytes so far, bytes in all or 0); characters where its name ends so
Say = Callable[[str, int, int], None]
CHARACTERS = " characters"


def clock(seconds: float) -> str:
    """`2:03`, `1:02:03`; from two days on `2 days 5 h`, from a hundred on `18,978 days`."""
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    if (days := hours // 24) >= 2:
        return f"{days:,} days" if days >= 100 else f"{days} days {hours % 24} h"
    return f"{hours}:{m:02}:{s:02}" if hours else f"{m}:{s:02}"


class Took(NamedTuple):
    """The seconds of a piece of work: of the processor, and by the clock, which has those in which
    the machine did something else.
    """

    busy: float
    passed: float

    @classmethod
    def by(cls, work: Callable[[], object]) -> Took:
        """The seconds that a call takes."""
        began = time.thread_time(), time.perf_counter()
        work()
        return cls(time.thread_time() - began[0], time.perf_counter() - began[1])

    def describe(self, times: float) -> str:
        """The time of so many of them; from and to where the machine is not ours alone."""
        least, most = clock(times * self.busy), clock(times * self.passed)
        alone = self.passed < 1.5 * self.busy
        return least if alone else f"{least}, or {most} while the machine is as busy as now"


class ProgressLine:
    """`show(done)`: so many of `total` are done; of a resumed job, `begun` were before.

    Args:
        what: The things that are counted.
        total: Their number; 0: not known.
        begun: So many were done before.
        inner: Whether the terminal may have another display; then nothing is shown on it.
    """

    def __init__(self, what: str, total: int, *, begun: int = 0, inner: bool = False) -> None:
        self.what, self.total, self.begun = what, total, begun
        self.inner = inner and sys.stderr.isatty()
        self.start = self.last = time.monotonic()

    def __call__(self, done: int) -> None:
        """Show that `done` are done, if the last line is old enough."""
        now = time.monotonic()
        if now - self.last < (0.5 if sys.stderr.isatty() else EVERY) and not (
            done == self.total and self.last > self.start
        ):
            return
        self.last = now
        if self.inner or not hears():
            return
        rate = (done - self.begun) / max(now - self.start, 1e-9)
        left = clock((self.total - done) / rate) if rate > 0 else "?"
        end = "\n" if done == self.total or not sys.stderr.isatty() else "\r"
        line = f"{done:,} {self.what}, {rate:,.1f} a second"
        if self.total:
            counts = f"{done:,} of {self.total:,} {self.what} ({done / self.total:.0%})"
            line = f"{counts}, {rate:,.1f} a second, {left} left"
        tell(f"{line:<78}", file=sys.stderr, end=end)


def follow(items: Iterable[T], count: Callable[[T], int], what: str) -> Iterator[T]:
    """The items, with a line now and then on the work so far, whose end is not known.

    Args:
        items: The items; each is worked on before the next one.
        count: The work of an item, in things.
        what: The things.
    """
    show, done = ProgressLine(what, 0), 0
    for item in items:
        yield item
        done += count(item)
        show(done)
    show.total = done
    show(done)


@contextmanager
def show_bytes() -> Iterator[Say]:
    """Show bytes in a progress bar on a terminal; elsewhere in a line now and then, and none for
    short work.
    """
    start, last = time.monotonic(), time.monotonic()
    began: dict[str, float] = {}

    def line(doing: str, done: int, total: int) -> str:
        seconds = time.monotonic() - began.setdefault(doing, time.monotonic())
        share = f" of {total / 1e6:,.1f}" if total else ""
        rate = done / seconds if seconds > 0.5 else 0
        unit = "M" if doing.endswith(CHARACTERS) else "MB"
        speed = f", {rate / 1e6:.1f} {unit}/s" if rate else ""
        speed += f", {clock((total - done) / rate)} left" if rate and total else ""
        return f"{doing}: {done / 1e6:,.1f}{share} {unit}{speed}" if done else doing

    if not (sys.stderr.isatty() and hears()):

        def plainly(doing: str, done: int, total: int) -> None:
            nonlocal last
            text = line(doing, done, total)
            if time.monotonic() - last > EVERY:
                last = time.monotonic()
                remark(text)

        yield plainly
        return
    from rich.text import Text

    with screen(stderr=True).status("") as status:

        def shown(doing: str, done: int, total: int) -> None:
            status.update(
                Text(visible(f"{line(doing, done, total)}  {time.monotonic() - start:.0f} s"))
            )

        yield shown
