"""Knowledge directories: text with marked mentions, and the entities that the ids of marks mean.

    text.jsonl       {"title": ..., "text": ..., "entity": [{"start": 3, "end": 9, "id": 17}]}
    entities.jsonl   line n, from 0, is entity n: {"name": ..., "aliases": [["USA", 12]],
                     "types": [...], "text": ...}
    mentions.txt     line n, from 0: how often the text mentions entity n
    relations.txt    one name a line; triples.tsv: head, relation, tail by name
    knowledge.json   version, source, licence, settings, counts, coverage

`plmctl data link` writes one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from plmctl.core.errors import AbsentData, ConfigError, DataError, nearest
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import counted
from plmctl.storage.reading import parse_json_at, read_json
from plmctl.storage.resumable import hash_file

FILE, VERSION = "knowledge.json", 1
TEXT, ENTITIES, RELATIONS, TRIPLES = "text.jsonl", "entities.jsonl", "relations.txt", "triples.tsv"
MENTIONS = "mentions.txt"
MARKED = "entity"  # the field of the text whose ids are those of entities
_SHOWN = '{"name": "Paris", "aliases": [["Paris", 12]], "types": ["city"], "text": ""}'
_MAKE = "plmctl data link <dump> out=<dir> writes such a directory"


class Entity(NamedTuple):
    """The facts about one entity."""

    name: str
    aliases: tuple[tuple[str, int], ...]  # (text, how often it was seen), most frequent first
    types: tuple[str, ...]
    text: str  # its description; "" without one


def confirm(folder: str | Path | None) -> None:
    """Raise AbsentData for a folder that is no knowledge directory; None names none."""
    place = None if folder is None else Path(folder).expanduser()
    if place and not (place / FILE).is_file():
        what = f"not a knowledge directory (no {FILE})"
        raise AbsentData(what, file=place, fix=_MAKE)


class KnowledgeDirectory:
    """The entities of a knowledge directory, by their ids.

    Names and types are in memory; aliases and descriptions are read on demand. An entity without a
    name takes its first alias; one with neither is called "", and both are counted in `problems`.

    Args:
        folder: the directory.
        shuffled: the control: every id means another entity, by a permutation with this seed;
            nothing else changes. None: as the files say.
    """

    def __init__(self, folder: str | Path, *, shuffled: int | None = None) -> None:
        confirm(folder)
        self.folder = Path(folder).expanduser()
        file = self.folder / FILE
        self.about: dict[str, Any] = read_json(file)
        if self.about.get("version") != VERSION:
            what = f"version {self.about.get('version')!r} is unknown to this plmctl"
            raise DataError(what, file=file, fix="update plmctl, or write it again")
        self.problems: Counter[str] = Counter()
        self.places: dict[str, int] = {}  # first line of each problem
        self._read_entities()
        self.shuffled = shuffled
        self._order = np.arange(len(self._offsets))
        if shuffled is not None:
            if shuffled < 0:
                raise ConfigError("shuffled", shuffled, "a seed from 0, or null")
            self._order = np.random.default_rng(shuffled).permutation(len(self._offsets))

    def _read_entities(self) -> None:
        """Read names and types of all lines, and where each line begins."""
        file = self.folder / ENTITIES
        self._offsets, self._names = [], list[str]()
        self._types: list[tuple[str, ...]] = []
        known: dict[tuple[str, ...], tuple[str, ...]] = {}  # many entities have the same types
        offset = 0
        try:
            with file.open("rb") as stream:
                for number, line in enumerate(stream, 1):
                    entity = parse_entity(line, file, number)
                    self._offsets.append(offset)
                    offset += len(line)
                    self._names.append(self._name(entity, number))
                    self._types.append(known.setdefault(entity.types, entity.types))
        except OSError as error:
            raise DataError(f"cannot be read ({error.strerror})", file=file, fix=_MAKE) from error
        if not self._offsets:
            raise DataError("it has no entities", file=file, fix=_MAKE)

    def _name(self, entity: Entity, line: int) -> str:
        if entity.name:
            return entity.name
        why = "without a name" if entity.aliases else "with neither name nor alias"
        self.problems[why] += 1
        self.places.setdefault(why, line)
        return entity.aliases[0][0] if entity.aliases else ""

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, identity: int) -> Entity:
        """Read the line of an entity; IndexError for an id that is none."""
        if not 0 <= identity < len(self):
            raise IndexError(f"entity {identity}: there are {len(self)}, from 0")
        line = int(self._order[identity])
        with (self.folder / ENTITIES).open("rb") as stream:
            stream.seek(self._offsets[line])
            found = parse_entity(stream.readline(), self.folder / ENTITIES, line + 1)
        return found._replace(name=self._names[line])

    def __iter__(self) -> Iterator[Entity]:
        """Read all entities, in the order of their ids."""
        if self.shuffled is not None:
            yield from (self[identity] for identity in range(len(self)))
            return
        with (self.folder / ENTITIES).open("rb") as stream:
            for number, line in enumerate(stream, 1):
                entity = parse_entity(line, self.folder / ENTITIES, number)
                yield entity._replace(name=self._names[number - 1])

    @cached_property
    def names(self) -> list[str]:
        """The name of each entity."""
        return [self._names[line] for line in self._order]

    @cached_property
    def types(self) -> list[tuple[str, ...]]:
        """The types of each entity."""
        return [self._types[line] for line in self._order]

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each name; of several with one name, the first."""
        return {name: number for number, name in reversed([*enumerate(self.names)])}

    @cached_property
    def members(self) -> dict[str, np.ndarray]:
        """The entities of each type, as sorted ids."""
        found: dict[str, list[int]] = {}
        for number, types in enumerate(self.types):
            for kind in types:
                found.setdefault(kind, []).append(number)
        return {kind: np.array(found[kind], np.int64) for kind in sorted(found)}

    @cached_property
    def mentions(self) -> np.ndarray:
        """[entities] int64 how often the text mentions each; where no file says it, how often its
        aliases were seen.
        """
        file = self.folder / MENTIONS
        if not file.is_file():
            return np.array([sum(count for _, count in each.aliases) for each in self], np.int64)
        lines = file.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            if not line.isdecimal():
                raise DataError(f"'{line}' is no count", file=file, line=number, fix=_MAKE)
        if len(lines) != len(self):
            what = f"counts of {len(lines):,} entities, and there are {len(self):,}"
            raise DataError(what, file=file, fix=_MAKE)
        # order of ids: a shuffled directory does not change the text
        return np.array(lines, np.int64)

    @cached_property
    def relations(self) -> list[str]:
        """The names of the relations; none without triples."""
        file = self.folder / RELATIONS
        return file.read_text(encoding="utf-8").splitlines() if file.is_file() else []

    @cached_property
    def triples(self) -> np.ndarray:
        """[k, 3] int64: head, relation, tail; those with unknown names are counted in
        `problems`.
        """
        file = self.folder / TRIPLES
        if not file.is_file():
            return np.zeros((0, 3), np.int64)
        relation = {name: number for number, name in enumerate(self.relations)}
        found = []
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                parts = line.rstrip("\n").split("\t")
                if len(parts) != 3:
                    found_columns = counted(len(parts), "column")
                    what = f"{found_columns}, not head, relation, tail with tabs between"
                    raise DataError(what, file=file, line=number)
                ids = self.ids.get(parts[0]), relation.get(parts[1]), self.ids.get(parts[2])
                if None in ids:
                    self.problems["triples of unknown names"] += 1
                    self.places.setdefault("triples of unknown names", number)
                else:
                    found.append(ids)
        return np.array(found, np.int64).reshape(-1, 3)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the entities: marks with the same ids mean the same."""
        return take_fingerprint(self.folder)

    def documents(self) -> Iterator[dict[str, Any]]:
        """Read the rows of text.jsonl.

        Raises:
            DataError: naming the line of a mark outside the text or of an unknown entity.
        """
        file = self.folder / TEXT
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                row = parse_json_at(line, file=file, line=number)
                self._check_marks(row, number)
                yield row

    def _check_marks(self, row: Any, line: int) -> None:
        file = self.folder / TEXT
        if not isinstance(row, dict) or not isinstance(row.get("text"), str):
            raise DataError("no text in a field 'text'", file=file, line=line)
        for number, mark in enumerate(row.get("entity", ())):
            start, end, identity = (mark.get(key, -1) for key in ("start", "end", "id"))
            if not 0 <= start < end <= len(row["text"]):
                what = f"'entity'[{number}]: {start}..{end} lies outside the text"
                raise DataError(f"{what} of {len(row['text'])} characters", file=file, line=line)
            if not 0 <= identity < len(self):
                what = f"'entity'[{number}]: there is no entity {identity}, only {len(self):,}"
                raise DataError(what, file=file, line=line)

    def describe_problems(self) -> list[str]:
        """A line for each kind of entity that is used in part or not at all."""
        files = {"triples of unknown names": TRIPLES}
        return [
            f"{self.folder / files.get(why, ENTITIES)}:{self.places[why]}: {why}"
            + (f", and {count - 1:,} more" if count > 1 else "")
            for why, count in self.problems.items()
        ]


def parse_entity(line: bytes | str, file: Path, number: int) -> Entity:
    """The entity that a line of entities.jsonl writes; DataError naming what is wrong with it."""
    try:
        text = line.decode() if isinstance(line, bytes) else line
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 ({error.reason})", file=file, line=number) from error
    row = parse_json_at(text, file=file, line=number)

    def wrong(what: str) -> DataError:
        return DataError(what, file=file, line=number, fix=_SHOWN)

    if not isinstance(row, dict):
        raise wrong("not an entity: no object with a name")
    for key in row.keys() - Entity._fields:
        known = ", ".join(Entity._fields)
        raise wrong(f"unknown key '{key}'{nearest(key, Entity._fields)}: an entity has {known}")
    name, text = row.get("name") or "", row.get("text") or ""
    if not isinstance(name, str) or not isinstance(text, str):
        raise wrong("'name' and 'text' are texts")
    types, aliases = row.get("types", []), row.get("aliases", [])
    if not isinstance(types, list) or not all(isinstance(kind, str) for kind in types):
        raise wrong("'types' is no list of names")
    if not isinstance(aliases, list) or not all(map(_is_alias, aliases)):
        raise wrong("'aliases' is no list of [text, count]")
    pairs = tuple((alias, count) for alias, count in aliases)
    return Entity(name, pairs, tuple(types), text)


def _is_alias(pair: Any) -> bool:
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and isinstance(pair[0], str)
        and type(pair[1]) is int
    )


def write_entity(entity: Entity) -> str:
    """The line of an entity in entities.jsonl."""
    return json.dumps(entity._asdict(), ensure_ascii=False) + "\n"


def count_entities(folder: Path) -> int:
    """How many entities a knowledge directory has; DataError where the file was cut off."""
    file = folder / ENTITIES
    try:
        state = file.stat()
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", file=file, fix=_MAKE) from error
    return _count_entities(folder, state.st_size, state.st_mtime_ns)


@cache
def _count_entities(folder: Path, size: int, changed: int) -> int:
    """`count_entities` of a file of this `size`, `changed` at this time."""
    file, number, line = folder / ENTITIES, 0, b""
    with file.open("rb") as stream:
        for number, line in enumerate(stream, 1):  # noqa: B007
            pass
    if not number:
        raise DataError("it has no entities", file=file, fix=_MAKE)
    parse_entity(line, file, number)
    stated = (read_json(folder / FILE).get("counts") or {}).get("entities", number)
    if stated != number:
        what = f"it ends behind {number:,} entities, where {FILE} counts {stated:,}"
        raise DataError(what, file=file, line=number, fix=f"copy it again, or {_MAKE}")
    return number


def take_fingerprint(folder: Path) -> str:
    """The hash of the entities of a knowledge directory."""
    return hash_file(folder / ENTITIES)[:32]


def find_knowledge(files: Iterable[object]) -> dict[str, str]:
    """Path and fingerprint of the knowledge directory that files of text are in; {} for files that
    are in none.

    Raises:
        DataError: they are in several, whose ids mean different entities.
    """
    paths = dict.fromkeys(file.parent for file in files if isinstance(file, Path))
    folders = [folder for folder in paths if (folder / FILE).is_file()]
    prints = {folder: take_fingerprint(folder) for folder in folders}
    if len(set(prints.values())) > 1:
        listed = ", ".join(map(str, folders))
        fix = "link them with the same dictionary, or tokenize each for itself"
        raise DataError(f"their ids mean different entities: {listed}", fix=fix)
    return next(
        ({"path": str(each.absolute()), "fingerprint": prints[each]} for each in folders), {}
    )


def refuse_other_knowledge(manifest: Mapping[str, Any], knowledge: KnowledgeDirectory) -> None:
    """Raise DataError where the ids of tokens point into another knowledge directory.

    Args:
        knowledge: The knowledge that a part reads in addition.
    """
    stated = manifest.get("knowledge")
    if stated and stated["fingerprint"] != knowledge.fingerprint:
        what = (
            f"the ids of these tokens mean entities of {stated['path']}"
            f" ({stated['fingerprint'][:12]}), not of this one ({knowledge.fingerprint[:12]})"
        )
        fix = f"{spell_setting('knowledge', stated['path'])}, or tokenize {knowledge.folder / TEXT}"
        raise DataError(what, file=knowledge.folder, fix=fix)
