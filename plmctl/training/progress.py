"""How far a run is: the counters that travel with a checkpoint."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass
class Progress:
    """Counters over all ranks and all sittings of the run."""

    step: int = 0  # optimizer updates done; skipped ones are not counted
    tokens: int = 0  # real tokens of those updates
    rows: int = 0
    seconds: float = 0.0  # wall-clock time, evaluation and saving included
    skipped: int = 0  # updates thrown away because their gradient was not finite
    bad_in_row: int = 0
    stage: int = 0
    best: float | None = None
    best_loss: float | None = None  # of that validation: it decides between equals
    best_step: int | None = None

    def count(self, *, tokens: int, rows: int) -> None:
        """One more good update."""
        self.step, self.bad_in_row = self.step + 1, 0
        self.tokens, self.rows = self.tokens + tokens, self.rows + rows

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> Progress:
        known = {f.name for f in fields(cls)}
        return cls(**{name: value for name, value in state.items() if name in known})
