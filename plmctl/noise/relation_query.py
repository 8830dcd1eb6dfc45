"""A fact as a question before a document (ERICA; Qin et al., 2021): the name of its relation, and
its head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.draws import Draws
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.core.values import Count
from plmctl.knowledge.facts import FactTable
from plmctl.knowledge.known import TextSample
from plmctl.noise.base import Noise
from plmctl.noise.moves import move_tokens
from plmctl.noise.units import find_spans
from plmctl.text.vocab import Vocab

Query = tuple[int, int, int, list[int]]  # head, relation, tail; tokens


@part_of("noise")
class RelationQuery(Noise):
    """`[cls] relation head [sep] document [sep]`: before the first document of a row stands one of
    the facts between its entities, drawn anew in every epoch; none where there is no fact (Qin et
    al., 2021, arXiv:2012.15022, sec. 3.3).

    The head is written as it is at its first mention, of the relation's name and it the first
    `longest - 1` tokens. Spans follow their tokens; the query has no mention.
    Differs: the pieces of a relation's name are the longest ones, from left to right, whatever the
    tokenizer does.
    """

    reads = frozenset({"input", "spans.entity"})
    writes = frozenset({"spans.query"})
    fields: Mapping[str, Field] = {
        "spans.query": Field(
            "[m, 6]", "int", "row, start, length of a query, and its head, relation and tail"
        )
    }

    def __init__(self, *, vocab: Vocab, facts: FactTable, longest: Count = 16) -> None:
        self.vocab, self.table, self.longest = vocab, facts, longest
        self.end = vocab.sep if vocab.sep is not None else vocab.eos
        self._spelled: dict[int, list[int]] = {}  # tokens of relations

    def input_length(self, length: int) -> int:
        return length - self.longest

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        seq = rows.seqs[rows.input]
        n, columns = seq.ids.shape
        lot = draws.uniform(rows.key, "fact", 1)[:, 0]
        queries = self._choose(rows, lot)
        added = np.array([len(query[3]) if query else 0 for query in queries])
        length = seq.length.astype(np.int64) + added
        # the first token, as often as the query has tokens and once more, then the others
        copies = np.ones((n, columns), np.int64)
        copies[:, 0] += added
        slots = np.repeat(np.arange(n * columns), np.where(seq.real, copies, 0).ravel())
        begin = np.cumsum(length) - length
        new = np.concatenate(
            [np.arange(b + 1, b + 1 + k) for b, k in zip(begin, added, strict=True)]
        )
        moved = move_tokens(
            rows, slots, length, pad=self.vocab.pad, width=columns + self.longest,
            added=new.astype(np.int64), token=self.vocab.pad,
        )  # fmt: skip
        ids, table = moved.seqs[rows.input].ids, []
        for row, query in enumerate(queries):
            if query:
                ids[row, 1 : 1 + added[row]] = query[3]
                table.append((row, 1, added[row], *query[:3]))
        spans = np.array(table, np.int64).reshape(-1, 6)
        return replace(moved, spans={**moved.spans, "query": spans})

    def describe_known(self, text: TextSample) -> str:
        """How many pairs of entities of a text have a fact."""
        return self.table.describe_known(text)

    def _choose(self, rows: Rows, lot: np.ndarray) -> list[Query | None]:
        """The query of each row, or None."""
        seq, spans = rows.seqs[rows.input], find_spans(rows, "entity")
        document = seq.tracks.get("document")
        chosen: list[Query | None] = [None] * len(rows.key)
        edges = np.searchsorted(spans[:, 0], np.arange(len(rows.key) + 1))
        for row in range(len(rows.key)):
            own = spans[edges[row] : edges[row + 1]]
            if document is not None:
                own = own[document[row, own[:, 1]] == document[row, 0]]
            entities = np.unique(own[:, 3])
            head, tail = np.repeat(entities, len(entities)), np.tile(entities, len(entities))
            head, tail = head[head != tail], tail[head != tail]
            pair, relation = self.table.find(head, tail)
            if len(pair):
                place = int(lot[row] * len(pair))
                h, r, t = int(head[pair[place]]), int(relation[place]), int(tail[pair[place]])
                _, start, length = own[own[:, 3] == h][0][:3].tolist()
                words = [*self._spell(r), *seq.ids[row, start : start + length].tolist()]
                close = [] if self.end is None else [self.end]
                chosen[row] = (h, r, t, [*words[: self.longest - len(close)], *close])
        return chosen

    def _spell(self, relation: int) -> list[int]:
        """The tokens of a relation's name: of each word the longest piece, again and again."""
        if relation in self._spelled:
            return self._spelled[relation]
        pieces: list[int] = []
        for word in self.table.names[relation].replace("_", " ").replace("/", " ").split():
            pieces += _cut(word, *self._pieces) or _cut(word.lower(), *self._pieces)
        self._spelled[relation] = pieces
        return pieces

    @cached_property
    def _pieces(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """{text: token} of the tokens that begin a word, and of those inside."""
        begins: dict[str, int] = {}
        inside: dict[str, int] = {}
        for number, text in enumerate(self.vocab.texts):
            if text:
                (begins if self.vocab.word_start[number] else inside).setdefault(text, number)
        return begins, inside


def _cut(word: str, begins: Mapping[str, int], inside: Mapping[str, int]) -> list[int]:
    """The longest pieces from left to right; nothing where they do not make the word."""
    pieces: list[int] = []
    at = 0
    while at < len(word):
        known = inside if at else begins
        end = next((e for e in range(len(word), at, -1) if word[at:e] in known), None)
        if end is None:
            return []
        pieces.append(known[word[at:end]])
        at = end
    return pieces
