"""Small knowledge directories for tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ENTITIES = (
    {"name": "Paris", "aliases": [["Paris", 9], ["City of Light", 2]], "types": ["city"]},
    {"name": "London", "aliases": [["London", 7]], "types": ["city"], "text": "A capital."},
    {"name": "Rome", "aliases": [["Rome", 5], ["Roma", 1]], "types": ["city"]},
    {"name": "France", "aliases": [["France", 8]], "types": ["country"]},
    {"name": "Italy", "aliases": [["Italy", 4]], "types": ["country"]},
    {"name": "Seine", "aliases": [["Seine", 3]], "types": ["river"]},
    {"name": "Ada", "aliases": [["Ada", 1]], "types": []},
)


def write_knowledge(
    folder: Path,
    entities: Iterable[Mapping[str, Any]] = ENTITIES,
    *,
    rows: Iterable[Mapping[str, Any]] = (),
    triples: Iterable[tuple[str, str, str]] = (),
) -> Path:
    """Write a knowledge directory by hand."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in (("entities.jsonl", entities), ("text.jsonl", rows)):
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "knowledge.json").write_text(json.dumps({"version": 1}))
    if triples := list(triples):
        (folder / "triples.tsv").write_text("".join("\t".join(each) + "\n" for each in triples))
        (folder / "relations.txt").write_text(
            "".join(f"{each}\n" for each in dict.fromkeys(relation for _, relation, _ in triples))
        )
    return folder
