"""Triples as text: descriptions of entities (KEPLER), sources and targets (COMET), pairs of texts
with a label (KG-BERT).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from plmctl.core.draws import Draws
from plmctl.knowledge.graph import HEAD, RELATION, SIDES, TAIL, Answers, KnowledgeGraph

Kind = Literal["descriptions", "comet", "kg_bert", "relations"]
Row = Mapping[str, Any]
TRIES = 20  # how often an entity is drawn again that makes a true triple
FILES = {"train": "train.jsonl", "valid": "dev.jsonl", "test": "test.jsonl"}  # as tasks read them


class TripleTexts:
    """The texts of a graph.

    An entity without a description is called by its name, in which `_` stands for a space; so is a
    relation, in which `/` and `.` do, too.

    Args:
        graph: names, descriptions and triples.
    """

    def __init__(self, graph: KnowledgeGraph) -> None:
        self.graph = graph
        self.entities = [
            graph.texts.get(number) or name.replace("_", " ").strip()
            for number, name in enumerate(graph.entities)
        ]
        spaces = str.maketrans("_/.", "   ")
        self.relations = [
            graph.relation_texts.get(number) or " ".join(name.translate(spaces).split())
            for number, name in enumerate(graph.relations)
        ]

    def descriptions(self) -> Iterator[Row]:
        """{"text", "entity": one mark} of each entity, in order: the mark is on the first word, and
        its id is the number of the entity.
        """
        for number, text in enumerate(self.entities):
            words = text.split()
            end = len(words[0]) if words else 0
            marks = [{"start": 0, "end": end, "id": number}] if end else []
            yield {"text": text.strip(), "entity": marks}

    def comet(self, split: str) -> Iterator[Row]:
        """{"source": head and relation, "target": tail} of each triple (Bosselut et al., 2019,
        arXiv:1906.05317, sec. 3.1).
        """
        for head, relation, tail in self.graph.splits[split].tolist():
            source = f"{self.entities[head]} {self.relations[relation]}"
            yield {"source": source, "target": self.entities[tail]}

    def kg_bert(self, split: str, *, negatives: int = 1, seed: int = 0) -> Iterator[Row]:
        """{"text": head, "text2": relation and tail, "label": "true" or "false"}: every triple,
        each followed by `negatives` false ones, in which head or tail is another entity (Yao et
        al., 2019, arXiv:1909.03193, sec. 3.2, KG-BERT(a)).

        Differs: relation and tail are one text (paper: three, with the segments A, B, A).
        """
        triples = self.graph.splits[split]
        false = self.corrupt(triples, negatives=negatives, seed=seed)
        for right, wrong in zip(triples.tolist(), false.tolist(), strict=True):
            for (head, relation, tail), label in [(right, "true"), *((x, "false") for x in wrong)]:
                yield {**self.pair(head, relation, tail), "label": label}

    def pair(self, head: int, relation: int, tail: int) -> dict[str, str]:
        """{"text": head, "text2": relation and tail} of a triple."""
        second = f"{self.relations[relation]} {self.entities[tail]}"
        return {"text": self.entities[head], "text2": second}

    def classify_relations(self, split: str) -> Iterator[Row]:
        """{"text": head, "text2": tail, "label": relation} of each triple (Yao et al., 2019, sec.
        3.3, KG-BERT(b)).
        """
        for head, relation, tail in self.graph.splits[split].tolist():
            label = self.graph.relations[relation]
            yield {"text": self.entities[head], "text2": self.entities[tail], "label": label}

    def cells_of(self, kind: Kind, *, negatives: int, seed: int) -> dict[str, Sequence[Row]]:
        """{file: its rows} of one kind of text."""
        if kind == "descriptions":
            return {"descriptions.jsonl": list(self.descriptions())}
        writers: dict[str, Callable[[str], Iterator[Row]]] = {
            "comet": self.comet,
            "kg_bert": lambda split: self.kg_bert(split, negatives=negatives, seed=seed),
            "relations": self.classify_relations,
        }
        splits = [split for split in FILES if split in self.graph.splits]
        return {FILES[split]: list(writers[kind](split)) for split in splits}

    def corrupt(self, triples: np.ndarray, *, negatives: int, seed: int) -> np.ndarray:
        """int64 [n, negatives, 3] triples with another head or tail, none of which is known in any
        split.
        """
        graph, draws, key = self.graph, Draws(seed, 0), np.arange(len(triples))
        count = len(graph.entities)
        false = np.repeat(triples[:, None], negatives, axis=1)
        of_tail = draws.integers(key, "side", 2, negatives).astype(bool)
        sizes = {"entities": count, "relations": len(graph.relations)}
        for side in SIDES:
            answers = Answers(graph.triples, side, **sizes)
            known, asked = (HEAD, TAIL) if side == "tail" else (TAIL, HEAD)
            drawn = draws.integers(key, f"{side} 0", count, negatives)
            for attempt in range(1, TRIES):
                wrong = answers.hold(triples[:, None, known], triples[:, None, RELATION], drawn)
                if not wrong.any():
                    break
                again = draws.integers(key, f"{side} {attempt}", count, negatives)
                drawn = np.where(wrong, again, drawn)
            chosen = of_tail == (side == "tail")
            false[..., asked] = np.where(chosen, drawn, false[..., asked])
        return false
