"""Replaced entities (Xiong et al., 2020, WKLM): a mention becomes a name of another entity of the
same type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.draws import HALF, Draws, unit
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.fields import Field
from plmctl.core.parts import Opens, part_of
from plmctl.core.values import Count, Rate, Whole
from plmctl.knowledge.directory import KnowledgeDirectory, confirm
from plmctl.knowledge.known import TextSample, describe_known
from plmctl.knowledge.pools import Pools
from plmctl.noise.base import Noise
from plmctl.noise.moves import move_tokens
from plmctl.noise.units import find_spans
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.vocab import Vocab

TRIES = 8  # draws of another entity and name for a mention


class Change(NamedTuple):
    """A mention that becomes another one."""

    mention: int  # its line in the table
    entity: int
    tokens: list[int]


@part_of("noise")
class EntityReplace(Noise):
    """Each mention in `spans.entity` is proposed with probability `replace_rate`; of neighbouring
    mentions never both are replaced. A type of the entity, another entity of this type and one of
    its names are drawn, all uniformly.

    `spans.judged` says of every mention whose entity has a type with others whether it is the
    original. (Xiong et al., 2020, arXiv:1912.09637, sec. 2.1.) In a row, with proposals marked:

        mentions     Paris*   France   Seine*   Rome*   Ada       Ada has no type: not judged
        replaced     Oslo     France   Thames   Rome    Ada       Rome: its neighbour was replaced

    A name that has the tokens of the original, or that the original entity has too, is drawn again,
    at most 8 times. `copies`: the replacements of an epoch come again after so many epochs (the
    paper's copies of a chunk). `room`: tokens of a row that stay free for longer names; a
    replacement that does not fit into them is left out. Controls: `shuffled` gives types and names
    to other entities, by this seed; `any_type` draws the other entity from all. Differs: the rate
    is not published. Mentions that could not have been replaced are not judged: they would be true
    by their type alone.
    """

    reads = frozenset({"input", "spans.entity"})
    writes = frozenset({"spans.judged"})
    fields: Mapping[str, Field] = {
        "spans.judged": Field(
            "[m, 4]", "int", "row, start, length of a mention; 1: the original, 0: replaced"
        )
    }

    opens: ClassVar[Opens] = {"knowledge": confirm}

    def __init__(
        self,
        *,
        vocab: Vocab,
        replace_rate: Rate,
        copies: Count | None = 10,
        room: Whole = 8,
        least_count: Whole = 1,
        longest: Count = 12,
        knowledge: str | None = None,
        shuffled: Whole | None = None,
        any_type: bool = False,
        tokenizer: Tokenizer | None = None,
        home: str | None = None,
    ) -> None:
        self.vocab, self.rate, self.copies, self.room = vocab, replace_rate, copies, room
        self.least_count, self.longest, self.any_type = least_count, longest, any_type
        self._folder, self._shuffled, self._tokenizer = knowledge or home, shuffled, tokenizer

    @cached_property
    def knowledge(self) -> KnowledgeDirectory:
        """The entities that the ids of `spans.entity` mean."""
        if self._folder is None:
            what = "nothing says which entities the ids of these tokens mean"
            fix = "tokenize the text.jsonl of plmctl data link, or name the directory"
            raise ConfigError("noise.entity_replace.knowledge", None, what, fix=fix)
        return KnowledgeDirectory(self._folder, shuffled=self._shuffled)

    @cached_property
    def pools(self) -> Pools:
        """The entities and names that may replace each mention."""
        assert self._tokenizer is not None
        pools = Pools(
            self.knowledge,
            self._tokenizer,
            least_count=self.least_count,
            longest=self.longest,
            any_type=self.any_type,
        )
        if not pools.members:
            fix = "plmctl data link type_table=<name, type a line>, or more text"
            what = "no type has two entities with names: nothing can be replaced"
            raise DataError(what, file=self._folder, fix=fix)
        return pools

    def describe_known(self, text: TextSample) -> str:
        """How many mentions of a text can be replaced: others have a type of theirs."""
        entities = text.entities[text.entities < len(self.knowledge)]
        could = np.array([bool(kinds) for kinds in self.pools.kinds])
        what = "mentions can be replaced by an entity of the same type"
        fix = "plmctl data link type_table=<name, type a line>"
        known = int(could[entities].sum())
        return describe_known(known, len(text.entities), what, file=self._folder, fix=fix)

    def input_length(self, length: int) -> int:
        return max(1, length - self.room)

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        draws = draws if self.copies is None else draws.repeat(self.copies)
        table = find_spans(rows, "entity")
        table = table[np.lexsort((table[:, 1], table[:, 0]))]
        changes = self._choose(rows, table, draws)
        changed, table = self._apply(rows, table, changes)
        judged = self._judge(changed, table, {change.mention for change in changes})
        return replace(changed, spans={**changed.spans, "entity": table, "judged": judged})

    def _choose(self, rows: Rows, table: np.ndarray, draws: Draws) -> list[Change]:
        """The mentions that are replaced, and by what."""
        seq = rows.seqs[rows.input]
        width = seq.ids.shape[1] + self.room
        left = (width - np.asarray(seq.length)).tolist()
        row, start = table[:, 0], table[:, 1]
        proposed = _uniform(draws, rows, "propose", row, start) < self.rate
        if len(table) and int(table[:, 3].max()) >= len(self.knowledge):
            what = f"a mention has the id {int(table[:, 3].max())}"
            what += f", and there are {len(self.knowledge):,} entities"
            fix = "tokenize the text.jsonl of this directory"
            raise DataError(what, file=self.knowledge.folder, fix=fix)
        candidates = np.flatnonzero(proposed)
        lots = _draw_lots(draws, rows, row[candidates], start[candidates])
        changes: list[Change] = []
        last = -2
        for number, words in zip(candidates.tolist(), lots.tolist(), strict=True):
            if last == number - 1 and row[last] == row[number]:
                continue
            change = self._draw(rows, table[number], number, words)
            if change is None:
                continue
            at, longer = int(row[number]), len(change.tokens) - int(table[number, 2])
            if longer <= left[at]:
                left[at] -= longer
                changes.append(change)
                last = number
        return changes

    def _draw(
        self, rows: Rows, mention: np.ndarray, number: int, lots: list[list[int]]
    ) -> Change | None:
        """Another entity and its name for a mention; None where none is found.

        Args:
            mention: row, start, length, id.
            lots: The random bits: for each try 32 for type, entity and name.
        """
        row, start, length, entity = mention.tolist()
        kinds = self.pools.kinds[entity]
        if not kinds:
            return None
        old = rows.seqs[rows.input].ids[row, start : start + length].tolist()
        spaced = bool(self.vocab.word_start[old[0]])
        for kind, pick, called in lots:
            pool = self.pools.members[kinds[kind * len(kinds) >> 32]]
            other = int(pool[pick * (len(pool) - 1) >> 32])
            other = int(pool[-1]) if other == entity else other  # all but itself, uniformly
            names = self.pools.names[other]
            name = names[called * len(names) >> 32]
            tokens = self.pools.encode(name, spaced)
            same = tokens == old or name.lower() in self.pools.all_names[entity]
            if not same and 0 < len(tokens) <= self.longest:
                return Change(number, other, tokens)
        return None

    def _apply(
        self, rows: Rows, table: np.ndarray, changes: list[Change]
    ) -> tuple[Rows, np.ndarray]:
        """The rows with other names, and the mentions where they stand now."""
        seq = rows.seqs[rows.input]
        width = seq.ids.shape[1]
        first = table[:, 0] * width + table[:, 1]
        pieces, at = [], 0
        slots = np.flatnonzero(np.arange(width) < np.asarray(seq.length)[:, None])
        position = np.searchsorted(slots, first)  # position of each mention among the real tokens
        size, length = table[:, 2].copy(), np.asarray(seq.length).astype(np.int64)
        for change in changes:
            begin, count = int(position[change.mention]), len(change.tokens)
            pieces += [slots[at:begin], np.full(count, slots[begin])]
            at = begin + int(table[change.mention, 2])
            length[table[change.mention, 0]] += count - int(size[change.mention])
            size[change.mention] = count
        take = np.concatenate([*pieces, slots[at:]])
        grown = np.cumsum(size - table[:, 2]) - (size - table[:, 2])
        begins = position + grown  # in `take`
        replaced = [change.mention for change in changes]
        added = np.concatenate(
            [
                np.zeros(0, np.int64),
                *(begins[change.mention] + np.arange(len(change.tokens)) for change in changes),
            ]
        )
        tokens = np.array([token for change in changes for token in change.tokens], seq.ids.dtype)
        moved = move_tokens(
            rows,
            take,
            length,
            pad=self.vocab.pad,
            width=width + self.room,
            added=added,
            token=tokens,
        )
        row_begins = np.cumsum(length) - length
        new = table.copy()
        new[:, 1] = begins - row_begins[table[:, 0]]
        new[:, 2] = size
        new[replaced, 3] = [change.entity for change in changes]
        return self._fix_words(moved, new[replaced]), new

    def _fix_words(self, rows: Rows, spans: np.ndarray) -> Rows:
        """Say of the new tokens which of them begin a word."""
        seq = rows.seqs[rows.input]
        if "word_start" not in seq.tracks or not len(spans):
            return rows
        starts = seq.tracks["word_start"].copy()
        for row, start, length, _ in spans.tolist():
            part = seq.ids[row, start : start + length]
            starts[row, start : start + length] = self.vocab.word_start[part]
            starts[row, start] = True
        return rows.with_seq(rows.input, seq.with_tracks(word_start=starts))

    def _judge(self, rows: Rows, table: np.ndarray, replaced: set[int]) -> np.ndarray:
        """[m, 4]: the mentions that could be replaced and have a token on both sides in their
        document, each with whether it is the original.
        """
        seq = rows.seqs[rows.input]
        label = np.ones(len(table), np.int64)
        label[sorted(replaced)] = 0
        could = np.array([bool(self.pools.kinds[e]) for e in table[:, 3].tolist()], bool)
        row, before, after = table[:, 0], table[:, 1] - 1, table[:, 1] + table[:, 2]
        inside = (before >= 0) & (after < np.asarray(seq.length)[row])
        if "document" in seq.tracks:
            document = seq.tracks["document"]
            last = document.shape[1] - 1
            inside &= document[row, before.clip(0)] == document[row, after.clip(0, last)]
        judged = np.column_stack([table[:, :3], label])
        return judged[could & inside]


def _uniform(
    draws: Draws, rows: Rows, name: str, row: np.ndarray, column: np.ndarray
) -> np.ndarray:
    """[m] in [0, 1), one for each (row, column)."""
    return unit((draws.words_at(rows.key, name, row, column) >> HALF).astype(np.uint32))


def _draw_lots(draws: Draws, rows: Rows, row: np.ndarray, start: np.ndarray) -> np.ndarray:
    """[m, TRIES, 3] 32 random bits for the type, the entity and the name of each try."""
    width = rows.seqs[rows.input].ids.shape[1]
    places = (start[:, None] + np.arange(TRIES) * width).ravel()
    owner = np.repeat(row, TRIES)
    words = [draws.words_at(rows.key, name, owner, places) for name in ("type", "entity", "name")]
    return np.stack(words, 1).reshape(-1, TRIES, 3) >> HALF
