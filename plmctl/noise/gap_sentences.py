"""Gap sentences (Zhang et al., 2020, Pegasus): the sentences that say most of a document are
hidden, and written as its target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal, get_args

import numpy as np

from plmctl.core.batch import Rows, Seq
from plmctl.core.draws import HALF, Draws, unit
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.noise.base import Noise, find_mask
from plmctl.noise.masking import expand_runs, find_document_begins
from plmctl.noise.moves import gather, make_movable
from plmctl.noise.span_sentinel import Ends, find_ends, hide_spans
from plmctl.noise.units import Units, find_units
from plmctl.text.vocab import TokenLack, Vocab

Selection = Literal["ind", "seq", "lead", "random"]
Counts = Literal["orig", "uniq"]
_STEP = np.uint64(0x9E3779B97F4A7C15)  # an odd number: words of equal tokens get equal keys


@part_of("noise")
class GapSentences(Noise):
    """`m = min(s, max(1, floor(rate s)))` of a document's s sentences become the target, in their
    order; in the source one mask replaces each.

        x1 <mask> x3 x4 eos            x2 eos

    The score of a sentence is ROUGE1-F = 2 P R / (P + R) between it and the rest of its document.
    With "ind" the m best ones are chosen, each by its own score. With "seq" they are chosen one by
    one: the next one is the sentence with which all that are chosen have the best score. "lead"
    takes the first m, "random" any m. ROUGE counts a word as often as it occurs ("orig") or once
    ("uniq"). A share `kept` of the chosen sentences also stays in the source. (Zhang et al., 2020,
    arXiv:1912.08777, sec. 3.1; google-research/pegasus.)
    Differs: words are compared as their tokens; signs alone are no words. The scores have no random
    factor, which the mixed model has.
    """

    reads = frozenset({"text", "tracks.sentence", "tracks.word_start"})
    writes = frozenset({"source", "target", "values.cut"})
    removes = frozenset({"text"})

    def __init__(
        self,
        *,
        vocab: Vocab,
        rate: float,
        select: Selection = "ind",
        counts: Counts = "orig",
        kept: float = 0.1,
        target_length: int | None = None,
    ) -> None:
        if not 0 < rate <= 1:
            raise ConfigError("noise.rate", rate, "0 < rate <= 1, the share of the sentences")
        if not 0 <= kept <= 1:
            raise ConfigError("noise.kept", kept, "0 to 1, the share of chosen sentences that stay")
        for name, value, known in (("select", select, Selection), ("counts", counts, Counts)):
            if value not in get_args(known):
                allowed = f"one of {', '.join(get_args(known))}"
                raise ConfigError(f"noise.{name}", value, allowed)
        end = vocab.eos if vocab.eos is not None else vocab.sep
        if end is None:
            allowed = "this tokenizer has no end-of-text token"
            raise TokenLack("noise", "gap_sentences", allowed, fix="tokenizer=unigram")
        own = vocab.sentinels[0] if vocab.sentinels else None
        self.mask = find_mask(vocab, "gap_sentences") if own is None else own
        self.vocab, self.rate, self.select, self.counts = make_movable(vocab), rate, select, counts
        self.kept, self.target_length, self.end = kept, target_length, end
        self.letters = np.array([any(map(str.isalnum, text)) for text in vocab.texts] or [True])

    def input_length(self, length: int) -> int:
        """One less: the end of the text."""
        return max(1, length - 1)

    def columns(self, length: int) -> dict[str, int]:
        return {"source": length + 1, "target": self.target_length or length + 1}

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        seq = rows.seqs["text"]
        columns = self.columns(seq.ids.shape[1])
        units = find_units(rows, self.vocab, words=True)
        ends = find_ends(seq, self.vocab, self.end)
        start, length = find_sentences(seq, units)
        document = np.searchsorted(ends.first, start, side="right") - 1
        word = draws.words_at(rows.key, "sentence", *np.divmod(start, seq.ids.shape[1]))
        chosen = self._choose(seq, units, start, length, document, word)
        target, more = self._target(
            seq, start[chosen], length[chosen], document[chosen], ends, columns["target"]
        )
        hidden = chosen & (unit(word.astype(np.uint32)) >= self.kept)
        how = {"columns": columns["source"], "pad": self.vocab.pad, "end": self.end}
        rows = hide_spans(rows, start[hidden], length[hidden], self.mask, ends, **how)
        seqs = {name: own for name, own in rows.seqs.items() if name != "text"}
        seqs |= {"source": rows.seqs["text"], "target": target}
        return replace(rows, seqs=seqs, values={**rows.values, "cut": rows.values["cut"] + more})

    def _choose(
        self,
        seq: Seq,
        units: Units,
        start: np.ndarray,
        length: np.ndarray,
        document: np.ndarray,
        word: np.ndarray,
    ) -> np.ndarray:
        """[s] bool: the sentences that become targets; `word` has their random bits."""
        chosen, keys = np.zeros(len(start), bool), self._spell_words(seq, units)
        own = units.of_slot
        first, last = own[start].astype(np.int64), own[start + length - 1].astype(np.int64) + 1
        edges = np.flatnonzero(np.diff(document, prepend=-1, append=-1))
        for begin, stop in pairwise(edges.tolist()):
            count = min(stop - begin, max(1, int(self.rate * (stop - begin) + 1e-9)))
            sentences = [keys[first[i] : last[i]] for i in range(begin, stop)]
            sentences = [each[each != 0] for each in sentences]
            lots = (word[begin:stop] >> HALF).astype(np.uint32)
            chosen[begin + self._pick(sentences, count, lots)] = True
        return chosen

    def _pick(self, sentences: Sequence[np.ndarray], count: int, lots: np.ndarray) -> np.ndarray:
        """The indices of `count` sentences of a document."""
        if self.select == "lead":
            return np.arange(count)
        if self.select == "random":
            return np.argsort(lots, kind="stable")[:count]
        table = count_words(sentences)
        if self.select == "ind":
            scores = score_against_rest(table, table, self.counts)
            return np.argsort(-scores, kind="stable")[:count]
        taken = np.zeros(len(table), bool)
        for _ in range(count):
            together = table[taken].sum(0) + table
            scores = score_against_rest(together, table, self.counts)
            taken[np.argmax(np.where(taken, -1.0, scores))] = True
        return np.flatnonzero(taken)

    def _spell_words(self, seq: Seq, units: Units) -> np.ndarray:
        """[u] uint64: the key of each word, 0 of signs and special tokens."""
        ids = seq.ids.ravel().astype(np.uint64) + np.uint64(1)
        place = np.arange(len(ids)) - units.start[units.of_slot]
        power = np.cumprod(np.full(int(place.max()) + 1, _STEP))
        keys = np.add.reduceat(ids * power[place], units.start[:-1])
        lettered = self.letters[seq.ids.ravel() if len(self.letters) > 1 else 0] & units.ordinary
        spoken = np.logical_or.reduceat(lettered, units.start[:-1])
        return np.where(spoken, np.maximum(keys, 1), 0)

    def _target(
        self,
        seq: Seq,
        start: np.ndarray,
        length: np.ndarray,
        document: np.ndarray,
        ends: Ends,
        columns: int,
    ) -> tuple[Seq, np.ndarray]:
        """The chosen sentences of each document and its closing token; [n] tokens that are cut."""
        closed = np.flatnonzero(np.bincount(document, minlength=len(ends.first)))
        order = np.argsort(np.concatenate([document, closed]), kind="stable")
        size = np.concatenate([length, np.ones_like(closed)])[order]
        take = expand_runs(np.concatenate([start, ends.last[closed]])[order], size)
        ids = np.full(len(order), -1)
        ids[order >= len(start)] = ends.token[closed]
        token = np.repeat(ids, size)
        total = np.bincount(take // seq.ids.shape[1], minlength=len(seq.ids))
        fits = np.minimum(total, columns)
        inside = expand_runs(np.zeros_like(total), total) < np.repeat(fits, total)
        target, into = gather(seq, take[inside], fits, pad=self.vocab.pad, width=columns)
        shown = token[inside]
        target.ids.ravel()[into[shown >= 0]] = shown[shown >= 0]
        return target, total - fits


def find_sentences(seq: Seq, units: Units) -> tuple[np.ndarray, np.ndarray]:
    """(first slot, length), each [s]: the sentences; a special token ends one."""
    begins = find_document_begins(seq.tracks["sentence"]).ravel() & units.ordinary
    begins[units.start[units.edge[:-1]]] = True
    first = np.flatnonzero(begins)
    length, ordinary = np.diff(first, append=begins.size), units.ordinary[first]
    return first[ordinary], length[ordinary]


def count_words(sentences: Sequence[np.ndarray]) -> np.ndarray:
    """[s, words] how often each word of a document is in each of its sentences."""
    size = [len(sentence) for sentence in sentences]
    known, column = np.unique(np.concatenate(sentences), return_inverse=True)
    table = np.zeros((len(sentences), len(known)))
    np.add.at(table, (np.repeat(np.arange(len(sentences)), size), column), 1)
    return table


def score_against_rest(parts: np.ndarray, table: np.ndarray, counts: Counts) -> np.ndarray:
    """[p] ROUGE1-F between each part of a document and its rest.

    Args:
        parts: [p, words] word counts of each part.
        table: [s, words] those of all its sentences.
        counts: Whether a word counts as often as it occurs.
    """
    rest = table.sum(0) - parts
    if counts == "uniq":
        parts, rest = np.minimum(parts, 1), np.minimum(rest, 1)
    sizes = parts.sum(1) + rest.sum(1)  # P + R = overlap (1 / |part| + 1 / |rest|)
    scores: np.ndarray = 2 * np.minimum(parts, rest).sum(1) / np.maximum(sizes, 1)
    return scores
