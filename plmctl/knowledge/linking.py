"""From an encyclopedia, or from plain text and a dictionary, to a knowledge directory: resumable,
and there when it is complete.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plmctl.core.errors import DataError
from plmctl.core.progress import Say
from plmctl.knowledge.collect import PAGES, PageReading, collect_pages
from plmctl.knowledge.dictionary import Dictionary
from plmctl.knowledge.directory import FILE, Entity, KnowledgeDirectory
from plmctl.knowledge.encyclopedia import Encyclopedia
from plmctl.knowledge.tables import Problems, find_lonely, read_aliases, read_table, read_types
from plmctl.knowledge.writing import write_about, write_entities, write_rows, write_triples
from plmctl.storage.journal import Journal, Tell, open_journal
from plmctl.text.reader import read_documents

_SHOW = 64  # documents between two displays of progress


@dataclass(frozen=True)
class Matching:
    """Which names are found in plain text: the settings of `Dictionary`."""

    fold: bool
    least_prior: float
    least_length: int
    lowercase: bool


@dataclass(frozen=True)
class LinkingJob:
    """What a knowledge directory is made of.

    Args:
        path: an export of a wiki, or text that has a dictionary.
        dictionary: a knowledge directory, or a table of alias, name and count.
        reading: how pages are read.
        matching: which names are found in text without links.
        repeated: whether an article's further mentions of what it links to are marked.
        outside: whether titles that are only linked to are entities.
        least_mentions: of those, how often they must be.
        type_table: name and type a line.
        triples: head, relation and tail a line.
        ids: id and name a line: what the two tables call entities.
        lexicons: {field: table of words and tags} whose tags become marks of their own.
        licence: of the text.
    """

    path: Path
    dictionary: Path | None
    reading: PageReading
    matching: Matching
    repeated: bool
    outside: bool
    least_mentions: int
    type_table: Path | None
    triples: Path | None
    ids: Path | None
    lexicons: Mapping[str, Path]
    licence: str | None

    def identity(self) -> dict[str, Any]:
        """All that decides what is written, as JSON."""
        known = dataclasses.asdict(self)
        given = [self.path, self.dictionary, self.type_table, self.triples, self.ids]
        files = [*filter(None, given), *self.lexicons.values()]
        files = [place / FILE if place.is_dir() else place for place in files]
        state = {str(file): [(s := file.stat()).st_size, s.st_mtime_ns] for file in files}
        return {"settings": _plain(known), "files": state}


def link(job: LinkingJob, out: Path, *, say: Say, tell: Tell) -> dict[str, Any]:
    """Write the knowledge directory `out`.

    Returns:
        What its knowledge.json says.
    """
    for file in filter(None, [job.path, job.dictionary, job.type_table, job.triples, job.ids]):
        if not file.exists():
            raise DataError("there is no such file", file=file)
    with open_journal(out, job.identity(), tell=tell) as journal:
        about = _write(job, journal, say)
        journal.finish(out)
    return about


def is_export(path: Path) -> bool:
    """Whether a file is an export of a wiki, by its name."""
    return ".xml" in path.suffixes or path.suffix == ".bz2"


def _write(job: LinkingJob, journal: Journal, say: Say) -> dict[str, Any]:
    problems, source = Problems(), dict[str, Any]()
    called = _read_ids(job)
    tables = read_types(job.type_table, called) if job.type_table else {}
    entities: Iterable[Entity]
    rows: Iterable[dict[str, Any]]
    if job.dictionary is None:
        source = _collect(job, journal, say)
        if source["problem"]:
            problems.note("files that are cut off", f"{job.path}: {source['problem']}")
        wiki = Encyclopedia(
            journal.scratch / PAGES,
            outside=job.outside,
            least_mentions=job.least_mentions,
            tables=tables,
            problems=problems,
        )
        names, entities = list(wiki.ids), wiki.entities()
        say("looking for repeated names", 0, 0)
        repeated = wiki.make_dictionary(**_settings(job, least_prior=0.0)) if job.repeated else None
        rows = wiki.rows(repeated)
        if not names:
            fix = "an export with articles (pages-articles)"
            raise DataError("it has no articles", file=job.path, fix=fix)
    else:
        dictionary = Known.read(job.dictionary, tables, problems)
        names, entities = [entity.name for entity in dictionary.entities], dictionary.entities
        rows = link_text(job.path, dictionary.make(**_settings(job)), say)
    for kind in find_lonely(tables, dict.fromkeys(names)):
        problems.note("types without members", f"{job.type_table}: {kind}")
    types, counts = write_entities(journal.folder, entities)
    layers, rows = _add_layers(job, journal.folder, rows)
    coverage = write_rows(journal.folder, rows, types)
    if job.triples:
        own = {name: name for name in names}
        counts |= write_triples(journal.folder, job.triples, {**own, **called}, problems)
    about = {
        "source": {"path": str(job.path), **source},
        "licence": job.licence,
        "settings": _plain(dataclasses.asdict(job)),
        "layers": layers,
        "counts": counts,
        "coverage": coverage,
        "problems": problems.lines(),
    }
    write_about(journal.folder, about)
    return about


def _collect(job: LinkingJob, journal: Journal, say: Say) -> dict[str, Any]:
    doing = f"reading {job.path.name}"
    found = collect_pages(job.path, job.reading, journal, lambda at, size: say(doing, at, size))
    return {key: found[key] for key in ("site", "language", "counted", "problem")}


def _settings(job: LinkingJob, least_prior: float | None = None) -> dict[str, Any]:
    settings = dataclasses.asdict(job.matching)
    return settings if least_prior is None else settings | {"least_prior": least_prior}


def _read_ids(job: LinkingJob) -> dict[str, str]:
    if job.ids is None:
        return {}
    return {key: name for _, (key, name, *_) in read_table(job.ids, 2, "id, name")}


@dataclass(frozen=True)
class Known:
    """Entities that are known before a text is read."""

    entities: list[Entity]

    @classmethod
    def read(cls, place: Path, tables: Mapping[str, list[str]], problems: Problems) -> Known:
        """The entities of a knowledge directory, or of a table of aliases; `tables` are further
        types.
        """
        if place.is_dir():
            directory = KnowledgeDirectory(place)
            found = list(directory)
            for line in directory.describe_problems():
                problems.note("entities of the dictionary that are used in part", line)
        else:
            names: dict[str, Counter[str]] = {}
            for alias, name, count in read_aliases(place, problems):
                names.setdefault(name, Counter())[alias] += count
            found = [
                Entity(name, tuple(each.most_common()), (), "") for name, each in names.items()
            ]
        if not found:
            raise DataError("it names no entities", file=place)
        typed = (
            entity._replace(types=tuple(dict.fromkeys([*entity.types, *tables[entity.name]])))
            if entity.name in tables
            else entity
            for entity in found
        )
        return cls(list(typed))

    def make(self, **settings: Any) -> Dictionary:
        """The dictionary of their names."""
        names = (
            (alias, number, count)
            for number, entity in enumerate(self.entities)
            for alias, count in {entity.name: 0, **dict(entity.aliases)}.items()
        )
        return Dictionary(names, **settings)


def link_text(path: Path, dictionary: Dictionary, say: Say) -> Iterator[dict[str, Any]]:
    """The documents of plain text with the names of a dictionary as marks."""
    done = 0
    for number, document in enumerate(read_documents(str(path))):
        text = "\n".join(document.paragraphs)
        marks = dictionary.link(text)
        done += len(text)
        if number % _SHOW == 0:
            say(f"linking {path.name}", done, 0)
        if text:
            counted = {"by the dictionary": len(marks)}
            yield {"title": document.place, "text": text, "entity": marks, "counted": counted}


def _add_layers(
    job: LinkingJob, folder: Path, rows: Iterable[dict[str, Any]]
) -> tuple[dict[str, str], Iterable[dict[str, Any]]]:
    """The rows with a field of marks for each lexicon; {field: file of the names of its ids}."""
    layers = {"entity": "entities.jsonl"}
    finders: dict[str, Callable[[str], list[Any]]] = {}
    for field, file in job.lexicons.items():
        tags: dict[str, int] = {}
        words = [
            (word, tags.setdefault(tag, len(tags) + 1), int((rest or ["1"])[0]))
            for _, (word, tag, *rest) in read_table(file, 2, "word, tag")
        ]
        dictionary = Dictionary(words, fold=True, least_prior=0, least_length=1, lowercase=True)
        finders[field], layers[field] = dictionary.link, f"{field}.txt"
        text = "".join(f"{tag}\n" for tag in ["", *tags])  # ids begin at 1; 0 is none
        (folder / layers[field]).write_text(text, encoding="utf-8")
    if not finders:
        return layers, rows
    return layers, (
        row | {field: find(row["text"]) for field, find in finders.items()} for row in rows
    )


def _plain(value: Any) -> Any:
    """Settings as JSON."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value
