"""Writes a knowledge directory and counts how much of the text it covers."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from plmctl.knowledge.directory import (
    ENTITIES,
    FILE,
    MENTIONS,
    RELATIONS,
    TEXT,
    TRIPLES,
    VERSION,
    Entity,
    write_entity,
)
from plmctl.knowledge.tables import Problems, read_table
from plmctl.storage.atomic import write_text
from plmctl.storage.gate import admit, open_file
from plmctl.storage.journal import Journal

LARGEST = 50  # types that the record names
_COMMIT = 10.0  # seconds of work that a kill may cost


def write_entities(folder: Path, entities: Iterable[Entity]) -> tuple[list[tuple[str, ...]], Any]:
    """Write entities.jsonl; the types of each entity, and counts."""
    types: list[tuple[str, ...]] = []
    known: dict[tuple[str, ...], tuple[str, ...]] = {}
    counted: Counter[str] = Counter()
    with open_file(folder / ENTITIES, "w") as stream:
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


class Coverage:
    """How much of the documents is covered by mentions, and of which types these are.

    Args:
        types: The types of each entity.
        scratch: The folder of intermediate results, for a start that continues.
        state: The state of an earlier start.
    """

    def __init__(
        self, types: list[tuple[str, ...]], scratch: Path, state: Mapping[str, Any]
    ) -> None:
        self._types, self._file = types, scratch / "mentions.npy"
        self.counted, self.by_type = Counter[str](), Counter[str]()
        self.mentions = np.zeros(len(types), np.int64)  # mentions of each entity
        if state:
            self.counted.update(state["counted"])
            self.by_type.update(state["by_type"])
            self.mentions = np.load(self._file, allow_pickle=False)

    def add(self, row: Mapping[str, Any]) -> None:
        """Count a document."""
        marks, counted = row["entity"], self.counted
        counted.update(row.get("counted", {}))
        counted["documents"] += 1
        counted["documents with a mention"] += bool(marks)
        counted["characters"] += len(row["text"])
        counted["mentions"] += len(marks)
        others = (name for name, each in row.items() if isinstance(each, list) and name != "entity")
        counted.update({f"marks of {name}": len(row[name]) for name in others})
        for start, end, identity in marks:
            counted["characters in mentions"] += end - start
            counted["mentions without a type"] += not self._types[identity]
            self.by_type.update(self._types[identity])
            self.mentions[identity] += 1

    def state(self) -> dict[str, Any]:
        """Save what is known; the state for `__init__`, as JSON."""
        np.save(admit(self._file), self.mentions)
        return {"counted": dict(self.counted), "by_type": dict(self.by_type)}

    def result(self) -> dict[str, Any]:
        """The content of knowledge.json."""
        mentioned = {"entities mentioned": int((self.mentions > 0).sum())}
        by_type = dict(self.by_type.most_common(LARGEST))
        return {**self.counted, **mentioned, "mentions by type": by_type}


def write_rows(
    journal: Journal, rows: Callable[[int], Iterable[Mapping[str, Any]]], types: list[Any]
) -> dict[str, Any]:
    """Write text.jsonl, or go on where an earlier start was stopped; then mentions.txt.

    Args:
        journal: The journal of the directory.
        rows: the documents behind the first so many; those without text are left out.
        types: The types of each entity.

    Returns:
        How much of the documents is covered.
    """
    state = journal.state.get("rows", {"done": 0, "bytes": 0, "coverage": {}})
    coverage = Coverage(types, journal.scratch, state["coverage"])
    done, last = state["done"], time.monotonic()
    place = journal.folder / TEXT
    with open_file(place, "r+b" if place.exists() else "w+b") as stream:
        stream.truncate(state["bytes"])
        stream.seek(state["bytes"])
        for row in rows(done):
            done += 1
            if row["text"]:
                coverage.add(row)
                stream.write(_spell(row).encode())
            if time.monotonic() - last > _COMMIT:
                stream.flush()
                state = {"done": done, "bytes": stream.tell(), "coverage": coverage.state()}
                journal.commit(rows=state)
                last = time.monotonic()
    counts = "".join(f"{count}\n" for count in coverage.mentions)
    write_text(journal.folder / MENTIONS, counts)
    return coverage.result()


def _spell(row: Mapping[str, Any]) -> str:
    """The line of a document in text.jsonl."""
    line = {
        key: [dict(zip(("start", "end", "id"), mark, strict=True)) for mark in value]
        if isinstance(value, list)
        else value
        for key, value in row.items()
        if key != "counted"
    }
    return json.dumps(line, ensure_ascii=False) + "\n"


def write_triples(
    folder: Path, file: Path, names: Mapping[str, str], problems: Problems
) -> dict[str, int]:
    """Copy the triples of known entities; the others are counted.

    Args:
        file: head, relation, tail a line, with tabs between.
        names: {name in the file: name of an entity}.
        problems: counts what is left out.
    """
    relations: dict[str, None] = {}
    count = 0
    with open_file(folder / TRIPLES, "w") as stream:
        for line, (head, relation, tail, *_) in read_table(file, ("head", "relation", "tail")):
            if head in names and tail in names:
                stream.write(f"{names[head]}\t{relation}\t{names[tail]}\n")
                relations[relation] = None
                count += 1
            else:
                unknown = tail if head in names else head
                problems.note("triple", "with an unknown entity", f"{file}:{line} ({unknown})")
    write_text(folder / RELATIONS, "".join(f"{name}\n" for name in relations))
    return {"triples": count, "relations": len(relations)}


def write_about(folder: Path, about: Mapping[str, Any]) -> None:
    """Write knowledge.json."""
    text = json.dumps({"version": VERSION, **about}, indent=1, ensure_ascii=False)
    write_text(folder / FILE, text + "\n")
