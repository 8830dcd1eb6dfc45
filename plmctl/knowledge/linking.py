"""From an encyclopedia, or from plain text and a dictionary, to a knowledge directory: resumable,
and there when it is complete.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from plmctl.core.errors import DataError
from plmctl.core.progress import Say
from plmctl.knowledge.collect import PAGES, PageReading, collect_pages
from plmctl.knowledge.dictionary import Dictionary, Mention
from plmctl.knowledge.directory import ENTITIES, FILE, Entity, KnowledgeDirectory
from plmctl.knowledge.encyclopedia import Encyclopedia
from plmctl.knowledge.layers import OF_WORDS, Lexicon, Treebank
from plmctl.knowledge.tables import Problems, find_lonely, read_aliases, read_table, read_types
from plmctl.knowledge.writing import write_about, write_entities, write_rows, write_triples
from plmctl.storage.atomic import write_text
from plmctl.storage.journal import Journal, Tell, open_journal
from plmctl.text.inputs import find_files
from plmctl.text.reader import read_documents

Rows = Callable[[int], Iterable[dict[str, Any]]]  # the documents behind the first so many
_SHOW = 64  # documents between two displays of progress


@dataclass(frozen=True)
class Matching:
    """The choice of names in plain text: the settings of `Dictionary`."""

    fold: bool
    least_prior: float
    least_length: int
    lowercase: bool


@dataclass(frozen=True)
class LinkingJob:
    """The sources of a knowledge directory.

    Args:
        path: an export of a wiki, or text that has a dictionary.
        dictionary: a knowledge directory, or a table of alias, name and count.
        matching: The choice of names in text without links.
        repeated: Whether further mentions of an article's links are marked.
        outside: whether titles that are only linked to are entities.
        least_mentions: The least number of such mentions.
        type_table: name and type a line.
        triples: head, relation and tail a line.
        ids: id and name a line: what the two tables call entities.
        lexicons: {field: table of words and tags} whose tags become marks of their own; a table
            may be "wordnet", or a knowledge directory, whose entities are marked.
        layers: The columns of a treebank that become marks.
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
    lexicons: Mapping[str, Path | str]
    layers: tuple[str, ...]
    licence: str | None

    def identity(self) -> dict[str, Any]:
        """All that decides what is written, as JSON."""
        known = dataclasses.asdict(self)
        given = [self.path, self.dictionary, self.type_table, self.triples, self.ids]
        tables = [place for place in self.lexicons.values() if isinstance(place, Path)]
        files = [*filter(None, given), *tables]
        files = [file for place in files for file in _files_of(place)]
        state = {str(file): [(s := file.stat()).st_size, s.st_mtime_ns] for file in files}
        return {"settings": _plain(known), "files": state}


def _files_of(place: Path) -> list[Path]:
    """The file that changes whenever the source does, or all files of a folder of texts."""
    if not place.is_dir():
        return [place]
    return [place / FILE] if (place / FILE).exists() else find_files(place, "path")


