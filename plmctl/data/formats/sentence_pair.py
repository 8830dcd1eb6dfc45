"""Two segments of sentences, the second one the true continuation or from another document (Devlin et al., 2019)."""

from __future__ import annotations

import random
from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np

from plmctl.batch import Rows
from plmctl.data.formats.base import Format, Plan
from plmctl.data.formats.pieces import lay, piece_plan, wraps
from plmctl.errors import ConfigError
from plmctl.text.vocab import Vocab

if TYPE_CHECKING:
    from plmctl.data.shards import Shards


class SentencePair(Format):
    """`cls A sep B sep` with `labels.pair`: 0 = B follows A, 1 = B starts at a random sentence of another document.

    Each document is read in chunks of sentences of `target` tokens: `max_length - 3`, or, once for the whole document with
    `short_rate`, uniform in 2..`max_length - 3`. A takes the first `a ~ U{1..sentences-1}` of a chunk. With `random_rate`, or
    where the chunk is one sentence, B is random and the rest of the chunk is put back. Too long pairs lose tokens one by one
    from the longer side (B on ties), at its front or back by a fair coin. `copies=N`: N differently cut copies of the corpus,
    then again (dupe_factor); null: cut afresh in every epoch.
    (arXiv:1810.04805, appendix A.2, and google-research/bert create_pretraining_data.py: copies 10, short_rate 0.1.)
    Differs: B's document is drawn among the others directly, where the code gives up after ten tries to hit another one.
    """

    provides = frozenset({"text", "tracks.word_start", "tracks.segment", "labels.pair", "anchors"})

    def __init__(
        self, *, vocab: Vocab, max_length: int, short_rate: float, random_rate: float, copies: int | None = None
    ) -> None:
        self.vocab, self.max_length, self.copies = vocab, max_length, copies
        self.short_rate, self.random_rate = short_rate, random_rate
        self.kinds = wraps(vocab, vocab.pair)
        if len(self.kinds) != 2 or not self.kinds[0].before:
            raise ConfigError("format", "sentence_pair", "a tokenizer whose pair template is like cls A sep B sep")
        self.specials = sum(wrap.size for wrap in self.kinds)
        for name, rate in (("short_rate", short_rate), ("random_rate", random_rate)):
            if not 0 <= rate <= 1:
                raise ConfigError(f"format.{name}", rate, "a probability: 0 <= rate <= 1")
        if copies is not None and copies < 1:
            raise ConfigError("format.copies", copies, "at least 1, or null (cut afresh in every epoch)")
        if max_length < self.specials + 2:
            raise ConfigError(
                "format.max_length", max_length, f"at least {self.specials + 2}: the special tokens and one token a side"
            )

    def plan(self, shards: Shards, *, seed: int, epoch: int, input_length: int) -> Plan:
        room = input_length - self.specials
        rng = np.random.default_rng((seed, epoch))
        bounds = np.unique(np.asarray(shards.sentences))  # [S + 1] token offsets; sentences without tokens vanish
        edges = np.unique(np.asarray(shards.sentences)[np.asarray(shards.documents)])
        documents = np.searchsorted(bounds, edges)  # [D + 1] sentence offsets
        target = np.full(len(edges) - 1, room)
        short = rng.random(len(target)) < self.short_rate
        target[short] = rng.integers(2, room + 1, int(short.sum()))
        document, first, middle, last, other = self._cut(bounds, documents, target, random.Random(int(rng.integers(2**62))))
        a_start, a_end, b_start, b_end = bounds[first], bounds[middle], bounds[middle], bounds[last]
        chosen = np.flatnonzero(other)
        wanted = target[document[chosen]] - (a_end - a_start)[chosen]
        b_start[chosen], b_end[chosen] = _random_segments(bounds, documents, document[chosen], wanted, rng)
        offered = int((a_end - a_start).sum() + (b_end - b_start).sum())
        repeated = int((b_end - b_start)[chosen].sum())
        a_start, a_end, b_start, b_end = _truncate(a_start, a_end, b_start, b_end, room, rng)
        rows = len(document)
        start, end = np.stack([a_start, b_start], 1).ravel(), np.stack([a_end, b_end], 1).ravel()
        plan = piece_plan(
            shards=shards, width=input_length, row_start=np.arange(rows + 1) * 2, start=start, size=end - start,
            kind=np.arange(2 * rows) % 2, kinds=self.kinds,
        )  # fmt: skip
        plan.arrays["pair"] = other.astype(np.int8)
        plan.report.update(repeated=repeated, cut=offered - plan.report["laid_out"], random_pairs=len(chosen))
        return plan

    def _cut(
        self, bounds: np.ndarray, documents: np.ndarray, target: np.ndarray, coin: random.Random
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """For each pair: its document, A's first sentence, the ends of A and of a B that follows, and whether B is random."""
        found = array("q")  # one flat array: a list of tuples takes ten times the memory
        for number in range(len(target)):
            base, stop = int(documents[number]), int(documents[number + 1])
            offsets = bounds[base : stop + 1].tolist()
            first, goal = 0, int(target[number])
            while first < stop - base:
                last = min(bisect_left(offsets, offsets[first] + goal, lo=first + 1), stop - base)
                single = last - first == 1
                middle = first + 1 + (0 if single else int(coin.random() * (last - first - 1)))
                other = single or coin.random() < self.random_rate
                found.extend((number, base + first, base + middle, base + last, other))
                first = middle if other else last
        table = np.array(found).reshape(-1, 5)
        return table[:, 0], table[:, 1], table[:, 2], table[:, 3], table[:, 4].astype(bool)

    def rows(self, shards: Shards, plan: Plan, index: np.ndarray, wanted: frozenset[str] | None = None) -> Rows:
        layout = lay(shards, plan, index, self.kinds, self.vocab, wanted)
        anchors = np.stack([np.arange(len(index)), np.zeros(len(index), np.int64)], 1)
        return Rows(
            key=index, seqs={"text": layout.seq.with_tracks(segment=layout.fill(layout.piece == 1).astype(np.int8))},
            anchors=anchors, labels={"pair": plan.arrays["pair"][index].astype(np.int64)},
        )  # fmt: skip


def _random_segments(
    bounds: np.ndarray, documents: np.ndarray, document: np.ndarray, wanted: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Token (start, end) of sentences from another document, from a random one on until `wanted` tokens or its end.

    A corpus of one document has no other: then it is that document itself, as in BERT's code.
    """
    count = len(documents) - 1
    other = rng.integers(0, max(1, count - 1), len(document))
    other += (other >= document) & (count > 1)
    begin, stop = documents[other], documents[other + 1]
    first = begin + (rng.random(len(other)) * (stop - begin)).astype(np.int64)
    last = np.searchsorted(bounds, bounds[first] + wanted)
    return bounds[first], bounds[np.clip(last, first + 1, stop)]


def _truncate(
    a_start: np.ndarray, a_end: np.ndarray, b_start: np.ndarray, b_end: np.ndarray, room: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Both stretches shortened to `room` tokens in all: what removing one token at a time from the longer side leaves."""
    a, b = a_end - a_start, b_end - b_start
    half = room // 2  # B's, for ties take from B
    b_left = np.where(a + b <= room, b, np.where(a <= room - half, np.minimum(b, room - a), np.minimum(b, half)))
    a_left = np.minimum(a, room - b_left)
    a_front, b_front = rng.binomial(a - a_left, 0.5), rng.binomial(b - b_left, 0.5)
    a_start, b_start = a_start + a_front, b_start + b_front
    return a_start, a_start + a_left, b_start, b_start + b_left
