"""Contexts of words, in which the word is hidden: what models read that give a vector to a word
(Schick and Schütze, 2020: BERTRAM).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from plmctl.core.batch import Rows, Seq
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.data.formats.base import Format, Plan
from plmctl.data.formats.carried import Wanted
from plmctl.knowledge.words import MODES, Mode
from plmctl.noise.masking import expand_runs
from plmctl.text.vocab import Vocab

if TYPE_CHECKING:
    from plmctl.data.shards import Shards, SpanTrack


@dataclass(frozen=True)
class ContextLayout:
    """How a context is laid out for a mode; `SLOTS` says where the vector of a word's form goes.

        form                        cls mask sep
        context, shallow, replace   cls left mask right sep
        add                         cls slot : left mask right sep
        add_quotes                  cls " slot " : left mask right sep

    The slot is written as `sep`; its vector is replaced. In `replace` it is the mask itself.
    """

    before: tuple[int, ...]
    mask: int
    after: tuple[int, ...]
    max_length: int

    @classmethod
    def of(cls, vocab: Vocab, mode: Mode, max_length: int) -> ContextLayout:
        """The layout of a mode; ConfigError where the vocabulary lacks a token of it."""
        first, last, mask = (vocab.id(role) for role in ("cls", "sep", "mask"))

        def find(mark: str) -> int:
            if mark in vocab.texts:
                return vocab.texts.index(mark)
            allowed = f"a mode without {mark}: no token of this vocabulary is this mark"
            raise ConfigError("format.mode", mode, allowed, fix="format.mode=replace")

        before: tuple[int, ...] = (first,)
        if mode == "add":
            before = (first, last, find(":"))
        elif mode == "add_quotes":
            quote = find('"')
            before = (first, quote, last, quote, find(":"))
        layout = cls(before, mask, (last,), max_length)
        if layout.room < 1 and mode != "form":
            least = max_length - layout.room + 1
            raise ConfigError("format.max_length", max_length, f"at least {least}: {mode} needs it")
        return layout

    @property
    def room(self) -> int:
        """How many tokens of a context a row has room for."""
        return self.max_length - len(self.before) - 1 - len(self.after)

    def lay_out(self, left: Sequence[int], right: Sequence[int]) -> tuple[list[int], int]:
        """(ids of a row, position of the mask); tokens are cut at the end that is farther from the
        mask, so that about as many stay on each side.
        """
        beside = max(0, self.room - min(len(right), self.room // 2))
        some = list(left[max(0, len(left) - beside) :])
        others = list(right[: max(0, self.room - len(some))])
        ids = [*self.before, *some, self.mask, *others, *self.after]
        return ids, len(self.before) + len(some)


@part_of("format")
class WordContexts(Format):
    """Sentences with a marked word (spans `span`), which one mask replaces; neighbours with the
    same `values.group` are contexts of one word.

    An epoch has `max(1, min(n // 100, 5))` groups of each word with n contexts. Each has `fewest`
    to `most` contexts, as far as the word has so many, in random order. Words of several tokens
    have no vector in the table of tokens, and are left out. `mode` says how the form of the word
    enters, see `ContextLayout`; in the mode `form` a row is one word, without a context. (Schick
    and Schütze, 2020, arXiv:1910.07181, sec. 3; timoschick/bertram, input_processor.py.) Differs: a
    batch that ends inside a group makes two groups of it; the groups of a word share contexts only
    where it has too few.
    """

    ordered = True
    fields: Mapping[str, Field] = {
        "labels.word": Field("[N]", "int", "number of the word whose context the row is"),
        "labels.token": Field("[N]", "int", "the token that is this word"),
        "values.group": Field(
            "[n]",
            "int",
            "rows with the same number, neighbours, make one example (choices; both orders of a"
            " pair)",
        ),
        "values.mode": Field("[n]", "int", "how the form of the word enters, as in `format.mode`"),
    }
    provides = frozenset(
        {"text", "anchors", "labels.word", "labels.token", "values.group", "values.mode"}
    )

    def __init__(
        self,
        *,
        vocab: Vocab,
        max_length: int,
        mode: Mode = "add",
        span: str = "word",
        fewest: int = 4,
        most: int = 32,
        often: int = 100,
        times: int = 5,
    ) -> None:
        if not 1 <= fewest <= most:
            raise ConfigError("format.fewest", fewest, f"1 to format.most={most}")
        self.vocab, self.max_length, self.mode, self.span = vocab, max_length, mode, span
        self.fewest, self.most, self.often, self.times = fewest, most, often, times
        self.layout = ContextLayout.of(vocab, mode, max_length)

    def plan(self, shards: Shards, *, seed: int, epoch: int, input_length: int) -> Plan:
        marked, draw = self._marks(shards), np.random.default_rng((seed, epoch))
        # the contexts of a word side by side, in random order
        order = np.lexsort((draw.random(len(marked.id)), marked.id))
        ids = np.asarray(marked.id)[order]
        first = np.flatnonzero(np.diff(ids, prepend=-1))
        count = np.diff(first, append=len(ids))
        single = self._is_single(marked, order, first)
        first, count = first[single], count[single]
        uses = np.clip(count // self.often, 1, self.times)
        word = draw.permutation(np.repeat(np.arange(len(first)), uses))
        size = np.minimum(draw.integers(self.fewest, self.most + 1, len(word)), count[word])
        size = np.ones_like(size) if self.mode == "form" else size
        begin = self._take_turns(word, size) % np.maximum(1, count[word])
        offset = expand_runs(begin, size) % np.repeat(count[word], size)
        span = order[np.repeat(first[word], size) + offset]
        rows = len(span)
        group = np.repeat(np.arange(len(word)), size)
        report = {"tokens": len(shards.ids), "dropped": 0, "cut": 0, "words": len(first)}
        report |= {"several_tokens": int((~single).sum()), "repeated": 0}
        return Plan(rows, {"span": span, "group": group}, report, input_length)

    def check(self, shards: Shards, plan: Plan) -> None:
        if plan.rows == 0:
            problem = f"none of the words that are marked as spans.{self.span} is one token"
            fix = "more text, or a larger tokenizer.vocab_size"
            raise DataError(problem, file=shards.given, fix=fix)

    def describe_left_out(self, shards: Shards, plan: Plan) -> str:
        several = plan.report["several_tokens"]
        return (
            f"{several:,} words of several tokens have no vector to learn from" if several else ""
        )

    def rows(self, shards: Shards, plan: Plan, index: np.ndarray, wanted: Wanted = None) -> Rows:
        marked, n = self._marks(shards), len(index)
        span = np.asarray(plan.arrays["span"])[index]
        start, length, word = (np.asarray(part)[span] for part in marked)
        sentences = np.asarray(shards.sentences)
        number = np.searchsorted(sentences, start, "right")
        ids = np.full((n, plan.width), self.vocab.pad, np.int32)
        sizes, anchors = np.zeros(n, np.int64), np.zeros((n, 2), np.int64)
        for row in range(n):
            left = right = np.zeros(0, np.int64)
            if self.mode != "form":
                left = shards.ids[sentences[number[row] - 1] : start[row]]
                right = shards.ids[start[row] + length[row] : sentences[number[row]]]
            laid_out, place = self.layout.lay_out(left.tolist(), right.tolist())
            ids[row, : len(laid_out)] = laid_out
            sizes[row], anchors[row] = len(laid_out), (row, place)
        token = np.asarray(shards.ids)[start].astype(np.int64)
        return Rows(
            key=index,
            seqs={"text": Seq(ids, sizes, full=bool((sizes == plan.width).all()))},
            anchors=anchors,
            labels={"word": word.astype(np.int64), "token": token},
            values={
                "group": np.asarray(plan.arrays["group"])[index],
                "mode": np.full(n, MODES.index(self.mode)),
            },
        )

    def _marks(self, shards: Shards) -> SpanTrack:
        if self.span not in shards.spans:
            raise DataError(
                f"these tokens have no marks spans.{self.span}",
                file=shards.given,
                fix=f"data.path=<folder of plmctl data contexts> data.spans=[{self.span}]"
                " data.lines=sentence",
            )
        return shards.spans[self.span]

    def _is_single(self, marked: SpanTrack, order: np.ndarray, first: np.ndarray) -> np.ndarray:
        """[words] bool: the word is one token in all of its contexts."""
        length = np.asarray(marked.length)[order]
        return np.maximum.reduceat(length, first) == 1 if len(first) else np.zeros(0, bool)

    def _take_turns(self, word: np.ndarray, size: np.ndarray) -> np.ndarray:
        """[groups]: how many contexts of its word the groups before have taken."""
        order = np.argsort(word, kind="stable")
        before = np.cumsum(size[order]) - size[order]
        heads = np.flatnonzero(np.diff(word[order], prepend=-1))
        own = before - np.repeat(before[heads], np.diff(heads, append=len(word)))
        begin = np.empty_like(own)
        begin[order] = own
        return begin
