"""The order of rows: it is seeded, any number of ranks reads it once, and three numbers resume
it.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.fields import glossary, held_by_data
from plmctl.core.terminal import counted
from plmctl.core.ungiven import check_given
from plmctl.core.values import Whole, fit
from plmctl.data.counted_words import FIELD, mark_words
from plmctl.data.formats.base import Format, Plan
from plmctl.data.formats.carried import Wanted
from plmctl.data.plans import cache_plan, hash_code

if TYPE_CHECKING:
    from plmctl.data.shards import Shards

# the rule by which a share of short documents is held out is of 0.2.0
EARLIER = "; plmctl 0.1.0 goes on with its own runs on short documents"


class ReadPosition(NamedTuple):
    """How far the run has read: `cursor` rows of `epoch`."""

    epoch: int = 0
    cursor: int = 0


@dataclass(frozen=True)
class Picks:
    """Rows in the order of reading, before they are laid out: row `index[i]` of `epoch[i]`, and in
    a mixture of corpus `corpus[i]`.
    """

    epoch: np.ndarray  # [n] int64
    index: np.ndarray  # [n] int64
    corpus: np.ndarray | None = None  # [n] int64
    spare: bool = False  # whether the rows are those of other processes, and count for nothing

    def __len__(self) -> int:
        return len(self.index)

    def select(self, indices: slice | np.ndarray) -> Picks:
        """The picks at these indices."""
        return Picks(
            self.epoch[indices],
            self.index[indices],
            None if self.corpus is None else self.corpus[indices],
            self.spare,
        )


class CorpusPicks(NamedTuple):
    """Rows that share their random numbers: of one corpus and one epoch."""

    place: np.ndarray  # [m] their indices among the picks
    rows: Rows
    draws: Draws


def choose_rows_of_rank(batch_size: int, world: int, rank: int) -> slice:
    """The rows of a global batch that a rank reads: streams keep their rank and their position in
    its share.
    """
    return slice(batch_size * rank // world, batch_size * (rank + 1) // world)


class NoRowsError(DataError):
    """A text that fills no row."""


class RowReader:
    """Global batches of `batch_size` rows, in a new seeded permutation for each epoch; rank r of
    `world` gets the r-th slice of each batch.

    The order is a function of (seed, stage, epoch); batch size and ranks only cut it, so both may
    change on resume. A batch that reaches the end of an epoch continues in the next one: no row is
    dropped, none comes twice in an epoch.

    Args:
        stage: a stage of `train.stages` with its own format starts at epoch 0 of its own order; so
            the state of an earlier stage starts it from the beginning.
        input_length: tokens that the noise leaves of `format.max_length`.
        allow_short: accept a corpus shorter than one row (held-out text may be that short).
        wanted: the fields that noise, objective and model read; the format leaves out others that
            cost time (None: all).
    """

    unit = "an epoch"  # the name of its rows, for people

    def __init__(
        self,
        shards: Shards,
        format: Format,
        *,
        seed: int,
        batch_size: int,
        world: int = 1,
        rank: int = 0,
        stage: int = 0,
        input_length: int | None = None,
        allow_short: bool = False,
        wanted: Wanted = None,
    ) -> None:
        self.shards = mark_words(shards) if wanted and FIELD in wanted else shards
        self.format, self.seed, self.stage = format, seed, stage
        self.batch_size, self.world, self.rank = batch_size, world, rank
        self.input_length = format.max_length if input_length is None else input_length
        self.position, self.wanted = ReadPosition(), wanted
        self._plans: dict[int, Plan] = {}
        self._orders: dict[int, np.ndarray] = {}
        self._check(allow_short)

    def _check(self, allow_short: bool) -> None:
        stored = {f"tracks.{name}" for name in self.shards.tracks} | {
            f"spans.{name}" for name in self.shards.spans
        }
        known = glossary([self.format])
        for field in sorted(self.wanted or ()):
            if held_by_data(field, known) and field not in stored | self.format.provides:
                kind, _, name = field.partition(".")
                key = "spans" if kind == "spans" else "tags"
                problem = f"these tokens have no {field}"
                fix = f"data.path=<text>.jsonl data.{key}=[{name}], to tokenize again"
                raise DataError(problem, file=getattr(self.shards, "given", None), fix=fix)
        tokens, documents = len(self.shards.ids), len(self.shards.documents) - 1
        if tokens >= self.input_length and not allow_short:
            self.format.check(self.shards, self.plan(0))
        if tokens < (1 if allow_short else self.input_length) or self.plan(0).rows == 0:
            if allow_short and tokens:
                self.format.check(self.shards, self.plan(0))  # may know why
            raise NoRowsError(
                f"no row of format.max_length={self.format.max_length} is filled by"
                f" {counted(tokens, 'token')} in {counted(documents, 'document')}",
                file=getattr(self.shards, "given", None),
                fix="give data.path more text, or set a smaller format.max_length",
            )

    @property
    def fingerprint(self) -> str:
        """A hash of the tokens and of every setting of the format."""
        plain = {
            k: v
            for k, v in sorted(vars(self.format).items())
            if isinstance(v, int | float | str | None)
        }
        if source := self.format.source_hash:
            plain["source_hash"] = source
        text = repr((self.shards.fingerprint, type(self.format).__name__, plain, self.input_length))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def plan(self, epoch: int) -> Plan:
        """The plan of an epoch; the two latest are kept, because a batch may read two epochs."""
        epoch = epoch if self.format.copies is None else epoch % self.format.copies
        if epoch not in self._plans:
            key = (
                hash_code(inspect.getfile(type(self.format))),
                self.fingerprint,
                self.seed,
                epoch,
            )
            make = partial(
                self.format.plan,
                self.shards,
                seed=self.seed,
                epoch=epoch,
                input_length=self.input_length,
            )
            plan = cache_plan(self.shards, key, make)
            self._plans = {**dict(list(self._plans.items())[-1:]), epoch: plan}
        return self._plans[epoch]

    def order(self, epoch: int) -> np.ndarray:
        """[rows]: the rows of an epoch in the order of reading, sorted by a random 64-bit number
        each, or as planned.
        """
        if epoch not in self._orders:
            rows = self.plan(epoch).rows
            key = ("order", rows, self.seed, self.stage, epoch)
            make = partial(self._shuffle, epoch, rows)
            order = (
                np.arange(rows)
                if self.format.ordered
                else cache_plan(self.shards, key, make).arrays["order"]
            )
            self._orders = {**dict(list(self._orders.items())[-1:]), epoch: order}
        return self._orders[epoch]

    def _shuffle(self, epoch: int, rows: int) -> Plan:
        words = self.draws(epoch).words(np.arange(rows), "order", 1)
        return Plan(rows, {"order": np.argsort(words[:, 0], kind="stable")})

    def draws(self, epoch: int) -> Draws:
        """The random numbers of an epoch."""
        return Draws(self.seed, epoch, ("stage", self.stage))

    def rows(self, epoch: int, index: np.ndarray) -> Rows:
        """Lay out the rows `index` of an epoch.

        Raises:
            DataError: if an id lies outside the vocabulary, because the files are damaged.
        """
        try:
            rows = self.format.rows(self.shards, self.plan(epoch), index, self.wanted)
        except IndexError:
            self._refuse_unknown(self.shards.ids)
            raise
        for seq in rows.seqs.values():
            self._refuse_unknown(seq.ids)
        provides = self.format.provides
        stated = provides if self.wanted is None else provides & self.wanted
        check_given(self.format, stated, rows.names, said="provides", method="rows")
        if self.wanted and FIELD in self.wanted and FIELD not in rows.names:
            kind = type(self.format).__name__
            allowed = "a format that carries tracks of the text: words are to be counted"
            raise ConfigError("format", kind, allowed, fix="train.words=null train.tokens=1e8")
        return rows

    def _refuse_unknown(self, ids: np.ndarray) -> None:
        """Raise DataError for an id outside the vocabulary: then the array is damaged."""
        largest, size = ids.max(initial=0), self.shards.vocab_size
        if largest >= size:
            what = f"a damaged token directory: id {largest} of a vocabulary of {size}"
            raise DataError(what, file=self.shards.given, fix="tokenize the text again")

    def following(self, position: ReadPosition, count: int) -> tuple[Picks, ReadPosition]:
        """The next `count` rows from `position` on, across the ends of epochs, and the position
        after them.
        """
        epoch, cursor = position
        slices: list[tuple[int, np.ndarray]] = []
        while count:
            order = self.order(epoch)
            slices.append((epoch, order[cursor : cursor + count]))
            count, cursor = count - len(slices[-1][1]), cursor + len(slices[-1][1])
            if cursor == len(order):
                epoch, cursor = epoch + 1, 0
        epochs = [np.full(len(index), number) for number, index in slices]
        none = [np.empty(0, np.int64)]
        picks = Picks(
            np.concatenate(epochs or none), np.concatenate([index for _, index in slices] or none)
        )
        return picks, ReadPosition(epoch, cursor)

    def take(self, position: ReadPosition) -> tuple[Picks, ReadPosition]:
        """This rank's share of the global batch at `position`, and the position after it."""
        picks, after = self.following(position, self.batch_size)
        return picks.select(choose_rows_of_rank(self.batch_size, self.world, self.rank)), after

    def parts(self, picks: Picks) -> Iterator[CorpusPicks]:
        """The picked rows, one part for each epoch."""
        for epoch in np.unique(picks.epoch).tolist():
            indices = np.flatnonzero(picks.epoch == epoch)
            yield CorpusPicks(indices, self.rows(epoch, picks.index[indices]), self.draws(epoch))

    def corpora(self, name: str) -> dict[str, tuple[RowReader, float]]:
        """{corpus: (its reader, its share of the rows)}; here there is one, with the name of its
        source.
        """
        return {name: (self, 1.0)}

    @property
    def rows_per_epoch(self) -> int:
        """The number of rows of an epoch."""
        return self.plan(0).rows

    @property
    def updates_per_epoch(self) -> float:
        """The updates in which every row is read once."""
        return self.rows_per_epoch / self.batch_size

    def once(self, count: int) -> list[np.ndarray]:
        """Every row of epoch 0 once, in fixed order: this rank's batches of up to `count` rows,
        equally many on every rank.
        """
        rows, step = self.plan(0).rows, count * self.world
        starts = [start + self.rank * count for start in range(0, rows, step)]
        return [np.arange(min(start, rows), min(start + count, rows)) for start in starts]

    def state_dict(self) -> dict[str, Any]:
        """The state at the present position, as JSON."""
        return self.state_at(self.position)

    def state_at(self, position: ReadPosition) -> dict[str, Any]:
        """The state at a position, as JSON."""
        return {**stage_of(self), **position._asdict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`, or start if it is of an earlier stage.

        Raises:
            DataError: if it is of other data.
        """
        needed = "data.path, tokenizer, format and seed"
        same = check_stage(self, state, "other rows", needed, also=EARLIER)
        self.position = (
            self.position_at(state["epoch"], state["cursor"]) if same else ReadPosition()
        )

    def position_at(self, epoch: Any, cursor: Any) -> ReadPosition:
        """The position after `cursor` rows of an epoch; ValueError if the epoch does not have as
        many.
        """
        position = ReadPosition(fit(epoch, Whole), fit(cursor, Whole))
        rows = len(self.order(position.epoch))
        if position.cursor >= max(1, rows):
            raise ValueError(f"cursor {position.cursor} is beyond the {rows} rows of an epoch")
        return position


class Stated(Protocol):
    """The identity of a reader or a mixture in a saved state."""

    seed: int
    stage: int

    @property
    def fingerprint(self) -> str:
        """A hash of the data and the settings."""


def stage_of(reader: Stated) -> dict[str, Any]:
    """The owner of a state: seed, stage and fingerprint."""
    return {"seed": reader.seed, "stage": reader.stage, "fingerprint": reader.fingerprint}


def check_stage(
    reader: Stated, state: Mapping[str, Any], others: str, needed: str, *, also: str = ""
) -> bool:
    """Whether `state` is of this stage and not of an earlier one.

    Raises:
        DataError: if it is of `others` than these; `needed` says what must be equal, `also` what
            else helps.
    """
    if state["stage"] < reader.stage:
        return False
    different = [name for name, value in stage_of(reader).items() if state[name] != value]
    if different:
        raise DataError(
            f"the checkpoint was reading {others} ({', '.join(different)} differ)",
            fix=f"resume with the same {needed}, or start a new run with init=<checkpoint>{also}",
        )
    return True
