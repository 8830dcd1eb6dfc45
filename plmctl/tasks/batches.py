"""From the rows of a split to batches: sorted by length within reach, shuffled by seed, padded to the longest of each batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from plmctl.batch import Batch, Rows, Seq
from plmctl.data import loader
from plmctl.noise.draws import Draws

REACH = 50  # batches of a shuffled order that are sorted by length together


def plan(length: np.ndarray, *, batch_size: int, seed: int, epoch: int, world: int = 1) -> list[np.ndarray]:
    """The row numbers of each update of an epoch: every row once, rows of similar length together, a function of (seed, epoch).

    A shuffled order is cut into stretches of `REACH` batches, each is sorted by length and cut into batches, and the batches
    are shuffled. A rest too small for every process to have a row joins the batch before it.
    """
    draws, n = Draws(seed, epoch), len(length)
    order = np.argsort(draws.words(np.arange(n), "order", 1)[:, 0], kind="stable")
    found: list[np.ndarray] = []
    for start in range(0, n, REACH * batch_size):
        stretch = order[start : start + REACH * batch_size]
        stretch = stretch[np.argsort(length[stretch], kind="stable")]
        found += [stretch[at : at + batch_size] for at in range(0, len(stretch), batch_size)]
    if len(found) > 1 and len(found[-1]) < world:
        rest = found.pop()
        found[-1] = np.concatenate([found[-1], rest])
    places = np.argsort(draws.words(np.arange(len(found)), "batches", 1)[:, 0], kind="stable")
    return [found[place] for place in places]


def collate(rows: Rows, index: np.ndarray) -> Batch:
    """The batch of `rows[index]`, as long as the longest of them; one anchor a row, spans are left behind."""
    assert rows.anchors is not None
    text = rows.seqs["text"]
    longest = max(1, int(text.length[index].max()))
    tracks = {name: track[index, :longest] for name, track in text.tracks.items()}
    picked = replace(
        rows, key=rows.key[index], seqs={"text": Seq(text.ids[index, :longest], text.length[index], tracks)},
        targets={name: target[index, :longest] for name, target in rows.targets.items()},
        anchors=np.stack([np.arange(len(index)), rows.anchors[index, 1]], axis=1),
        labels={name: label[index] for name, label in rows.labels.items()},
        values={name: value[index] for name, value in rows.values.items()}, spans={},
    )  # fmt: skip
    return loader.collate(picked, {})


class Batches:
    """Iterates over updates without end, each the list of this process's micro-batches; the state is the number of updates."""

    def __init__(
        self, rows: Rows, *, batch_size: int, micro_batch_size: int | None, seed: int, world: int = 1, rank: int = 0
    ) -> None:
        self.rows, self.batch_size, self.seed, self.world, self.rank = rows, batch_size, seed, world, rank
        self.micro_batch_size = micro_batch_size or batch_size
        self.waited = 0.0  # nothing is read from a disk here
        self._update = 0
        self._epoch, self._plan = -1, list[np.ndarray]()

    @property
    def updates_per_epoch(self) -> int:
        return len(self._planned(0))

    def _planned(self, epoch: int) -> list[np.ndarray]:
        if epoch != self._epoch:
            length = self.rows.seqs["text"].length
            self._plan = plan(length, batch_size=self.batch_size, seed=self.seed, epoch=epoch, world=self.world)
            self._epoch = epoch
        return self._plan

    def __iter__(self) -> Iterator[list[Batch]]:
        return self

    def __next__(self) -> list[Batch]:
        epoch, place = divmod(self._update, self.updates_per_epoch if self._epoch < 0 else len(self._plan))
        index = self._planned(epoch)[place]
        self._update += 1
        low, high = (len(index) * r // self.world for r in (self.rank, self.rank + 1))
        own = index[low:high]
        return [collate(self.rows, own[at : at + self.micro_batch_size]) for at in range(0, len(own), self.micro_batch_size)]

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self._update}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._update = int(state["updates"])

    def close(self) -> None:
        """Nothing runs in the background."""
