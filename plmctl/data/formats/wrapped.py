"""A format around another one, whose rows it changes without laying any token elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plmctl.data.formats.base import Format, Plan

if TYPE_CHECKING:
    from plmctl.data.shards import Shards


class Wrapped(Format):
    """Plans and lengths of `format`; the subclass writes `rows`, and its `settings` belong to the
    identity of the rows.
    """

    def __init__(self, *, format: Format, provides: frozenset[str], settings: object) -> None:
        self.format = format
        self.max_length = format.max_length
        self.target_length = format.target_length
        self.parallel = format.parallel
        self.ordered = format.ordered
        self.streams = format.streams
        self.meanings = format.meanings
        self.copies = format.copies
        self.provides = format.provides | provides
        inner = {
            name: value
            for name, value in vars(format).items()
            if isinstance(value, int | float | str | None)
        }
        self.settings = repr((type(format).__name__, inner, settings))

    def plan(self, shards: Shards, *, seed: int, epoch: int, input_length: int) -> Plan:
        return self.format.plan(shards, seed=seed, epoch=epoch, input_length=input_length)

    @property
    def last_segment(self) -> int:
        return self.format.last_segment

    @property
    def source_hash(self) -> str:
        return self.format.source_hash

    def check(self, shards: Shards, plan: Plan) -> None:
        self.format.check(shards, plan)

    def describe_left_out(self, shards: Shards, plan: Plan) -> str:
        return self.format.describe_left_out(shards, plan)

    def sequence_lengths(self, plan: Plan) -> np.ndarray | None:
        return self.format.sequence_lengths(plan)

    def languages(self, shards: Shards) -> int:
        return self.format.languages(shards)
