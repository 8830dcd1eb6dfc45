"""Two segments of sentences and their relation: NSP (Devlin et al., 2019), SOP (Lan et al.,
2020), Wang et al. (2020).
"""

from __future__ import annotations

import random
from array import array
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.parts import part_of
from plmctl.core.terminal import WARN, remark_once
from plmctl.data.formats.base import Format, Plan
from plmctl.data.formats.carried import Wanted
from plmctl.data.formats.edges import document_edges, sentence_edges
from plmctl.data.formats.pairs import (
    PAIR,
    SegmentPairs,
    check_copies,
    check_rate,
    find_anchors,
    find_pair_begins,
    plan_pairs,
    shorten_pairs,
)
from plmctl.data.formats.pieces import lay_rows
from plmctl.text.template import find_wraps
from plmctl.text.vocab import Vocab

if TYPE_CHECKING:
    from plmctl.data.shards import Shards

NEXT, PREVIOUS, RANDOM, DROPPED = range(4)
KINDS = ("B follows A", "A follows B", "B is from another document")
MOST_LONE = 0.5  # share of pairs with a lone sentence, beyond which they teach little
PAIRLESS = "format=full_sentences objective=[mlm]"
BLOCK = 1 << 20  # sentences that are planned at a time: bounds the memory


class Cuts(NamedTuple):
    """Chunks of sentences, each divided in two: numbers of sentences, and whether the second
    segment is NEXT, PREVIOUS or RANDOM.
    """

    first: np.ndarray  # [n] A's first sentence
    middle: np.ndarray  # [n] the one after A's last
    last: np.ndarray  # [n] the one after the chunk's last
    fate: np.ndarray  # [n]


