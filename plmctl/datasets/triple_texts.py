"""`plmctl data triples`: a knowledge graph as text, for pretraining or for tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from plmctl.config.schema import WriteTriples
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import remark, tell
from plmctl.inputs.graphs import describe_graph, open_graph
from plmctl.knowledge.triple_texts import Row, TripleTexts
from plmctl.storage.resumable import new_folder, write_folder

NEXT = {
    "descriptions": "plmctl tokenize {descriptions} data.spans=[entity] out=<folder>",
    "comet": "plmctl finetune task=comet {files} checkpoint=<run>",
    "kg_bert": "plmctl finetune task=pair_classification {files} checkpoint=<run>",
    "relations": "plmctl finetune task=pair_classification {files} checkpoint=<run>",
}


def write_triples(spec: WriteTriples) -> int:
    """Write `out` and say what is in it."""
    out, graph = new_folder(spec.out), open_graph(spec.data)
    files = TripleTexts(graph).cells_of(spec.kind, negatives=spec.negatives, seed=spec.seed)
    job: dict[str, Any] = {"graph": graph.fingerprint, "kind": spec.kind}
    job |= {"negatives": spec.negatives, "seed": spec.seed} if spec.kind == "kg_bert" else {}
    (first, rows), *others = files.items()
    write_folder(
        out,
        first,
        job,
        rows,
        of=lambda some, _: _spell(some),
        others={name: "".join(_spell(rows)) for name, rows in others},
        state={},
        what="texts",
    )
    counts = {name: len(rows) for name, rows in files.items()}
    if spec.provenance.json:
        tell(json.dumps({"out": spec.out, **counts, "remarks": list(graph.remarks)}))
        return 0
    for line in (*describe_graph(graph), *graph.remarks):
        remark(line)
    following = NEXT[spec.kind].format(
        files=spell_setting("task.path", spec.out),
        descriptions=spell_setting("data.path", f"{spec.out}/descriptions.jsonl"),
    )
    listed = ", ".join(f"{count:,} in {name}" for name, count in counts.items())
    tell(f"{spec.out}: {listed}\nnext: {following}")
    return 0


def _spell(rows: Sequence[Row]) -> Iterator[str]:
    return (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
