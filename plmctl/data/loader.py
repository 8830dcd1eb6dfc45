"""From rows to batches: format, noise, labels and collation in one background thread, one update at
a time.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from plmctl.core.batch import Batch, Rows
from plmctl.core.collate import collate
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field, glossary
from plmctl.core.values import Whole, fit
from plmctl.data.counted_words import sum_words
from plmctl.data.mixture import Mixture
from plmctl.data.reader import CorpusPicks, Picks, RowReader
from plmctl.data.rows import cut_padding, join, make_blank
from plmctl.data.stream_reader import StreamReader
from plmctl.noise.base import Noise

if TYPE_CHECKING:
    from plmctl.data.formats.base import Format

# an objective's own targets: rows -> {name: [n, T]}
Labels = Callable[[Rows], dict[str, np.ndarray]]
SCHEDULES = ("together", "alternated", "sampled")


@dataclass(frozen=True)
class RowSource:
    """One stream of rows: its reader, its noise, and the weight with which it is drawn (schedule
    "sampled"); `cut`: batches are as long as their longest row, not as the format's.
    """

    reader: RowReader | Mixture | StreamReader
    noise: Noise | None = None
    weight: float = 1.0
    cut: bool = False

    @property
    def glossary(self) -> dict[str, Field]:
        """The fields that its rows may have, as format and noise state them."""
        return glossary([self.reader.format, *([] if self.noise is None else [self.noise])])

    def rows(self, name: str, picks: Picks, labels: Labels | None) -> Rows:
        """The picked rows in their order, with the noise of their corpus and epoch and the
        objective's labels.
        """

        def finished(part: CorpusPicks) -> Rows:
            rows = replace(sum_words(part.rows), source=name)
            rows = rows if self.noise is None else self.noise(rows, part.draws)
            drawn = part.draws.words(rows.key, "network", 1)[:, 0].view(np.int64)
            rows = replace(rows, values={**rows.values, "draw": drawn})
            return rows if labels is None else rows.with_targets(**labels(rows))

        return self._join(picks, finished)

    def before(self, picks: Picks) -> Rows:
        """The picked rows as the format laid them out, without noise."""
        return self._join(picks, lambda part: sum_words(part.rows))

    def _join(self, picks: Picks, finished: Callable[[CorpusPicks], Rows]) -> Rows:
        parts = list(self.reader.parts(picks))
        return join([finished(part) for part in parts], [part.place for part in parts])

    def capacity(self) -> dict[str, int]:
        """For each target, the largest number of labels in a row."""
        return {} if self.noise is None else self.noise.capacity(self.reader.format.max_length)

    def lengths(self) -> tuple[int, int]:
        """(tokens of a row, further tokens of the target)."""
        return row_lengths(self.reader.format, self.noise)


def row_lengths(format: Format, noise: Noise | None) -> tuple[int, int]:
    """(tokens of the input, further tokens of the target) of a row with noise."""
    length = format.max_length
    columns = noise.columns(noise.input_length(length)) if noise else {}
    return columns.get("source", length), columns.get("target", format.target_length)


class Loader:
    """Iterates over updates: each is the list of this rank's micro-batches, prepared by one thread.

    Args:
        sources: the row sources, by name.
        micro_batch_size: rows of a micro-batch.
        labels: the objective's own targets.
        seed: decides which source an update reads.
        schedule: "together": every update has micro-batches of every source; "alternated": all of
            one source, each in its turn; "sampled": of one that is drawn with the sources' weights
            from (seed, update), the same on every rank.
        prefetch: updates that are prepared ahead; 0 = no thread.
        keep: names of tracks that batches carry (None: all).
        pinned: page-locked memory for asynchronous copies.

    `state_dict` counts the updates that were returned, never updates that are only prepared.
    `waited`: seconds spent waiting for data.
    """

    def __init__(
        self,
        sources: Mapping[str, RowSource],
        *,
        micro_batch_size: int,
        labels: Labels | None = None,
        seed: int = 0,
        schedule: str = "together",
        prefetch: int = 2,
        keep: frozenset[str] | None = None,
        pinned: bool = False,
    ) -> None:
        if schedule not in SCHEDULES:
            raise ConfigError("data.schedule", schedule, f"one of {', '.join(SCHEDULES)}")
        self.sources, self.labels, self.schedule, self.seed = dict(sources), labels, schedule, seed
        self.micro_batch_size = micro_batch_size
        self.prefetch = prefetch
        self.keep = keep
        self.pinned = pinned
        self.waited = 0.0
        self._step = 0
        self._worker: _Ahead | None = None

    def __iter__(self) -> Loader:
        return self

    def __next__(self) -> list[Batch]:
        start = time.perf_counter()
        if self.prefetch and self._worker is None:
            self._worker = _Ahead(self._updates(), self.prefetch)
        produced = self._worker.get() if self._worker else next(self._updates())
        batches, positions = produced
        self._step += 1
        for name, position in positions.items():
            self.sources[name].reader.position = position
        self.waited += time.perf_counter() - start
        return batches

    def _updates(self) -> Iterator[tuple[list[Batch], dict[str, Any]]]:
        """Endless (micro-batches, positions after them) from the present state on; it reads the
        state only once.
        """
        positions: dict[str, Any] = {
            name: source.reader.position for name, source in self.sources.items()
        }
        step = self._step
        while True:
            batches: list[Batch] = []
            for name in self._names(step):
                picks, positions[name] = self.sources[name].reader.take(positions[name])
                starts = range(0, len(picks), self.micro_batch_size)
                batches += [
                    self._batch(name, picks.select(slice(start, start + self.micro_batch_size)))
                    for start in starts
                ]
            yield batches, dict(positions)
            step += 1

    def _names(self, step: int) -> list[str]:
        """The sources of one update."""
        names = list(self.sources)
        if self.schedule == "together":
            return names
        if self.schedule == "alternated":
            return [names[step % len(names)]]
        shares = np.cumsum([self.sources[name].weight for name in names])
        drawn = Draws(self.seed, 0).uniform(np.array([step]), "source")[0] * shares[-1]
        return [names[int(np.searchsorted(shares, drawn, side="right"))]]

    def _batch(self, name: str, picks: Picks) -> Batch:
        source = self.sources[name]
        rows = source.rows(name, picks, self.labels)
        rows = cut_padding(rows) if source.cut else rows
        batch = collate(rows, source.capacity(), keep=self.keep, pinned=self.pinned)
        return replace(batch, spare=True) if picks.spare else batch

    def state_dict(self) -> dict[str, Any]:
        """The number of updates and the positions of the readers, as JSON."""
        return {
            "step": self._step,
            "sources": {name: source.reader.state_dict() for name, source in self.sources.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of an earlier loader."""
        self.close()
        for name, source in self.sources.items():
            source.reader.load_state_dict(state["sources"][name])
        self._step = fit(state["step"], Whole)

    def close(self) -> None:
        """Stop the thread; the next update starts a new one from the present state."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Ahead:
    """A daemon thread that keeps up to `depth` items of an iterator ready; `get` raises its
    exceptions.
    """

    def __init__(self, items: Iterator[Any], depth: int) -> None:
        self._ready: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(depth)
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(items,), name="plmctl-loader", daemon=True
        )
        self._thread.start()

    def _run(self, items: Iterator[Any]) -> None:
        try:
            for item in items:
                self._put((item, None))
                if self._stop.is_set():
                    return
        # Any exception, even an interrupt, goes to the consumer, who would otherwise wait for ever.
        except BaseException as error:
            self._put((None, error))

    def _put(self, item: tuple[Any, BaseException | None]) -> None:
        while not self._stop.is_set():
            try:
                return self._ready.put(item, timeout=0.1)
            except queue.Full:
                continue

    def get(self) -> Any:
        item, error = self._ready.get()
        if error is not None:
            self._ready.put((None, error))  # a second call must not wait for ever
            raise error
        return item

    def close(self) -> None:
        self._stop.set()
        while not self._ready.empty():
            self._ready.get_nowait()
        self._thread.join(timeout=10)


def once(
    source: RowSource,
    *,
    batch_size: int,
    labels: Labels | None = None,
    name: str = "text",
    keep: frozenset[str] | None = None,
    pinned: bool = False,
) -> Iterator[Batch]:
    """Yield every row of the source once, in fixed order, for evaluation: batches of `batch_size`
    rows, equally many on every rank.

    Blank rows fill the last batches: key -1, length 0, targets and labels IGNORE, so they count for
    nothing.
    """
    assert isinstance(source.reader, RowReader)  # each corpus of a mixture is evaluated separately
    for index in source.reader.once(batch_size):
        # a rank may have no row left: then blank rows copy the fields of row 0
        some = index if len(index) else np.zeros(1, np.int64)
        rows = source.rows(name, Picks(np.zeros_like(some), some), labels)
        missing = make_blank(rows, batch_size - len(index))
        yield collate(
            join([rows, missing] if len(index) else [missing]),
            source.capacity(),
            keep=keep,
            pinned=pinned,
        )
