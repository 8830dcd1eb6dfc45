"""`plmctl data triples`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from plmctl.config.build import MISSING
from plmctl.config.command import About, Command, Result
from plmctl.config.schema import GraphData
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import remark
from plmctl.core.values import Count, Whole
from plmctl.storage.resumable import new_folder, write_folder

NEXT = {
    "descriptions": "plmctl tokenize {descriptions} data.spans=[entity] out=<folder>",
    "comet": "plmctl finetune task=comet {files} checkpoint=<run>",
    "kg_bert": "plmctl finetune task=pair_classification {files} checkpoint=<run>",
    "relations": "plmctl finetune task=pair_classification {files} checkpoint=<run>",
}


@dataclass(frozen=True)
class WriteTriples(Command):
    """Write a knowledge graph as text: for KEPLER, COMET or KG-BERT.

    kind=descriptions writes a text of each entity; comet: head, relation and the tail to write;
    kg_bert: true and false triples; relations: the relation of two entities.
    """

    about = About(
        "data triples",
        place=37,
        examples=(
            "plmctl data triples kind=descriptions out=entities",
            "plmctl data triples kind=kg_bert negatives=2 out=true-or-false",
        ),
        bare="data.path",
        metavar="PATH",
        options="json print_config config_dir plugin",
    )

    data: GraphData = GraphData()
    # one text for each entity; head and relation with the tail as target; true and false triples;
    # head and tail with the relation as label
    kind: Literal["descriptions", "comet", "kg_bert", "relations"] = "descriptions"
    negatives: Count = 1  # number of false triples for each true one, for kg_bert
    out: str = MISSING  # a new folder
    seed: Whole = 0  # seed of the wrong triples

    def perform(self) -> Result:
        """Write `out` and say what is in it."""
        from plmctl.inputs.graphs import describe_graph, open_graph
        from plmctl.knowledge.triple_texts import TripleTexts

        out, graph = new_folder(self.out), open_graph(self.data)
        files = TripleTexts(graph).cells_of(self.kind, negatives=self.negatives, seed=self.seed)
        job: dict[str, Any] = {"graph": graph.fingerprint, "kind": self.kind}
        job |= {"negatives": self.negatives, "seed": self.seed} if self.kind == "kg_bert" else {}
        with write_folder(out, job) as made:
            for name, rows in files.items():
                made.write_rows(name, rows, _spell, what="texts")
        counts = {name: len(rows) for name, rows in files.items()}
        if not self.provenance.json:
            for line in (*describe_graph(graph), *graph.remarks):
                remark(line)
        found = {"out": self.out, **counts, "remarks": list(graph.remarks)}
        return self.report(found, self._describe(counts))

    def _describe(self, counts: Mapping[str, int]) -> Iterator[str]:
        listed = ", ".join(f"{count:,} in {name}" for name, count in counts.items())
        yield f"{self.out}: {listed}"
        following = NEXT[self.kind].format(
            files=spell_setting("task.path", self.out),
            descriptions=spell_setting("data.path", f"{self.out}/descriptions.jsonl"),
        )
        yield f"next: {following}"


def _spell(rows: Sequence[Mapping[str, Any]], first: int) -> Iterator[str]:
    return (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
