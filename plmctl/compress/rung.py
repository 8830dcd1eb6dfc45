"""A rung of the ladder, and which of them is taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from plmctl.compress.bench import Costs
from plmctl.compress.shape import Shape
from plmctl.compress.target import Target


@dataclass(frozen=True)
class Rung:
    """A model and what it costs.

    Args:
        name: The name of its shape.
        form: The library and the numbers of its file.
        score: Its score on dev; None: not measured.
        costs: Its costs; None: its library refuses it.
        refused: Why its library refuses it.
        predicted: The costs of its shape before the training.
        job: The job that wrote it.
    """

    name: str
    shape: Shape
    form: str
    score: float | None = None
    costs: Costs | None = None
    refused: str = ""
    predicted: Costs | None = None
    job: str = ""


@dataclass(frozen=True)
class LadderResult:
    """The rungs so far, and which of them is chosen.

    Args:
        run: The run itself.
        rungs: All others, in the order in which they were made.
        keep: The least share of the score.
        larger: Whether a larger score is better.
    """

    run: Rung
    rungs: Sequence[Rung]
    target: Target
    keep: float
    metric: str
    larger: bool

    @property
    def chosen(self) -> Rung | None:
        """The rung with the best score, if it reaches the target and keeps the score."""
        good = [rung for rung in self.rungs if self.meets(rung) and self.keeps(rung)]
        return max(good, key=self._rank, default=None)

    def meets(self, rung: Rung) -> bool:
        """Whether a rung reaches the target."""
        return self.reach(rung) >= 1

    def reach(self, rung: Rung) -> float:
        """How much of the target a rung reaches: 1 or more where it is met."""
        costs, run = rung.costs, self.run.costs
        if costs is None or run is None:
            return 0.0
        quantity = self.target.quantity
        return self.target.reach(costs.of(quantity), costs.times_less(quantity, run))

    def speed(self, rung: Rung) -> float:
        """How many times faster than the run a rung is."""
        return rung.costs.faster if rung.costs else 0.0

    def share(self, rung: Rung) -> float | None:
        """The share of the score of the run; 1 is as good."""
        if rung.score is None or self.run.score is None:
            return None
        lost = self.run.score - rung.score if self.larger else rung.score - self.run.score
        return 1 - lost / abs(self.run.score) if self.run.score else 1.0

    def keeps(self, rung: Rung) -> bool:
        """Whether a rung keeps the score."""
        share = self.share(rung)
        return share is not None and share >= self.keep

    def nearest(self) -> tuple[Rung | None, Rung | None]:
        """(the rung that reaches most with the score, the best score at the target)."""
        kept = [rung for rung in self.rungs if self.keeps(rung)]
        met = [rung for rung in self.rungs if self.meets(rung) and rung.score is not None]
        return (max(kept, key=self.reach, default=None), max(met, key=self._rank, default=None))

    def _rank(self, rung: Rung) -> tuple[float, float]:
        share = self.share(rung)
        return (0.0 if share is None else share, self.reach(rung))

    def to_json(self) -> dict[str, Any]:
        """The record of `table.json`."""
        chosen = self.chosen
        return {
            "metric": self.metric,
            "target": asdict(self.target),
            "keep": self.keep,
            "run": self._record(self.run),
            "rungs": [self._record(rung) for rung in self.rungs],
            "chosen": None if chosen is None else self.rungs.index(chosen),
        }

    def _record(self, rung: Rung) -> dict[str, Any]:
        found = asdict(rung) | {"shape": {**asdict(rung.shape), "width": float(rung.shape.width)}}
        return found | {"share": self.share(rung), "reach": self.reach(rung)}
