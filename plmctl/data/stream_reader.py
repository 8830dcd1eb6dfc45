"""The rows of a text that is tokenized as it is read, in a seeded order within each window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plmctl.core.errors import ConfigError, DataError
from plmctl.core.terminal import remark
from plmctl.core.values import Whole, fit
from plmctl.data.formats.base import Format
from plmctl.data.reader import (
    CorpusPicks,
    NoRowsError,
    Picks,
    RowReader,
    check_stage,
    choose_rows_of_rank,
    stage_of,
)
from plmctl.data.shard_stream import ShardStream
from plmctl.data.text_stream import StreamPlace, TextStream

if TYPE_CHECKING:
    from plmctl.data.shards import Shards


class StreamPosition(NamedTuple):
    """How far the run has read: `cursor` rows of a window, and the position at which the window
    begins.
    """

    window: int = 0  # the number of the window since the start
    begin: StreamPlace = StreamPlace()
    cursor: int = 0


class StreamReader:
    """A `RowReader` with windows of a stream instead of epochs. Rows are laid out and shuffled
    within a window, and a resume needs only its position in the files. Windows that fill no row are
    passed over.

    Every process reads all of the text and takes its own rows.

    Args:
        stream: The stream to read.
        format: lays out the rows of a window.
        seed: The seed of the order within a window, and of all draws.
        batch_size: rows of an update, over all processes.
        world, rank, stage: The values for `RowReader`.
        settings: The further arguments of a `RowReader`.
    """

    def __init__(
        self,
        stream: TextStream | ShardStream,
        format: Format,
        *,
        seed: int,
        batch_size: int,
        world: int = 1,
        rank: int = 0,
        stage: int = 0,
        **settings: Any,
    ) -> None:
        if format.ordered:
            allowed = "not read in windows: rows of this format go on over all of the text"
            name, value = stream.setting
            raise ConfigError(name, value, allowed, fix="another format")
        self.stream, self.format, self.seed, self.stage = stream, format, seed, stage
        self.batch_size, self.world, self.rank = batch_size, world, rank
        self.position = StreamPosition()
        own = {"seed": seed, "batch_size": batch_size, "world": world, "rank": rank}
        self._settings: dict[str, Any] = {**own, "stage": stage, **settings}
        self._told = rank != 0  # whether a message about windows that are passed over was printed
        self._first, self._after = self._find(StreamPlace())
        self._first.unit = "in the first window of the stream"
        self._known: dict[int, tuple[RowReader, StreamPlace]] = {}

    @property
    def shards(self) -> Shards:
        """The tokens of the first window, which stand for all."""
        return self._first.shards

    @property
    def fingerprint(self) -> str:
        """A hash of the text and of every setting of the format."""
        return self._first.fingerprint

    @property
    def rows_per_epoch(self) -> int:
        """About as many rows as a round has."""
        whole = self.stream.count_left(StreamPlace())
        after = self._after
        read = whole if after.round else whole - self.stream.count_left(after)
        return max(1, round(self._first.rows_per_epoch * whole / max(1, read)))

    @property
    def updates_per_epoch(self) -> float:
        """The updates that read about so many rows."""
        return self.rows_per_epoch / self.batch_size

    def take(self, position: StreamPosition) -> tuple[Picks, StreamPosition]:
        """This rank's share of the global batch at `position`, and the position after it."""
        number, begin, cursor = position
        slices, count = list[tuple[int, np.ndarray]](), self.batch_size
        self._known = {n: own for n, own in self._known.items() if n >= number}
        while count:
            reader, after = self._open(number, begin)
            order = reader.order(number)
            index = order[cursor : cursor + count]
            slices.append((number, index))
            count, cursor = count - len(index), cursor + len(index)
            if cursor == len(order):
                number, begin, cursor = number + 1, after, 0
        windows = np.concatenate([np.full(len(index), n) for n, index in slices])
        picks = Picks(windows, np.concatenate([index for _, index in slices]))
        share = choose_rows_of_rank(self.batch_size, self.world, self.rank)
        return picks.select(share), StreamPosition(number, begin, cursor)

    def parts(self, picks: Picks) -> Iterator[CorpusPicks]:
        """The rows of the latest picks, one part for each window."""
        for number in np.unique(picks.epoch).tolist():
            indices = np.flatnonzero(picks.epoch == number)
            reader, _ = self._known[number]
            yield CorpusPicks(
                indices, reader.rows(number, picks.index[indices]), reader.draws(number)
            )

    def corpora(self, name: str) -> dict[str, tuple[RowReader, float]]:
        """{name: (the reader of the first window, 1)}."""
        return {name: (self._first, 1.0)}

    def _make(self, shards: Shards) -> RowReader:
        """The reader of the rows of a window."""
        return RowReader(shards, self.format, **self._settings)

    def _open(self, number: int, begin: StreamPlace) -> tuple[RowReader, StreamPlace]:
        """The reader of a window, and where the next one begins."""
        if number not in self._known:
            self._known[number] = self._find(begin)
        return self._known[number]

    def _find(self, begin: StreamPlace) -> tuple[RowReader, StreamPlace]:
        """The reader of the first window from a position on that fills a row, and the position
        behind it.

        Raises:
            DataError: None does in a whole round.
        """
        place = begin
        while place < begin._replace(round=begin.round + 1):
            window = self.stream.read(place)
            try:
                return self._make(window.shards), window.after
            except NoRowsError as error:
                if not self._told:
                    more = "passed over, as all such windows are; a larger data.window has fewer"
                    remark(f"{window.shards.given}: {error.message}: {more}")
                self._told, place = True, window.after
        length = self.format.max_length
        raise DataError(
            f"no window of about {self.stream.size:,} characters fills a row of"
            f" format.max_length={length}",
            file=self.stream.files[0],
            fix="a larger data.window, more text in data.path, or a smaller format.max_length",
        )

    def state_dict(self) -> dict[str, Any]:
        """The state at the present position, as JSON."""
        window, begin, cursor = self.position
        return {**stage_of(self), "window": window, **begin._asdict(), "cursor": cursor}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`, or start if it is of an earlier stage.

        Raises:
            DataError: if it is of another text.
        """
        self._known = {}
        needed = "data.path, data.window, tokenizer, format and seed"
        if not check_stage(self, state, "another text", needed):
            self.position = StreamPosition()
            return
        number, cursor = fit(state["window"], Whole), fit(state["cursor"], Whole)
        begin = StreamPlace(*(fit(state[name], Whole) for name in StreamPlace._fields))
        if begin.file >= len(self.stream.files) or begin.byte > self.stream.bytes[begin.file]:
            raise ValueError(f"{begin} is no position in these files")
        self.position = StreamPosition(number, begin, cursor)
