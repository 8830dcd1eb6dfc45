"""Wall-clock time: the duration of the run, its speed, its expected end."""

from __future__ import annotations

import time

from plmctl.training.progress import Progress


class Pace:
    """The clock of one session; `seconds` counts all sessions, speeds count from the last
    `restart`.
    """

    def __init__(self, progress: Progress) -> None:
        self._begin, self._before = time.perf_counter(), progress.seconds
        self.restart(progress)

    def seconds(self) -> float:
        """Seconds of the run, with earlier sessions."""
        return self._before + time.perf_counter() - self._begin

    def restart(self, progress: Progress) -> None:
        """Measure the speed from now on."""
        self._mark, self._tokens, self._paused = time.perf_counter(), progress.tokens, 0.0

    def pause(self, seconds: float) -> None:
        """Exclude time that was not training (evaluation, saving) from the speed."""
        self._paused += seconds

    def speed(
        self,
        progress: Progress,
        *,
        flops_per_token: float,
        peak_flops: float,
        waited: float,
        unit: str = "tokens",
    ) -> dict[str, float]:
        """tokens_per_second (or another `unit`) over all processes, without the time of evaluation
        and saving; data_wait, the share of the time that was `waited`; mfu if both numbers are
        known.

        An mfu above 1 says that the peak is wrong: it is left out.
        """
        elapsed = max(1e-9, time.perf_counter() - self._mark - self._paused)
        rate = (progress.tokens - self._tokens) / elapsed
        speed = {
            f"{unit}_per_second": float(f"{rate:.5g}"),
            "data_wait": round(waited / elapsed, 4),
        }
        if flops_per_token and rate * flops_per_token <= peak_flops:
            speed["mfu"] = float(f"{rate * flops_per_token / peak_flops:.4g}")
        return speed

    @staticmethod
    def eta(progress: Progress, share: float) -> float | None:
        """Seconds left at the run's mean pace, when `share` of it is done; None after one update,
        which says little of the others.
        """
        if progress.step < 2 or not progress.seconds or share <= 0:
            return None
        return progress.seconds * (1 - share) / share