@part_of("format")
class SentencePair(Format):
    """`cls A sep B sep` with `labels.pair`: what B is to A. 0 = B follows A; the other kinds that
    occur are counted from 1: A follows B (`swap_rate`), B starts at a random sentence of another
    document (`random_rate`). So 1 is random in BERT, swapped in ALBERT; in StructBERT 1 is previous
    and 2 random.

    Each document is read in chunks of sentences of `target` tokens: `max_length - 3`, or, once for
    the whole document with `short_rate`, uniform in 2..`max_length - 3`. A takes the first `a ~
    U{1..sentences-1}` of a chunk, B the rest. With `swap_rate` the two are swapped; with
    `random_rate` B is random and the rest of the chunk is put back. A chunk of one sentence has no
    B: with `lone_rate` it gets a random one, under the last label, else it is dropped. Too long
    pairs lose tokens one by one from the longer side (B on ties), at its front or back by a fair
    coin. `single=True`: A and B are one sentence each. `packed=True`: several pairs a row, best
    fit, none sees another; an anchor and a label for each. `copies=N`: N differently cut copies of
    the corpus, then the same again (dupe_factor); null: cut again in every epoch.

    (arXiv:1810.04805, appendix A.2, and google-research/bert create_pretraining_data.py:
    random_rate 0.5, copies 10, short_rate 0.1. `swap_rate` 0.5 and copies 40: arXiv:1909.11942,
    sec. 3.1, and its code. A third each: arXiv:1908.04577, sec. 2.2.2. RoBERTa's SEGMENT-PAIR and
    SENTENCE-PAIR, arXiv:1907.11692, sec. 4.2: the latter single, with larger batches, for which
    `packed` stands.) Differs: B's document is drawn among the others directly, where the code gives
    up after ten tries to hit another one.
    """

    fields = PAIR

    def __init__(
        self,
        *,
        vocab: Vocab,
        max_length: int,
        short_rate: float,
        random_rate: float,
        swap_rate: float = 0.0,
        lone_rate: float = 1.0,
        single: bool = False,
        packed: bool = False,
        copies: int | None = None,
    ) -> None:
        self.vocab, self.max_length, self.copies = vocab, max_length, copies
        self.short_rate = short_rate
        self.random_rate = random_rate
        self.swap_rate = swap_rate
        self.lone_rate = lone_rate
        self.single, self.packed = single, packed
        self.kinds = find_wraps(vocab, vocab.pair)
        if len(self.kinds) != 2 or not self.kinds[0].before:
            raise ConfigError(
                "format", "sentence_pair", "a tokenizer whose pair template is like cls A sep B sep"
            )
        self.specials = sum(wrap.size for wrap in self.kinds)
        for name in ("short_rate", "random_rate", "swap_rate", "lone_rate"):
            check_rate(name, getattr(self, name))
        if random_rate + swap_rate > 1:
            allowed = f"at most {1 - random_rate:g}: random_rate + swap_rate <= 1"
            raise ConfigError("format.swap_rate", swap_rate, allowed)
        check_copies(copies)
        if max_length < self.specials + 2:
            allowed = f"at least {self.specials + 2}: the special tokens and one token a side"
            raise ConfigError("format.max_length", max_length, allowed)
        isolated = {"tracks.document", "tracks.position"} if packed else set()
        self.provides = frozenset(
            {"text", "tracks.segment", "labels.pair", "anchors", *self.carried, *isolated}
        )
        occurs = np.array([True, swap_rate > 0, random_rate > 0])
        self.labels = np.cumsum(occurs) - 1  # [3] the label of NEXT, PREVIOUS, RANDOM
        self.labels[RANDOM] = max(1, self.labels[RANDOM])
        occurs[RANDOM] = True  # the label of chunks of one sentence
        kinds = [
            np.flatnonzero(occurs & (self.labels == label))
            for label in range(self.labels.max() + 1)
        ]
        self.meanings = {
            "pair": [
                " or ".join(KINDS[kind] for kind in kinds_of_label) for kinds_of_label in kinds
            ]
        }

    def plan(self, shards: Shards, *, seed: int, epoch: int, input_length: int) -> Plan:
        room = input_length - self.specials
        rng = np.random.default_rng((seed, epoch))
        bounds = sentence_edges(shards)  # [S + 1] token offsets
        documents = np.searchsorted(bounds, document_edges(shards))  # [D + 1] sentence offsets
        target = np.full(len(documents) - 1, room)
        short = rng.random(len(target)) < self.short_rate
        target[short] = rng.integers(2, room + 1, int(short.sum()))
        cuts = self._cut(bounds, documents, target, random.Random(int(rng.integers(2**62))))
        pairs, drawn = self._pairs(bounds, documents, target, cuts, rng)
        offered, pairs = pairs.tokens, _truncate(pairs, room, rng)
        plan, order = plan_pairs(shards, pairs, self.kinds, input_length, packed=self.packed)
        plan.arrays["pair"] = self.labels[cuts.fate[order]].astype(np.int8)
        plan.report.update(
            repeated=drawn,
            cut=offered - plan.report["laid_out"],
            dropped=len(shards.ids) + drawn - offered,
            random_pairs=int((cuts.fate == RANDOM).sum()),
            swapped_pairs=int((cuts.fate == PREVIOUS).sum()),
            lone_pairs=int((cuts.last - cuts.first == 1).sum()),
        )
        return plan

    def _cut(
        self, bounds: np.ndarray, documents: np.ndarray, target: np.ndarray, coin: random.Random
    ) -> Cuts:
        """The chunks of all documents, in order; `bounds` of sentences in tokens, `documents` in
        sentences.
        """
        blocks: list[np.ndarray] = []
        low = 0
        while low < len(target):
            high = max(
                low + 1, int(np.searchsorted(documents, documents[low] + BLOCK, side="right")) - 1
            )
            base, count = documents[low], np.diff(documents[low : high + 1])
            here = bounds[base : documents[high] + 1]
            last = np.searchsorted(here, here[:-1] + np.repeat(target[low:high], count))
            last = np.minimum(last, np.repeat(documents[low + 1 : high + 1] - base, count))
            if self.single:
                last = np.minimum(last, np.arange(2, len(last) + 2))
            first, middle, fate = self._walk(last.tolist(), coin)
            blocks.append(np.stack([first + base, middle + base, last[first] + base, fate]))
            low = high
        return Cuts(*np.concatenate(blocks or [np.empty((4, 0), np.int64)], axis=1))

    def _walk(
        self, last: list[int], coin: random.Random
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(first, middle, fate) from chunk to chunk; `last[i]` ends the chunk that begins at
        sentence i.

        A loop, since each random decision determines where the next chunk begins. With
        `random_rate` 0.5 and chunks of up to 4 sentences in a document of 6:

            begins   chunk     cut       decision   A, B                    next chunk begins
            0        s0-s3     after s1  random     s0 s1, random           2 (s2 s3 are put back)
            2        s2-s5     after s2  next       s2, s3 s4 s5            6 (the end)
        """
        first, middle, fate = array("q"), array("q"), array("b")
        draw = coin.random
        lone = self.lone_rate
        other = self.random_rate
        swapped = self.random_rate + self.swap_rate
        sentence, stop = 0, len(last)
        while sentence < stop:
            end = last[sentence]
            if end - sentence == 1:
                kind, after, cut = RANDOM if lone == 1 or draw() < lone else DROPPED, end, end
            else:
                cut, drawn = sentence + 1 + int(draw() * (end - sentence - 1)), draw()
                kind, after = (
                    (RANDOM, cut) if drawn < other else (PREVIOUS if drawn < swapped else NEXT, end)
                )
            if kind != DROPPED:
                first.append(sentence)
                middle.append(cut)
                fate.append(kind)
            sentence = after
        return np.array(first, np.int64), np.array(middle, np.int64), np.array(fate, np.int8)

    def _pairs(
        self,
        bounds: np.ndarray,
        documents: np.ndarray,
        target: np.ndarray,
        cuts: Cuts,
        rng: np.random.Generator,
    ) -> tuple[SegmentPairs, int]:
        """A and B of every chunk in full length, and the number of tokens of random Bs, which are
        read once more.
        """
        start, middle, end = bounds[cuts.first], bounds[cuts.middle], bounds[cuts.last]
        pairs = SegmentPairs(start, middle.copy(), middle, end)
        random = np.flatnonzero(cuts.fate == RANDOM)
        document = np.searchsorted(documents, cuts.first[random], side="right") - 1
        room = target[document] - (middle - start)[random]
        begin, stop = _random_segments(bounds, documents, document, 1 if self.single else room, rng)
        pairs.b_start[random], pairs.b_end[random] = begin, stop
        swapped = np.flatnonzero(cuts.fate == PREVIOUS)
        for a, b in ((pairs.a_start, pairs.b_start), (pairs.a_end, pairs.b_end)):
            a[swapped], b[swapped] = b[swapped], a[swapped]
        return pairs, int((stop - begin).sum())

    def check(self, shards: Shards, plan: Plan) -> None:
        lone, pairs = plan.report["lone_pairs"], len(plan.arrays["pair"])
        if self.swap_rate and lone == pairs:
            raise DataError(
                f"every chunk of at most {self.max_length} tokens is a single sentence, so that"
                " no segments can be swapped",
                file=getattr(shards, "given", None),
                fix=(
                    "give documents of several sentences (.txt: a sentence a line, a blank line"
                    " ends a document), or a larger format.max_length, or do without pairs:"
                    f" {PAIRLESS}"
                ),
            )
        if lone > pairs * MOST_LONE:
            kind = self.meanings["pair"][-1]
            remark_once(
                f"{lone / pairs:.0%} of the pairs begin with a text of one sentence, without a next"
                f" one: all have the label '{kind}'. Pairs teach little here\n  fix: {PAIRLESS}, or"
                " documents of several sentences",
                WARN,
            )

    def rows(self, shards: Shards, plan: Plan, index: np.ndarray, wanted: Wanted = None) -> Rows:
        layout = lay_rows(shards, plan, index, self.kinds, self.vocab, wanted)
        second = (layout.piece >= 0) & (layout.piece % 2 == 1)
        seq = (
            layout.isolate(layout.piece // 2, find_pair_begins(layout))
            if self.packed
            else layout.seq
        )
        anchors, number = find_anchors(layout, plan, index)
        return Rows(
            key=index,
            seqs={"text": seq.with_tracks(segment=layout.fill(second).astype(np.int8))},
            spans=layout.spans,
            anchors=anchors,
            labels={"pair": plan.arrays["pair"][number].astype(np.int64)},
        )


def _random_segments(
    bounds: np.ndarray,
    documents: np.ndarray,
    document: np.ndarray,
    wanted: np.ndarray | int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Token (start, end) of sentences of another document, from a random sentence on until `wanted`
    tokens or its end.

    If there is only one document, it is that document itself, as in BERT's code.
    """
    count = len(documents) - 1
    other = rng.integers(0, max(1, count - 1), len(document))
    other += (other >= document) & (count > 1)
    begin, stop = documents[other], documents[other + 1]
    first = begin + (rng.random(len(other)) * (stop - begin)).astype(np.int64)
    last = np.searchsorted(bounds, bounds[first] + wanted)
    return bounds[first], bounds[np.clip(last, first + 1, stop)]


def _truncate(pairs: SegmentPairs, room: int, rng: np.random.Generator) -> SegmentPairs:
    """Both stretches shortened to `room` tokens in all; each removed token is at the front or the
    back with probability 1/2.
    """
    a, b = pairs.a_end - pairs.a_start, pairs.b_end - pairs.b_start
    a_left, b_left = shorten_pairs(a, b, room)
    a_start = pairs.a_start + rng.binomial(a - a_left, 0.5)
    b_start = pairs.b_start + rng.binomial(b - b_left, 0.5)
    return SegmentPairs(a_start, a_start + a_left, b_start, b_start + b_left)
