"""From the rows of a split to batches: sorted by length within reach, shuffled by seed, padded
to the longest of each batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np

from plmctl.core.batch import Batch, Rows
from plmctl.core.collate import collate as make_batch
from plmctl.core.draws import Draws
from plmctl.core.values import Whole, fit
from plmctl.data.reader import check_stage, stage_of
from plmctl.data.token_batches import check_longest, plan_by_tokens
from plmctl.noise.base import Noise, add_noise
from plmctl.text.characters import CharacterRows

REACH = 50  # batches of a shuffled order that are sorted by length together
# the start of a batch takes as long as so many tokens, a guess by kind of device: 0.8 to 1.5 ms. A
# model of 4 layers of 256 computes 12 tokens in 1 ms on one core.
OVERHEAD = {"cpu": 32, "cuda": 4096}


@dataclass(frozen=True)
class BatchUnits:
    """The units that a batch counts: a row, or neighbours with the same `values.group`, which
    stay together.
    """

    first: np.ndarray  # [u] its first row
    size: np.ndarray  # [u] rows
    length: np.ndarray  # [u] tokens of its longest row, of all sequences together
    widest: np.ndarray  # [u] tokens of its longest sequence

    @classmethod
    def of(cls, rows: Rows) -> BatchUnits:
        """The units of `rows`, in their order."""
        sides = [seq.length for seq in rows.seqs.values()]
        length, widest = sum(sides), np.max(sides, axis=0)
        if "group" not in rows.values or not len(length):
            return cls(np.arange(len(length)), np.ones_like(length), length, widest)
        first = np.flatnonzero(np.diff(rows.values["group"], prepend=-1))
        size = np.diff(first, append=len(length))
        longest = (np.maximum.reduceat(each, first) for each in (length, widest))
        return cls(first, size, *longest)

    def rows(self, units: np.ndarray) -> np.ndarray:
        """The numbers of all rows of the `chosen` units, in their order."""
        first, size = self.first[units], self.size[units]
        if (size == 1).all():
            return first
        before = np.cumsum(size) - size
        return np.repeat(first - before, size) + np.arange(size.sum())


def cut(
    length: Sequence[int] | np.ndarray, most: int, overhead: int | None = None
) -> Iterator[slice]:
    """The batches of rows that are sorted by length, the longest first.

    A batch of n rows costs `overhead + n * longest`. The batches are those with the smallest sum of
    costs, `best[end] = min_start best[start] + overhead + (end - start) * length[start]`.

    Args:
        length: The tokens of each row.
        overhead: The cost of a batch without its rows, in tokens; None: batches are full, and
            the last one has the rest.
    """
    if overhead is None:
        yield from (slice(at, at + most) for at in range(0, len(length), most))
        return
    own, n = np.asarray(length, float), len(length)
    best, begin = np.zeros(n + 1), np.zeros(n + 1, int)
    for end in range(1, n + 1):
        first = max(0, end - most)
        costs = best[first:end] + own[first:end] * np.arange(end - first, 0, -1)
        begin[end] = first + int(costs.argmin())
        best[end] = costs.min() + overhead
    ends = [n]
    while ends[-1]:
        ends.append(int(begin[ends[-1]]))
    yield from (slice(start, end) for start, end in pairwise(reversed(ends)))


def plan(length: np.ndarray, *, batch_size: int, seed: int, epoch: int) -> list[np.ndarray]:
    """The units of each update of an epoch: every one once, those of similar length together, a
    function of (seed, epoch).

    A shuffled order is cut into stretches of `REACH` batches, each is sorted by length and cut into
    batches, and the batches are shuffled.
    """
    draws, n = Draws(seed, epoch), len(length)
    order = np.argsort(draws.words(np.arange(n), "order", 1)[:, 0], kind="stable")
    batches: list[np.ndarray] = []
    for start in range(0, n, REACH * batch_size):
        stretch = order[start : start + REACH * batch_size]
        stretch = stretch[np.argsort(length[stretch], kind="stable")]
        batches += [stretch[at : at + batch_size] for at in range(0, len(stretch), batch_size)]
    order_of_batches = np.argsort(
        draws.words(np.arange(len(batches)), "batches", 1)[:, 0], kind="stable"
    )
    return [batches[place] for place in order_of_batches]


def collate(rows: Rows, index: np.ndarray, noise: Callable[[Rows], Rows] | None = None) -> Batch:
    """The batch of `rows[index]`, each sequence as long as the longest of them; one anchor a row,
    without spans.

    `noise` may change these rows first.
    Targets belong to the sequence that is written: the `target` where there is one. `values.group`
    is numbered anew, from 0.
    """
    selected = rows if _is_whole(rows, index) else _select(rows, index)
    return make_batch(selected if noise is None else noise(selected), {})


def _is_whole(rows: Rows, index: np.ndarray) -> bool:
    """Whether a batch is the only row, as it stands: nothing is chosen, numbered or cut."""
    if not len(index) == len(rows.key) == 1 or rows.spans or "group" in rows.values:
        return False
    return all(not seq.view and seq.ids.shape[1] == seq.length[0] for seq in rows.seqs.values())


def _select(rows: Rows, index: np.ndarray) -> Rows:
    seqs = {name: seq.pick(index) for name, seq in rows.seqs.items()}
    written = seqs.get("target", next(iter(seqs.values()))).ids.shape[1]
    values = {name: value[index] for name, value in rows.values.items()}
    if "group" in values:
        values["group"] = np.unique(values["group"], return_inverse=True)[1]
    anchors = (
        None
        if rows.anchors is None
        else np.stack([np.arange(len(index)), rows.anchors[index, 1]], axis=1)
    )
    return Rows(
        key=rows.key[index],
        seqs=seqs,
        targets={name: target[index, :written] for name, target in rows.targets.items()},
        anchors=anchors,
        labels={name: label[index] for name, label in rows.labels.items()},
        values=values,
        source=rows.source,
    )


def fingerprint(rows: Rows) -> str:
    """A hash of the inputs and labels of these rows; which tokens are global follows from them."""
    arrays: dict[str, Any] = {"key": rows.key} | (
        {} if rows.anchors is None else {"anchors": rows.anchors}
    )
    arrays |= {f"{name}.ids": seq.ids for name, seq in rows.seqs.items()}
    arrays |= {f"{name}.length": seq.length for name, seq in rows.seqs.items()}
    arrays |= {
        f"{name}.{track}": ids
        for name, seq in rows.seqs.items()
        for track, ids in seq.tracks.items()
        if track != "global"  # older runs, which resume, have none
    }
    for kind in ("targets", "labels", "spans", "values"):
        arrays |= {f"{kind}.{name}": array for name, array in getattr(rows, kind).items()}
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        for array in (
            arrays[name].parts if isinstance(arrays[name], CharacterRows) else (arrays[name],)
        ):
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


class Batches:
    """Iterates over updates without end, each the list of this process's micro-batches, or one
    spare one where others have all rows; the state is the number of updates.

    An update has `batch_size` units, or, with `batch_tokens`, as many as `plan_by_tokens` says.
    """

    stage = 0  # there are no stages here

    def __init__(
        self,
        rows: Rows,
        *,
        batch_size: int,
        micro_batch_size: int | None,
        seed: int,
        batch_tokens: int | None = None,
        world: int = 1,
        rank: int = 0,
        noise: Noise | None = None,
        before_epoch: Callable[[int], None] = lambda epoch: None,
    ) -> None:
        self.noise, self.before_epoch, self._begun = noise, before_epoch, -1
        self.rows = rows
        self.batch_size = batch_size
        self.seed = seed
        self.world = world
        self.rank = rank
        self.units, self.batch_tokens = BatchUnits.of(rows), batch_tokens
        if batch_tokens:
            check_longest(self.units.widest, batch_tokens, self.units.size)
        self.micro_batch_size = micro_batch_size or max(1, batch_tokens or batch_size)
        self.waited = 0.0  # nothing is read from a disk here
        self._update = 0
        self._epoch, self._plan = -1, list[np.ndarray]()

    @property
    def updates_per_epoch(self) -> int:
        """How many batches the rows make."""
        return len(self._plan_epoch(0))

    def _plan_epoch(self, epoch: int) -> list[np.ndarray]:
        if epoch != self._epoch:
            self._plan, self._epoch = self._plan_anew(epoch), epoch
        return self._plan

    def _plan_anew(self, epoch: int) -> list[np.ndarray]:
        units, seed = self.units, self.seed
        if self.batch_tokens:
            draws = Draws(seed, epoch)
            return plan_by_tokens(units.widest, self.batch_tokens, draws=draws, size=units.size)
        return plan(units.length, batch_size=self.batch_size, seed=seed, epoch=epoch)

    def __iter__(self) -> Iterator[list[Batch]]:
        return self

    def __next__(self) -> list[Batch]:
        epoch, number = divmod(
            self._update, self.updates_per_epoch if self._epoch < 0 else len(self._plan)
        )
        index = self._plan_epoch(epoch)[number]
        if epoch != self._begun:
            self.before_epoch(epoch)
            self._begun = epoch
        self._update += 1
        low, high = (len(index) * r // self.world for r in (self.rank, self.rank + 1))
        own = index[low:high]
        parts = [
            own[at : at + self.micro_batch_size] for at in range(0, len(own), self.micro_batch_size)
        ]
        draws = Draws(self.seed, epoch)
        hide = None if self.noise is None else partial(add_noise, self.noise, draws=draws)
        made = [collate(self.rows, self.units.rows(part), hide) for part in parts]
        if made:
            return made
        # a rest with fewer units than processes
        return [replace(collate(self.rows, self.units.rows(index[:1]), hide), spare=True)]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the rows."""
        return fingerprint(self.rows)

    def state_dict(self) -> dict[str, Any]:
        """The number of updates, and the fingerprint of the rows."""
        return {"updates": self._update, **stage_of(self)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the state was taken; DataError if the rows are others. An
        older state has no fingerprint.
        """
        if "fingerprint" in state:
            check_stage(
                self, state, "other rows", "examples and labels in task.path, and the same seed"
            )
        self._update = fit(state["updates"], Whole)

    def close(self) -> None:
        """Nothing runs in the background."""
