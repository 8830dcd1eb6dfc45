"""Triples whose entities are described by documents: what KEPLER reads (Wang et al., 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.fields import Field
from plmctl.core.parts import Opens, part_of
from plmctl.core.values import Whole
from plmctl.data.formats.base import Format, Plan
from plmctl.data.formats.carried import Wanted
from plmctl.data.formats.edges import document_edges
from plmctl.data.formats.pieces import lay_rows, plan_pieces
from plmctl.knowledge.graph import HEAD, RELATION, SIDES, TAIL, Answers, KnowledgeGraph
from plmctl.knowledge.triples import read_graph
from plmctl.text.template import find_wraps
from plmctl.text.vocab import Vocab

if TYPE_CHECKING:
    from plmctl.data.shards import Shards

TEXTS = 4  # texts of a row: head, tail, another entity for the head, another one for the tail
# how a run is given what these rows are made of
DESCRIPTIONS = (
    "data.sources.triples.path=<a text for each entity: plmctl data triples kind=descriptions>"
)
TRIES = 20  # how often an entity is drawn again that makes a true triple


@lru_cache(maxsize=2)
def _read(path: str) -> KnowledgeGraph:
    """A graph, which every stage and split of a run reads again."""
    return read_graph(path, setting="format.graph")


@part_of("format")
class Triples(Format):
    """`cls text sep` four times in a row: the descriptions of a head, of its tail, and of two
    entities that are drawn to replace them. None sees another; `anchors` are their first tokens, in
    this order, and `values.relation` is the relation.

    The documents are what `plmctl data triples kind=descriptions` writes, in any selection and
    order: a span `entity` at the beginning of each says whose description it is. A row is a
    training triple of `graph` whose two entities are described; of held-out documents, a triple
    whose entities are both unseen (the inductive setting). A text that is longer than a fourth of
    the row loses its end. The draws differ in each epoch, and never make a training triple with the
    rest of the row (THU-KEG/KEPLER, examples/KEPLER, KGpreprocess.py). Differs: a row has one
    description of the head and one of the tail (code: two of each, whose scores are averaged).

    Args:
        vocab: ids, and which of them have a role.
        max_length: tokens of a row, a fourth for each text.
        graph: The graph directory, as for `plmctl graph data.path=`.
        span: the name of the marks.
        shuffled: the control: every description is that of another entity, by a permutation with
            this seed; nothing else changes. None: as the marks say.
        random: the control: every tail is any described entity, drawn once with this seed. None:
            as the graph says.
    """

    provides = (
        frozenset({"text", "anchors", "tracks.document", "tracks.position", "values.relation"})
        | Format.carried
    )
    texts_in_row: ClassVar[int] = TEXTS
    opens: ClassVar[Opens] = {"graph": lambda path: _read(str(path))}
    fields: Mapping[str, Field] = {
        "values.relation": Field("[n]", "int", "number of the relation of a triple")
    }

    def __init__(
        self,
        *,
        vocab: Vocab,
        max_length: int,
        graph: str,
        span: str = "entity",
        shuffled: Whole | None = None,
        random: Whole | None = None,
    ) -> None:
        self.shuffled, self.random = shuffled, random
        self.vocab, self.max_length, self.graph, self.span = vocab, max_length, graph, span
        self.kinds = find_wraps(vocab, vocab.single)
        if len(self.kinds) != 1 or not self.kinds[0].before:
            what = "a tokenizer whose template of a text is like cls A sep"
            raise ConfigError("format", "triples", what)
        least = TEXTS * (self.kinds[0].size + 1)
        if max_length < least:
            allowed = f"at least {least}: {TEXTS} texts of one token"
            fix = f"format.max_length={least}"
            raise ConfigError("format.max_length", max_length, allowed, fix=fix)

    @property
    def source_hash(self) -> str:
        return _read(self.graph).fingerprint

    def plan(self, shards: Shards, *, seed: int, epoch: int, input_length: int) -> Plan:
        graph = _read(self.graph)
        triples = graph.splits["train"]
        start, size, described = self.find_texts(shards, len(graph.entities))
        rows = np.flatnonzero((size[triples[:, [HEAD, TAIL]]] > 0).all(1))
        if self.shuffled is not None:
            other = np.random.default_rng(self.shuffled).permutation(described)
            start[described], size[described] = start[other], size[other]
        if self.random is not None:
            triples = triples.copy()
            picks = np.random.default_rng(self.random).integers(len(described), size=len(rows))
            triples[rows, TAIL] = described[picks]
        drawn = _draw_others(graph, triples, rows, described, Draws(seed, epoch))
        shown = np.concatenate([triples[rows][:, [HEAD, TAIL]], drawn], axis=1).ravel()
        room = input_length // TEXTS - self.kinds[0].size
        plan = plan_pieces(
            shards=shards,
            width=input_length,
            row_start=np.arange(len(rows) + 1) * TEXTS,
            start=start[shown],
            size=np.minimum(size[shown], room),
            kind=np.zeros(len(shown), np.int8),
            kinds=self.kinds,
        )
        plan.arrays["relation"] = triples[rows, RELATION]
        # texts occur in many triples: what is cut is counted once, and nothing is in no row
        whole = int(size[size > 0].sum())
        cut = int(np.maximum(size - room, 0).sum())
        plan.report.update(repeated=plan.report["laid_out"] - (whole - cut), cut=cut)
        plan.report.update(
            dropped=len(shards.ids) - whole, triples_left_out=len(triples) - len(rows)
        )
        return plan

    def find_texts(
        self, shards: Shards, entities: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """([E] first token, [E] number of tokens, the entities that have some) of descriptions."""
        file = getattr(shards, "given", None)
        if self.span not in shards.spans:
            what = f"these tokens have no spans.{self.span}, which say whose description a text is"
            fix = f"{DESCRIPTIONS}, tokenized with data.spans=[{self.span}]"
            raise DataError(what, file=file, fix=fix)
        marks, edges = shards.spans[self.span], document_edges(shards)
        entity = np.asarray(marks.id)
        if len(entity) and entity.max() >= entities:
            what = f"a mark with the id {entity.max()}, but {self.graph} has {entities:,} entities"
            fix = f"{DESCRIPTIONS} of this graph, or format.graph=<the graph of these>"
            raise DataError(what, file=file, fix=fix)
        document = np.searchsorted(edges, np.asarray(marks.start), side="right") - 1
        # if a document has several marks, the first counts
        document, first = np.unique(document, return_index=True)
        start, size = np.zeros(entities, np.int64), np.zeros(entities, np.int64)
        start[entity[first]], size[entity[first]] = edges[document], np.diff(edges)[document]
        return start, size, np.flatnonzero(size)

    def check(self, shards: Shards, plan: Plan) -> None:
        if not plan.rows:
            what = f"no triple of {self.graph} has descriptions of both of its entities here"
            fix = (
                f"{DESCRIPTIONS} of this graph, or format.graph=<the graph of these>;"
                " where it is of held-out entities, a larger data.valid_share of them"
            )
            raise DataError(what, file=getattr(shards, "given", None), fix=fix)

    def describe_left_out(self, shards: Shards, plan: Plan) -> str:
        if left := plan.report["triples_left_out"]:
            return f"{left:,} triples have no description of head or tail here"
        return ""

    def rows(self, shards: Shards, plan: Plan, index: np.ndarray, wanted: Wanted = None) -> Rows:
        layout = lay_rows(shards, plan, index, self.kinds, self.vocab, wanted)
        text = layout.isolate(layout.piece, layout.begin)
        # padding may be longer than a text: it needs no position beyond those of one
        position = np.where(text.tracks["document"] < 0, 0, text.tracks["position"])
        return Rows(
            key=index,
            seqs={"text": text.with_tracks(position=position)},
            anchors=np.stack(np.divmod(layout.begin[layout.piece >= 0], plan.width), 1),
            values={"relation": plan.arrays["relation"][index]},
        )


def _draw_others(
    graph: KnowledgeGraph,
    triples: np.ndarray,
    rows: np.ndarray,
    described: np.ndarray,
    draws: Draws,
) -> np.ndarray:
    """int64 [n, 2] `described` entities that replace the head and the tail of `triples[rows]`. None
    makes one of the triples, unless `TRIES` in a row do.
    """
    drawn = []
    sizes = {"entities": len(graph.entities), "relations": len(graph.relations)}
    for side in SIDES if len(rows) else ():
        answers, own = Answers(triples, side, **sizes), draws.child(side)
        known = triples[rows, HEAD if side == "tail" else TAIL]
        found = np.zeros(len(rows), np.int64)
        wrong = np.ones(len(rows), bool)
        for attempt in range(TRIES):
            picks = own.integers(rows, str(attempt), len(described), 1)[:, 0]
            found = np.where(wrong, described[picks], found)
            wrong = answers.hold(known, triples[rows, RELATION], found)
            if not wrong.any():
                break
        drawn.append(found)
    return np.stack(drawn, axis=1) if drawn else np.empty((0, 2), np.int64)
