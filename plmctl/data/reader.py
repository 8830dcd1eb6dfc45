"""Which rows come when: a seeded order that any number of ranks reads once, and that resumes from three numbers."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plmctl.batch import Rows, held_by_data
from plmctl.data.formats.base import Format, Plan
from plmctl.errors import DataError
from plmctl.noise.draws import Draws

if TYPE_CHECKING:
    from plmctl.data.shards import Shards


class Position(NamedTuple):
    """How far the run has read: `cursor` rows of `epoch`."""

    epoch: int = 0
    cursor: int = 0


class Reader:
    """Global batches of `batch_size` rows, a new seeded permutation each epoch; rank r of `world` gets the r-th slice of each.

    The order is a function of (seed, stage, epoch); batch size and ranks only cut it, so both may change on resume. A batch
    that reaches the end of an epoch goes on in the next one: no row is dropped, none comes twice in an epoch.
    `stage`: a stage of `train.stages` with its own format starts at epoch 0 of its own order; loading the state of an
    earlier stage into it therefore starts it afresh. `input_length`: what the noise leaves of `format.max_length`.
    A corpus shorter than one row is refused unless `allow_short` (held-out text may be that short).
    `wanted`: the fields that noise, objective and model read; a format makes no others that cost time (None: all).
    """

    def __init__(
        self, shards: Shards, format: Format, *, seed: int, batch_size: int, world: int = 1, rank: int = 0, stage: int = 0,
        input_length: int | None = None, allow_short: bool = False, wanted: frozenset[str] | None = None,
    ) -> None:  # fmt: skip
        self.shards, self.format, self.seed, self.stage = shards, format, seed, stage
        self.batch_size, self.world, self.rank = batch_size, world, rank
        self.input_length = format.max_length if input_length is None else input_length
        self.position, self.wanted = Position(), wanted
        self._plans: dict[int, Plan] = {}
        self._orders: dict[int, np.ndarray] = {}
        self._check(allow_short)

    def _check(self, allow_short: bool) -> None:
        there = {f"tracks.{name}" for name in self.shards.tracks} | {f"spans.{name}" for name in self.shards.spans}
        for field in sorted(self.wanted or ()):
            if held_by_data(field) and field not in there:
                kind, _, name = field.partition(".")
                raise DataError(
                    f"these tokens have no {field}", file=getattr(self.shards, "folder", None),
                    fix=f"plmctl tokenize with data.{'spans' if kind == 'spans' else 'tags'}=[{name}] and .jsonl text",
                )  # fmt: skip
        tokens, documents = len(self.shards.ids), len(self.shards.documents) - 1
        if tokens < (1 if allow_short else self.input_length) or self.plan(0).rows == 0:
            raise DataError(
                f"{tokens} tokens in {documents} documents fill no row of format.max_length={self.format.max_length}",
                file=getattr(self.shards, "folder", None), fix="give data.path more text, or set a smaller format.max_length",
            )  # fmt: skip

    @property
    def fingerprint(self) -> str:
        """Changes with the tokens and with every setting of the format."""
        plain = {k: v for k, v in sorted(vars(self.format).items()) if isinstance(v, int | float | str | None)}
        text = repr((self.shards.fingerprint, type(self.format).__name__, plain, self.input_length))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def plan(self, epoch: int) -> Plan:
        """The plan of an epoch; the two latest are kept, because a batch may touch two epochs."""
        epoch = epoch if self.format.copies is None else epoch % self.format.copies
        if epoch not in self._plans:
            plan = self.format.plan(self.shards, seed=self.seed, epoch=epoch, input_length=self.input_length)
            self._plans = {**dict(list(self._plans.items())[-1:]), epoch: plan}
        return self._plans[epoch]

    def order(self, epoch: int) -> np.ndarray:
        """[rows] the rows of an epoch in the order of reading: sorted by one random 64-bit number each, or as planned."""
        if self.format.ordered:
            return np.arange(self.plan(epoch).rows)
        if epoch not in self._orders:
            words = self.draws(epoch).words(np.arange(self.plan(epoch).rows), "order", 1)
            self._orders = {**dict(list(self._orders.items())[-1:]), epoch: np.argsort(words[:, 0], kind="stable")}
        return self._orders[epoch]

    def draws(self, epoch: int) -> Draws:
        return Draws(self.seed, epoch, ("stage", self.stage))

    def rows(self, epoch: int, index: np.ndarray) -> Rows:
        return self.format.rows(self.shards, self.plan(epoch), index, self.wanted)

    def take(self, position: Position) -> tuple[list[tuple[int, np.ndarray]], Position]:
        """This rank's share of the global batch at `position`, as (epoch, rows of it) in order, and the position after it."""
        low, high = (self.batch_size * r // self.world for r in (self.rank, self.rank + 1))
        share: list[tuple[int, np.ndarray]] = []
        done, (epoch, cursor) = 0, position
        while done < self.batch_size:
            order = self.order(epoch)
            count = min(self.batch_size - done, len(order) - cursor)
            index = order[cursor + max(0, low - done) : cursor + max(0, min(count, high - done))]
            if len(index):
                share.append((epoch, index))
            done, cursor = done + count, cursor + count
            if cursor == len(order):
                epoch, cursor = epoch + 1, 0
        return share, Position(epoch, cursor)

    def once(self, count: int) -> list[np.ndarray]:
        """Every row of epoch 0 once, in fixed order: this rank's batches of up to `count` rows, as many on every rank."""
        rows, step = self.plan(0).rows, count * self.world
        starts = [start + self.rank * count for start in range(0, rows, step)]
        return [np.arange(min(start, rows), min(start + count, rows)) for start in starts]

    def state_dict(self) -> dict[str, Any]:
        return self.state_at(self.position)

    def state_at(self, position: Position) -> dict[str, Any]:
        return {"seed": self.seed, "stage": self.stage, **position._asdict(), "fingerprint": self.fingerprint}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where the state was taken; the start, if it is of an earlier stage; DataError if the data are others."""
        if state["stage"] < self.stage:
            self.position = Position()
            return
        mine = {"seed": self.seed, "stage": self.stage, "fingerprint": self.fingerprint}
        different = [name for name, value in mine.items() if state[name] != value]
        if different:
            raise DataError(
                f"the checkpoint was reading other rows ({', '.join(different)} differ)",
                fix="resume with the same data.path, tokenizer, format and seed, or start a new run with init=<checkpoint>",
            )
        self.position = Position(state["epoch"], state["cursor"])
