"""The length of a run: exactly one of updates, tokens, words, epochs or minutes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from plmctl.core.errors import ConfigError
from plmctl.training.progress import Progress


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The end of the run, and the share of it that is done, which the schedule and the stages
    follow.

    Tokens and words: the run ends with the update that reaches the number. Minutes: wall-clock time
    of all sessions, with evaluation; the run ends with the first update that begins after this
    time, and the schedule follows the share of time.
    """

    steps: int | None = None
    tokens: int | None = None
    words: int | None = None
    minutes: float | None = None

    def space_lines(self) -> int:
        """The default number of updates between two lines of the log: 10. A run of less than 100
        updates has fewer, so that it has ten lines, too.
        """
        return 10 if self.steps is None else min(10, max(1, self.steps // 10))

    @classmethod
    def of(
        cls,
        *,
        steps: int | None = None,
        tokens: int | None = None,
        words: int | None = None,
        epochs: float | None = None,
        minutes: float | None = None,
        updates_per_epoch: float | None = None,
        least_steps: int = 0,
    ) -> Budget:
        """The budget of the five settings of `train`; `epochs` becomes updates by
        `updates_per_epoch`, rounded up, and at least `least_steps`.
        """
        lengths = {"steps": steps, "tokens": tokens, "words": words, "minutes": minutes}
        settings = {**lengths, "epochs": epochs}
        set_ = {name: value for name, value in settings.items() if value is not None}
        if len(set_) != 1:
            allowed = f"exactly one of {', '.join(f'train.{name}' for name in settings)}"
            raise ConfigError("train", set_, allowed)
        name, value = next(iter(set_.items()))
        if value <= 0:
            raise ConfigError(f"train.{name}", value, "more than 0")
        if epochs is not None:
            assert updates_per_epoch, "epochs need updates_per_epoch"
            updates = math.ceil(round(epochs * updates_per_epoch, 6))
            return cls(steps=max(1, least_steps, updates))
        return cls(steps=steps, tokens=tokens, words=words, minutes=minutes)

    def done(self, progress: Progress) -> float:
        """The share of the budget that `progress` has used: 0 at the beginning, 1 at the end."""
        used, whole = next(
            (used, whole)
            for used, whole in (
                (progress.step, self.steps),
                (progress.tokens, self.tokens),
                (progress.words, self.words),
                (progress.seconds, 60 * (self.minutes or 1)),
            )
            if whole is not None
        )
        return min(1.0, used / whole)

    def total(self, t: int, share: float) -> float:
        """The number of updates that the run will have, as estimated at update `t`, after which
        `share` is done.
        """
        return self.steps if self.steps is not None else max(t, t / max(share, 1e-9))

    def __str__(self) -> str:
        named = {
            "steps": "updates",
            "tokens": "tokens in updates",
            "words": "words in updates",
            "minutes": "minutes of updates",
        }
        return next(
            f"{value:,} {named[name]}" for name, value in vars(self).items() if value is not None
        )
