"""The progress of a run: the counters that a checkpoint holds."""

from __future__ import annotations

import math
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from plmctl.core.values import Number, Whole
from plmctl.storage.reading import fit_stored

READ = ("tokens", "rows", "words")  # units of an update, as batches count them


@dataclass
class Progress:
    """Counters over all ranks and all sessions of the run."""

    step: Whole = 0  # optimizer updates done; skipped ones are not counted
    tokens: Whole = 0  # tokens of those updates, without padding
    words: Whole = 0  # words of their text, in a run that counts them (data/counted_words.py)
    rows: Whole = 0
    seconds: Number = 0.0  # wall-clock time, evaluation and saving included
    skipped: Whole = 0  # updates thrown away because their gradient was not finite
    bad_in_row: Whole = 0
    stage: Whole = 0
    before_stage: Whole = 0  # updates of the stages before it
    best: float | None = None
    best_loss: float | None = (
        None  # the loss of that validation, which decides between equal values
    )
    best_step: Whole | None = None
    since_best: Whole = 0  # validations since then, those of the last stage
    rate: Number = 0.0  # the largest learning rate of the last update

    def count(self, *, tokens: int, rows: int, words: int = 0) -> None:
        """One more good update."""
        self.step, self.bad_in_row = self.step + 1, 0
        self.tokens, self.rows = self.tokens + tokens, self.rows + rows
        self.words += words

    def after(self, counts: Mapping[str, int]) -> Progress:
        """The counters after one more good update, which reads `counts`."""
        then = replace(self)
        then.count(**{unit: counts.get(unit, 0) for unit in READ})
        return then

    def mean(self) -> dict[str, int]:
        """The mean of an update, by unit."""
        return {unit: getattr(self, unit) // max(1, self.step) for unit in READ}

    def improve(self, value: float | None, loss: float | None, *, largest: bool) -> bool:
        """Whether `value` of a validation is the best so far, which is then stored; among equal
        values the one with the lower `loss` is better.
        """
        if value is None or not math.isfinite(value):
            return False
        sign = 1 if largest else -1
        # BLEU may be 0 everywhere
        lower = loss is not None and (self.best_loss is None or loss < self.best_loss)
        if self.best is not None:
            equal = value == self.best and lower
            if not (sign * value > sign * self.best or equal):
                return False
        self.best, self.best_loss, self.best_step = value, loss, self.step
        return True

    def enter(self, stage: int) -> None:
        """The next update is the first one of `stage`."""
        self.stage, self.before_stage = stage, self.step

    def forget_best(self) -> None:
        """Forget earlier measurements, which are not comparable with later ones."""
        self.best = self.best_loss = self.best_step = None
        self.since_best = 0

    def to_json(self) -> dict[str, Any]:
        """The counters as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, state: dict[str, Any], *, file: object) -> Progress:
        """The counters in `file`; DataError for one that is not a number."""
        hints = typing.get_type_hints(cls, include_extras=True)
        known = {name: value for name, value in state.items() if name in hints}
        return cls(
            **{
                name: fit_stored(value, hints[name], file=f"{file}: progress.{name}")
                for name, value in known.items()
            }
        )