def link(job: LinkingJob, out: Path, *, say: Say, tell: Tell) -> dict[str, Any]:
    """Write the knowledge directory `out`.

    Returns:
        The content of its knowledge.json.
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


def is_treebank(path: Path) -> bool:
    """Whether a file is CoNLL-U, by its name."""
    return any(suffix in (".conllu", ".conllulex") for suffix in path.suffixes)


def _write(job: LinkingJob, journal: Journal, say: Say) -> dict[str, Any]:
    problems, source = Problems(), dict[str, Any]()
    called = _read_ids(job)
    tables, lines = read_types(job.type_table, called) if job.type_table else ({}, {})
    entities: Iterable[Entity]
    rows: Rows
    bank = Treebank(job.path, job.layers) if is_treebank(job.path) else None
    if job.dictionary is None and bank is None:
        source = _collect(job, journal, say)
        if source["problem"]:
            problems.note("file", "cut off", f"{job.path}: {source['problem']}")
        wiki = Encyclopedia(
            journal.scratch / PAGES,
            outside=job.outside,
            least_mentions=job.least_mentions,
            tables=tables,
            problems=problems,
            source=str(job.path),
        )
        names, entities = list(wiki.ids), wiki.entities()
        say("looking for repeated names", 0, 0)
        repeated = wiki.make_dictionary(**_settings(job, least_prior=0.0)) if job.repeated else None
        rows = partial(wiki.rows, repeated)
        if not names:
            fix = "an export with articles (pages-articles)"
            raise DataError("it has no articles", file=job.path, fix=fix)
    else:
        known = Known([])
        if job.dictionary is not None:
            known = Known.read(job.dictionary, tables, problems)
        names, entities = [entity.name for entity in known.entities], known.entities
        dictionary = known.make(**_settings(job))
        rows = partial(link_text, job.path, dictionary, say)
        if bank is not None:
            rows = partial(link_treebank, bank, dictionary)
    for kind in find_lonely(tables, dict.fromkeys(names)):
        problems.note("type", "without members", f"{job.type_table}:{lines[kind]}: {kind}")
    types, counts = write_entities(journal.folder, entities)
    layers, rows = _add_lexicons(job, journal.folder, rows, problems)
    coverage = write_rows(journal, rows, types)
    _note_unused(job, coverage, problems)
    if bank is not None:
        layers |= {
            field: _write_tags(journal.folder, field, bank.tags.get(field, ()))
            for field in bank.layers
        }
    if job.triples:
        own = {name: name for name in names}
        counts |= write_triples(journal.folder, job.triples, {**own, **called}, problems)
    about = {
        "source": {"path": str(job.path), **source},
        "licence": job.licence,
        "settings": _plain(dataclasses.asdict(job)),
        "layers": {"entity": ENTITIES, **layers},
        "counts": counts,
        "coverage": coverage,
        "problems": problems.lines(),
    }
    write_about(journal.folder, about)
    return about


def _note_unused(job: LinkingJob, coverage: Mapping[str, Any], problems: Problems) -> None:
    """Count what names nothing of the text, as tables of another language do."""
    if job.dictionary is not None and not coverage.get("mentions"):
        problems.note("dictionary", "with no name that the text has", str(job.dictionary))
    for field, place in job.lexicons.items():
        if not coverage.get(f"marks of {field}"):
            problems.note("lexicon", "with no word that the text has", f"{field}:{place}")


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
    return {key: name for _, (key, name, *_) in read_table(job.ids, ("id", "name"))}


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
                problems.note("entity", "entity of the dictionary used in part", line)
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


def link_text(path: Path, dictionary: Dictionary, say: Say, skip: int) -> Iterator[dict[str, Any]]:
    """The documents of plain text behind the first `skip`, with the names of a dictionary as
    marks.
    """
    done = 0
    for number, document in enumerate(read_documents(str(path))):
        text = "\n".join(document.paragraphs)
        done += len(text)
        if number < skip:
            continue
        if number % _SHOW == 0:
            say(f"linking {path.name}", done, 0)
        marks = dictionary.link(text)
        counted = {"by the dictionary": len(marks)}
        yield {"title": document.place, "text": text, "entity": marks, "counted": counted}


def link_treebank(bank: Treebank, dictionary: Dictionary, skip: int) -> Iterator[dict[str, Any]]:
    """The documents of a treebank with its layers, and with the names of a dictionary."""
    for number, row in enumerate(bank.documents()):
        if number >= skip:
            marks = dictionary.link(row["text"])
            yield {**row, "entity": marks, "counted": {"by the dictionary": len(marks)}}


def _add_lexicons(
    job: LinkingJob, folder: Path, rows: Rows, problems: Problems
) -> tuple[dict[str, str], Rows]:
    """The rows with a field of marks for each lexicon; {field: file of the names of its ids}."""
    lexicons: dict[str, Callable[[str], list[Mention]]] = {}
    layers: dict[str, str] = {}
    for field, place in job.lexicons.items():
        if isinstance(place, Path) and place.is_dir():
            lexicons[field] = Known.read(place, {}, problems).make(**OF_WORDS).link
            layers[field] = str(place.absolute() / ENTITIES)
        else:
            lexicon = lexicons[field] = Lexicon(place)
            layers[field] = _write_tags(folder, field, lexicon.tags)

    def marked(skip: int) -> Iterator[dict[str, Any]]:
        for row in rows(skip):
            yield row | {field: find(row["text"]) for field, find in lexicons.items()}

    return layers, marked if lexicons else rows


def _write_tags(folder: Path, field: str, tags: Iterable[str]) -> str:
    """Write the names of the tags of a field, a line each; their ids begin at 1, 0 is none."""
    text = "".join(f"{tag}\n" for tag in ["", *tags])
    write_text(folder / f"{field}.txt", text)
    return f"{field}.txt"


def _plain(value: Any) -> Any:
    """Settings as JSON."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value
