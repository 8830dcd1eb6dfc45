"""How far work on a known number of things is, on a terminal or, a line now and then, elsewhere."""

from __future__ import annotations

import sys
import time

from plmctl.core.terminal import tell
from plmctl.training.log import clock

EVERY = 10.0  # seconds between lines where nobody watches


class Counting:
    """`counting(done)`: so many of `total` are done; of a resumed job, `begun` were before."""

    def __init__(self, what: str, total: int, *, begun: int = 0) -> None:
        self.what, self.total, self.begun = what, total, begun
        self.start = self.last = time.monotonic()

    def __call__(self, done: int) -> None:
        now = time.monotonic()
        if now - self.last < (0.5 if sys.stderr.isatty() else EVERY) and not (
            done == self.total and self.last > self.start
        ):
            return
        self.last = now
        rate = (done - self.begun) / max(now - self.start, 1e-9)
        left = clock((self.total - done) / rate) if rate > 0 else "?"
        end = "\n" if done == self.total or not sys.stderr.isatty() else "\r"
        line = f"{done:,} of {self.total:,} {self.what}, {rate:,.1f} a second, {left} left"
        tell(f"{line:<78}", file=sys.stderr, end=end)
