"""Writes a knowledge directory and counts how much of the text it covers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from plmctl.knowledge.directory import (
    ENTITIES,
    FILE,
    RELATIONS,
    TEXT,
    TRIPLES,
    VERSION,
    Entity,
    write_entity,
)
from plmctl.knowledge.tables import Problems, read_table

LARGEST = 50  # types that the record names


def write_entities(folder: Path, entities: Iterable[Entity]) -> tuple[list[tuple[str, ...]], Any]:
    """Write entities.jsonl; the types of each entity, and counts."""
    types: list[tuple[str, ...]] = []
    known: dict[tuple[str, ...], tuple[str, ...]] = {}
    counted: Counter[str] = Counter()
    with (folder / ENTITIES).open("w", encoding="utf-8") as stream:
        for entity in entities:
            stream.write(write_entity(entity))
            types.append(known.setdefault(entity.types, entity.types))
            counted["entities"] += 1
            counted["aliases"] += len(entity.aliases)
            counted["with a description"] += bool(entity.text)
            counted["without a name"] += not entity.name
            counted["without a type"] += not entity.types
    members = Counter(kind for each in types for kind in each)
    counted["types"] = len(members)
    counted["types with one member"] = sum(count == 1 for count in members.values())
    return types, dict(counted)


def write_rows(
    folder: Path, rows: Iterable[Mapping[str, Any]], types: list[tuple[str, ...]]
) -> dict[str, Any]:
    """Write text.jsonl; how much of it is covered by mentions, and of which types they are."""
    counted: Counter[str] = Counter()
    by_type: Counter[str] = Counter()
    linked: set[int] = set()
    with (folder / TEXT).open("w", encoding="utf-8") as stream:
        for row in rows:
            marks = row["entity"]
            counted.update(row.get("counted", {}))
            counted["documents"] += 1
            counted["documents with a mention"] += bool(marks)
            counted["characters"] += len(row["text"])
            counted["mentions"] += len(marks)
            for start, end, identity in marks:
                counted["characters in mentions"] += end - start
                counted["mentions without a type"] += not types[identity]
                by_type.update(types[identity])
                linked.add(identity)
            line = {
                key: [dict(zip(("start", "end", "id"), mark, strict=True)) for mark in value]
                if isinstance(value, list)
                else value
                for key, value in row.items()
                if key != "counted"
            }
            stream.write(json.dumps(line, ensure_ascii=False) + "\n")
    counted["entities mentioned"] = len(linked)
    return {**counted, "mentions by type": dict(by_type.most_common(LARGEST))}


def write_triples(
    folder: Path, file: Path, names: Mapping[str, str], problems: Problems
) -> dict[str, int]:
    """Copy the triples of known entities; the others are counted.

    Args:
        folder: of the directory.
        file: head, relation, tail a line, with tabs between.
        names: {name in the file: name of an entity}.
        problems: counts what is left out.
    """
    relations: dict[str, None] = {}
    count = 0
    with (folder / TRIPLES).open("w", encoding="utf-8") as stream:
        for line, (head, relation, tail, *_) in read_table(file, 3, "head, relation, tail"):
            if head in names and tail in names:
                stream.write(f"{names[head]}\t{relation}\t{names[tail]}\n")
                relations[relation] = None
                count += 1
            else:
                unknown = tail if head in names else head
                problems.note("triples of unknown entities", f"{file}:{line} ({unknown})")
    (folder / RELATIONS).write_text("".join(f"{name}\n" for name in relations), encoding="utf-8")
    return {"triples": count, "relations": len(relations)}


def write_about(folder: Path, about: Mapping[str, Any]) -> None:
    """Write knowledge.json."""
    text = json.dumps({"version": VERSION, **about}, indent=1, ensure_ascii=False)
    (folder / FILE).write_text(text + "\n", encoding="utf-8")
