"""Small knowledge directories for tests."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

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
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    (folder / "knowledge.json").write_text(json.dumps({"version": 1}))
    if triples := list(triples):
        (folder / "triples.tsv").write_text("".join("\t".join(each) + "\n" for each in triples))
        (folder / "relations.txt").write_text(
            "".join(f"{each}\n" for each in dict.fromkeys(relation for _, relation, _ in triples))
        )
    return folder


def link_words(folder: Path, text: str) -> Path:
    """A knowledge directory of a text with a blank line between documents: every fifth word is a
    mention of an entity, 0 to 29, of one of three types; each is `before` the next one and `above`
    two others.
    """
    rows, names = [], [Counter[str]() for _ in range(30)]
    for document in text.split("\n\n"):
        marks = []
        for word in [*re.finditer(r"\w+", document)][::5]:
            entity = crc32(word[0].encode()) % 30
            names[entity][word[0]] += 1
            marks.append({"start": word.start(), "end": word.end(), "id": entity})
        rows.append({"text": document, "entity": marks})
    entities = [
        {"name": f"entity {n}", "aliases": each.most_common(), "types": [f"kind {n % 3}"]}
        for n, each in enumerate(names)
    ]
    triples = [
        (f"entity {n}", relation, f"entity {(n + step) % 30}")
        for n in range(30)
        for relation, step in (("before", 1), ("above", 5), ("above", 7))
    ]
    return write_knowledge(folder, entities, rows=rows, triples=triples)
