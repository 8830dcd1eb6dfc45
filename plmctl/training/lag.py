"""The process that keeps the others waiting, by times that travel with the counts of an update."""

from __future__ import annotations

from collections.abc import Mapping

from plmctl.training.processes.world import World

UNIT = 1_000_000  # microseconds: counts are whole numbers


class Lag:
    """Sums the times of every process between two log lines: `waited` for data, and busy with its
    own passes before it waits for others. It exchanges nothing: its numbers are added to the counts
    of an update, those of the passes one update later.
    """

    def __init__(self, world: World) -> None:
        self._rank, self._size = world.rank, world.size
        self._waiting = self._computing = 0.0  # seconds of this process that are not exchanged yet
        self.clear()

    def wait(self, seconds: float) -> None:
        """Note a wait of this process for data."""
        self._waiting += seconds

    def compute(self, seconds: float) -> None:
        """Note a time in which this process computed."""
        self._computing += seconds

    def counts(self) -> dict[str, int]:
        """The times of this process since the last call, in microseconds, and 0 for all others."""
        own = {"waited": self._waiting, "computed": self._computing}
        self._waiting = self._computing = 0.0
        return {
            f"{kind}/{rank}": round(UNIT * seconds) if rank == self._rank else 0
            for kind, seconds in own.items()
            for rank in range(self._size)
        }

    def add(self, counts: Mapping[str, int]) -> None:
        """Add the summed counts of all processes."""
        for rank in range(self._size):
            self._waits[rank] += counts[f"waited/{rank}"] / UNIT
            self._own[rank] += (counts[f"waited/{rank}"] + counts[f"computed/{rank}"]) / UNIT
        if all(counts[f"computed/{rank}"] for rank in range(self._size)):
            self._computed = True

    @property
    def waited(self) -> float:
        """Seconds of the process that waited longest for data."""
        return max(self._waits)

    def figures(self) -> dict[str, float]:
        """The slowest process, and by which share its time is above the mean of the others'.

        Nothing for one process, and before the times of a pass have come.
        """
        if self._size == 1 or not self._computed:
            return {}
        slowest = max(range(self._size), key=self._own.__getitem__)
        others = (sum(self._own) - self._own[slowest]) / (self._size - 1)
        return {"slowest_rank": slowest, "slowest_over": round(self._own[slowest] / others - 1, 3)}

    def clear(self) -> None:
        """Begin the next line of the log."""
        self._computed = False
        self._waits: list[float] = [0.0] * self._size
        self._own: list[float] = [0.0] * self._size
