"""Links between entities, predicted from their descriptions (eval only; Wang et al., 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from plmctl.config.build import plain
from plmctl.core.batch import Rows
from plmctl.core.collate import collate
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.parts import part_of
from plmctl.core.values import Count
from plmctl.data.formats.pieces import lay_rows, plan_pieces
from plmctl.data.formats.triples import Triples
from plmctl.data.shards import Shards, is_tokens
from plmctl.graph.ranks import rank
from plmctl.graph.scores.transe import TransE
from plmctl.graph.tables import GraphTables
from plmctl.knowledge.graph import HEAD, RELATION, TAIL, KnowledgeGraph
from plmctl.knowledge.triples import read_graph
from plmctl.models.base import Model
from plmctl.probes.base import Opened, Probe
from plmctl.text.vocab import Vocab
from plmctl.training.checkpoint import read
from plmctl.use.graph_evaluation import SPLITS, remark_on_few
from plmctl.use.predict import ScoreTable


class Described(NamedTuple):
    """Entities with descriptions: their vectors, and the triples between them."""

    vectors: np.ndarray  # float32 [n, W]
    triples: np.ndarray  # int64 [k, 3], entities by their rows in `vectors`


@part_of("probe")
@dataclass(frozen=True, kw_only=True)
class DescribedLinks(Probe):
    """Filtered ranks of heads and tails among all described entities, by -||h + r - t||. The
    vectors h and t are the states of the first token of descriptions.

    The entities of held-out documents were not trained on: the inductive setting (Wang et al.,
    2021, arXiv:1911.06136, sec. 5.2).

    Args:
        graph: The graph, as `plmctl graph data.path=` reads it.
        max_length: tokens of a description, with its special tokens.
        span: the name of the marks that say whose description a text is.
        relations: `trained`: the table of the objective `kepler`. `fitted`: the mean of t - h over
            the triples of the training documents, which any encoder has: a control. `auto`: trained
            where there is one.
    """

    graph: str
    max_length: Count = 32
    span: str = "entity"
    relations: Literal["auto", "trained", "fitted"] = "auto"

    def describe(
        self, model: Model, shards: Shards, vocab: Vocab, *, batch_size: int, device: torch.device
    ) -> Described:
        """Encode the descriptions of a split, and take the triples of the graph between them."""
        layout = Triples(
            vocab=vocab, max_length=4 * self.max_length, graph=self.graph, span=self.span
        )
        graph = read_graph(self.graph, setting="task.graph")
        start, size, entities = layout.find_texts(shards, len(graph.entities))
        plan = plan_pieces(
            shards=shards,
            width=self.max_length,
            row_start=np.arange(len(entities) + 1),
            start=start[entities],
            size=np.minimum(size[entities], self.max_length - layout.kinds[0].size),
            kind=np.zeros(len(entities), np.int8),
            kinds=layout.kinds,
        )
        vectors = []
        for at in range(0, len(entities), batch_size):
            index = np.arange(at, min(at + batch_size, len(entities)))
            seq = lay_rows(shards, plan, index, layout.kinds, vocab, frozenset()).seq
            batch = collate(Rows(key=index, seqs={"text": seq}), {}).to(device)
            vectors.append(model(batch).last[:, 0].float().cpu().numpy())
        place = np.full(len(graph.entities), -1)
        place[entities] = np.arange(len(entities))
        triples = graph.splits["train"].copy()
        triples[:, [HEAD, TAIL]] = place[triples[:, [HEAD, TAIL]]]
        return Described(np.concatenate(vectors), triples[(triples >= 0).all(1)])

    def fit_relations(self, train: Described) -> np.ndarray:
        """float32 [relations, W] the mean of t - h of each relation; that of all, where a relation
        has no triple.
        """
        relations = len(read_graph(self.graph).relations)
        head, relation, tail = train.triples.T
        differences = train.vectors[tail] - train.vectors[head]
        if not len(differences):
            raise DataError("no training triple has descriptions", fix="task.relations=trained")
        sums = np.zeros((relations, train.vectors.shape[1]), np.float32)
        np.add.at(sums, relation, differences)
        count = np.bincount(relation, minlength=relations)[:, None]
        return np.where(count, sums / np.maximum(count, 1), differences.mean(0))

    def score(self, found: Described, relations: Tensor, *, batch_size: int) -> dict[str, float]:
        """Ranks of the triples between described entities, with those of chance."""
        entities, width = found.vectors.shape
        names = tuple(map(str, range(entities)))
        graph = KnowledgeGraph(names, read_graph(self.graph).relations, {"train": found.triples})
        tables = GraphTables(
            TransE(norm=2, unit_entities=False),
            entities=entities,
            relations=len(relations),
            width=width,
            reciprocal=False,
        )
        with torch.no_grad():
            tables.entity.copy_(torch.from_numpy(found.vectors))
            tables.relation.copy_(relations)
        if not len(found.triples):
            what = f"no triple of {self.graph} is between entities that are described here"
            raise DataError(what, fix="task.graph=<the graph of the descriptions>")
        if (largest := int(found.triples[:, RELATION].max())) >= len(relations):
            what = f"relation {largest}, but the model knows {len(relations)}"
            raise DataError(what, fix="task.graph=<the graph of the run>, or task.relations=fitted")
        scores = rank(tables, found.triples, graph, batch_size=batch_size).summarize()
        chance = float((1 / np.arange(1, entities + 1)).mean())
        return {**scores, "chance/mrr": chance, "chance/hits@10": min(1.0, 10 / entities)}

    def measure(self, opened: Opened) -> ScoreTable:
        """The ranks of one split of a token directory of descriptions."""
        loaded, precision = opened.loaded, opened.precision
        path, split = plain(opened.data.path), SPLITS.get(opened.split, opened.split)
        if not isinstance(path, str) or not is_tokens(path):
            allowed = "the token directory of descriptions (plmctl data triples, plmctl tokenize)"
            raise ConfigError("data.path", path, allowed, fix="data.path=<tokens of descriptions>")
        if split not in ("train", "valid"):
            allowed = "valid (held-out descriptions) or train"
            raise ConfigError("split", opened.split, allowed, fix="split=valid")

        def describe(name: str) -> Any:
            shards = Shards.open(path, name, tokenizer=loaded.tokenizer)
            with torch.no_grad(), precision.autocast():
                return self.describe(
                    loaded.model,
                    shards,
                    loaded.vocab,
                    batch_size=opened.batch_size,
                    device=precision.device,
                )

        found = describe(split)
        trained = (
            None if loaded.source.published else read(loaded.source.folder).objective.get(TABLE)
        )
        if self.relations == "trained" and trained is None:
            allowed = "fitted: this checkpoint has no objective kepler"
            raise ConfigError("task.relations", "trained", allowed, fix="task.relations=fitted")
        fitted = trained is None or self.relations == "fitted"
        relations = torch.from_numpy(self.fit_relations(describe("train"))) if fitted else trained
        assert relations is not None
        scores = self.score(found, relations, batch_size=opened.batch_size)
        triples = len(np.unique(found.triples, axis=0))
        extra = {
            "checkpoint": str(loaded.source.folder),
            "entities": len(found.vectors),
            "triples": triples,
            "relations": "fitted" if fitted else "trained",
            "ties": "averaged",
            **remark_on_few(triples),
        }
        return ScoreTable("link prediction", {split: scores}, extra)


TABLE = "parts.kepler.relation.weight"  # in what only training needs
