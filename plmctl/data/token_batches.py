"""Batches of rows that are limited by their tokens, padding included, instead of their number."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.data.formats.base import Format
from plmctl.data.reader import Picks, ReadPosition, RowReader, choose_rows_of_rank

if TYPE_CHECKING:
    from plmctl.data.shards import Shards

MULTIPLE = 8  # rows that a full batch is cut to a multiple of


def count_rows(rows: int, tokens: int | None, longest: int) -> int:
    """The rows of an update: `rows`, or as many of `longest` tokens as `tokens` has room for."""
    return rows if tokens is None else max(1, tokens // max(1, longest))


def plan_by_tokens(
    length: np.ndarray, tokens: int, *, draws: Draws, size: np.ndarray | None = None
) -> list[np.ndarray]:
    """The units of each update of an epoch: each unit once, those of similar length together.

    Units are sorted by length, those of equal length in a drawn order. A batch takes the next ones
    while `rows * longest <= tokens`. A batch of n units that another one does not fit into is cut
    to `max(8 * (n // 8), n % 8)` of them. The batches come in a drawn order.

    Args:
        length: [u] tokens of the longest row of each unit, in its longest sequence.
        tokens: The most tokens of a batch, padding included.
        size: [u] rows of each unit; None: one.

    Returns:
        The numbers of the units of each update. How many there are is the same in every epoch.

    The rule is that of fairseq's `--max-tokens` (Ott et al., 2019, arXiv:1904.01038).
    Differs: The longer one of source and target sorts the rows; fairseq sorts by the source, then
    by the target. The limit is that of an update of all processes; fairseq's is that of a device.
    """
    size = np.ones_like(length) if size is None else size
    drawn = draws.words(np.arange(len(length)), "order", 1)[:, 0]
    order = np.lexsort((drawn, size, length))
    batches, at = list[np.ndarray](), 0
    while at < len(order):
        # no later row is shorter than the first one
        some = order[at : at + max(1, tokens // max(1, int(length[order[at]])))]
        fits = int(np.searchsorted(size[some].cumsum() * length[some], tokens, side="right"))
        n = max(1, fits)
        if at + n < len(order):
            n = max(n - n % MULTIPLE, n % MULTIPLE)
        batches.append(order[at : at + n])
        at += n
    turns = draws.words(np.arange(len(batches)), "batches", 1)[:, 0]
    return [batches[turn] for turn in np.argsort(turns, kind="stable")]


def check_longest(length: np.ndarray, tokens: int, size: np.ndarray | None = None) -> None:
    """ConfigError where one unit has more tokens than an update may have."""
    longest = int((length if size is None else length * size).max(initial=0))
    if longest > tokens:
        allowed = f"at least {longest}, the tokens of the longest row"
        raise ConfigError(
            "train.batch_tokens", tokens, allowed, fix=f"train.batch_tokens={longest}"
        )


def explain_full_rows(format: str, tokens: int, rows: int) -> ConfigError:
    """The error of updates that are limited by tokens where all rows have the same length.

    Args:
        rows: The rows that these are.
    """
    allowed = f"has no use: {format} fills all rows to the same length, so count rows instead"
    fix = f"train.batch_tokens=null train.batch_size={rows}"
    return ConfigError("train.batch_tokens", tokens, allowed, fix=fix)


class TokenBatchReader(RowReader):
    """A `RowReader` whose global batches are those of `plan_by_tokens`; each of the processes reads
    a share of the rows of a batch. An epoch ends with a batch.

    Args:
        tokens: The most tokens of a global batch, padding included, before noise.
        settings: The settings of a `RowReader`.
    """

    def __init__(self, shards: Shards, format: Format, *, tokens: int, **settings: Any) -> None:
        self.tokens, self._ends = tokens, dict[int, np.ndarray]()
        super().__init__(shards, format, **settings)
        check_longest(self._lengths(0), tokens)

    def _lengths(self, epoch: int) -> np.ndarray:
        lengths = self.format.sequence_lengths(self.plan(epoch))
        if lengths is None:
            name, rows = type(self.format).__name__, self.batch_size
            raise explain_full_rows(f"the format {name}", self.tokens, rows)
        return lengths

    def order(self, epoch: int) -> np.ndarray:
        """[rows]: the rows of an epoch, one batch after the other."""
        if epoch not in self._orders:
            batches = plan_by_tokens(self._lengths(epoch), self.tokens, draws=self.draws(epoch))
            ends = np.cumsum([len(batch) for batch in batches])
            self._ends = {**dict(list(self._ends.items())[-1:]), epoch: ends}
            self._orders = {**dict(list(self._orders.items())[-1:]), epoch: np.concatenate(batches)}
        return self._orders[epoch]

    def take(self, position: ReadPosition) -> tuple[Picks, ReadPosition]:
        """This rank's share of the batch at `position`, and the position after it; the first row
        as a spare one, where the others have all rows.
        """
        epoch, cursor = position
        self.order(epoch)
        ends = self._ends[epoch]
        count = int(ends[np.searchsorted(ends, cursor, side="right")]) - cursor
        picks, after = self.following(position, count)
        share = picks.select(choose_rows_of_rank(count, self.world, self.rank))
        return share if len(share) else replace(picks.select(slice(1)), spare=True), after

    @property
    def updates_per_epoch(self) -> float:
        """The number of batches of an epoch."""
        self.order(0)
        return float(len(self._ends[0]))
