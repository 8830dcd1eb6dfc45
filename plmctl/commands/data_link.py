"""`plmctl data link`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from plmctl.config.build import MISSING
from plmctl.config.command import About, Command, Result
from plmctl.core.errors import ConfigError
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import counted, remark
from plmctl.core.values import Count, Rate
from plmctl.storage.paths import find_near
from plmctl.storage.resumable import new_folder

if TYPE_CHECKING:
    from plmctl.knowledge.linking import LinkingJob

_TYPES = 5  # kinds of entities in a line


@dataclass(frozen=True)
class Link(Command):
    """Write text with marked mentions of entities.

    PATH is the export of a wiki, or with dictionary=<names> plain text.
    """

    about = About(
        "data link",
        place=25,
        examples=(
            "plmctl data link enwiki-pages-articles.xml.bz2 out=linked",
            "plmctl data link README.md dictionary=linked out=linked-text",
        ),
        bare="path",
        metavar="PATH",
        options="json print_config config_dir plugin",
    )

    # a wiki's export (.xml, .bz2, .gz), text that is given a dictionary, or a .conllu file
    path: str = MISSING
    # meanings of names in plain text: a knowledge directory, or a table of alias, name, count (tabs
    # between them, commas in a .csv)
    dictionary: str | None = None
    out: str = MISSING  # a new folder: text.jsonl, entities.jsonl, knowledge.json
    # sources of types on the page of an entity: the nouns that its categories are about; the
    # categories themselves; its infobox; the brackets of its title
    types: tuple[Literal["heads", "categories", "infobox", "qualifier"], ...] = (
        "heads",
        "infobox",
        "qualifier",
    )
    type_table: str | None = None  # more types: name, type a line, with a tab between
    triples: str | None = None  # head, relation, tail a line, with tabs between
    # id, name a line, where the two tables have ids instead of names
    ids: str | None = None
    # further marks: [sense:senses.tsv], a field and its table of word, tag; [sense:wordnet]
    lexicons: tuple[str, ...] = ()
    # columns of a .conllu file whose values become marks: [upos,deprel,head]
    layers: tuple[str, ...] = ()
    # link further mentions of the article's linked names, too
    repeated: bool = True
    outside: bool = True  # titles that are only linked to are entities, too
    least_mentions: Count = 1  # least number of mentions that a word needs to be linked
    lists: bool = True  # lines of lists are text, too
    # sections that are left out
    without: tuple[str, ...] = (
        "References",
        "External links",
        "See also",
        "Further reading",
        "Notes",
        "Bibliography",
        "Sources",
        "参考文献",
        "外部链接",
        "参见",
    )
    fold: bool = False  # names in plain text: upper and lower case are the same
    least_prior: Rate = 0.5  # names are linked whose main meaning has this share of their uses
    least_length: Count = 2  # characters of such a name
    lowercase: bool = False  # and names without a capital letter
    licence: str | None = None  # licence of the text, for knowledge.json

    def perform(self) -> Result:
        """Write `out` and say what is in it."""
        from plmctl.inputs.tokenize import show_progress, spell_command
        from plmctl.knowledge.linking import link

        out, job = new_folder(self.out).absolute(), self.make_job()
        command = spell_command(self.provenance, "data", "link")
        with show_progress(command, "linking") as say:
            about = link(job, out, say=say, tell=lambda line: remark(f"plmctl: {line}"))
        for line in about["problems"]:
            remark(f"plmctl: {line}")
        found = {key: about[key] for key in ("counts", "coverage", "problems")}
        lines = (*describe_links(about, self.out), _spell_next(out, about["layers"]))
        return self.report({"out": self.out, **found}, lines)

    def make_job(self) -> LinkingJob:
        """The job that the settings describe."""
        from plmctl.knowledge.collect import PageReading
        from plmctl.knowledge.linking import LinkingJob, Matching

        path, dictionary = self._find_text()
        return LinkingJob(
            path=path,
            dictionary=dictionary,
            reading=PageReading(types=self.types, lists=self.lists, without=self.without),
            matching=Matching(
                fold=self.fold,
                least_prior=self.least_prior,
                least_length=self.least_length,
                lowercase=self.lowercase,
            ),
            repeated=self.repeated,
            outside=self.outside,
            least_mentions=self.least_mentions,
            type_table=_existing(self.type_table, "type_table"),
            triples=_existing(self.triples, "triples"),
            ids=_existing(self.ids, "ids"),
            lexicons=_find_lexicons(self.lexicons),
            layers=self.layers,
            licence=self.licence,
        )

    def _find_text(self) -> tuple[Path, Path | None]:
        """The text and the dictionary; ConfigError where one does not go with the other."""
        from plmctl.knowledge.linking import is_export, is_treebank
        from plmctl.text.annotate import check_names

        path = _existing(self.path, "path")
        dictionary = _existing(self.dictionary, "dictionary")
        assert path is not None
        check_names((), self.layers)
        if self.layers and not is_treebank(path):
            raise ConfigError("layers", list(self.layers), "goes with a path of CoNLL-U (.conllu)")
        if dictionary is None and not is_export(path) and not is_treebank(path):
            allowed = "a wiki's export (.xml, .bz2, .gz), or text with a dictionary of names"
            fix = "dictionary=<a knowledge directory, or a table of alias, name>"
            exports = sorted(filter(is_export, path.iterdir())) if path.is_dir() else []
            if exports:  # one that says that it is XML first
                export = min(exports, key=lambda file: ".xml" not in file.suffixes)
                fix = spell_setting("path", export)
            raise ConfigError("path", self.path, allowed, fix=fix)
        if dictionary is not None and ".xml" in path.suffixes:
            allowed = "none: the links of a wiki's export say what its names mean"
            raise ConfigError("dictionary", self.dictionary, allowed, fix="dictionary=null")
        return path, dictionary


def _find_lexicons(given: Sequence[str]) -> dict[str, Path | str]:
    """{field: table} of the words `field:table`."""
    from plmctl.knowledge.layers import WORDNET
    from plmctl.text.annotate import check_names

    found: dict[str, Path | str] = {}
    for word in given:
        name, colon, file = word.partition(":")
        if not colon or name in found:
            allowed = "a field of its own and its table of word, tag"
            raise ConfigError("lexicons", word, allowed, fix="lexicons=[sense:senses.tsv]")
        check_names((), (name,))
        if file == WORDNET:
            if Path(file).exists():
                meant = f"'{WORDNET}' means WordNet here, and is a name in this folder, too"
                raise ConfigError(
                    "lexicons", word, meant, fix=spell_setting("lexicons", [f"{name}:./{file}"])
                )
            found[name] = WORDNET
            continue
        place = _existing(file, "lexicons")
        assert place is not None
        found[name] = place
    return found


def _existing(given: str | None, setting: str) -> Path | None:
    """The path of a setting; ConfigError where there is nothing."""
    if given is None:
        return None
    path = Path(given).expanduser()
    if not path.exists():
        near = find_near(path, folders=False)
        fix = spell_setting(setting, near) if near else "check the path"
        raise ConfigError(setting, given, "there is no such file", fix=fix)
    return path


def describe_links(about: dict[str, Any], out: str) -> list[str]:
    """The content of a knowledge directory, in lines for a person."""
    counts, coverage = about["counts"], about["coverage"]
    documents, characters = coverage.get("documents", 0), coverage.get("characters", 0)
    marked = coverage.get("documents with a mention", 0) / max(1, documents)
    share = coverage.get("characters in mentions", 0) / max(1, characters)
    by_type = list(coverage["mentions by type"].items())[:_TYPES]
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in by_type)
    sources = {"links": "links", "repeated": "repeated names", "by the dictionary": "names"}
    origin = ", ".join(
        f"{coverage[key]:,} {word}" for key, word in sources.items() if coverage.get(key)
    )
    lines = [f"{out}: {counted(documents, 'document')} of {characters:,} characters"]
    if counts.get("entities"):
        lines += [
            f"  {counted(coverage.get('mentions', 0), 'mention')} ({origin or 'none'}) in"
            f" {marked:.0%} of the documents, {share:.1%} of the characters",
            f"  {counted(counts['entities'], 'entity')}"
            f" ({coverage.get('entities mentioned', 0):,} mentioned),"
            f" {counted(counts['aliases'], 'alias')}, {counted(counts['types'], 'type')}"
            f" ({counts['types with one member']:,} with one member),"
            f" {counted(counts['without a type'], 'entity')} without a type",
        ]
    if others := [name for name in about["layers"] if name != "entity"]:
        marks = (f"{name} {coverage.get(f'marks of {name}', 0):,}" for name in others)
        lines.append(f"  other marks: {', '.join(marks)}")
    lines += [f"  mentions by type: {kinds}"] if kinds else []
    if "triples" in counts:
        relations = counted(counts["relations"], "relation")
        lines.append(f"  {counted(counts['triples'], 'triple')} of {relations}")
        if not counts["triples"]:
            lines.append(
                "  fix: ids=TABLE.tsv  # of id, name: where triples have ids instead of names"
            )
    return lines


def _spell_next(out: Path, layers: Mapping[str, str]) -> str:
    from plmctl.knowledge.directory import ENTITIES

    spans = [name for name, file in layers.items() if Path(file).name == ENTITIES]
    fields = [spell_setting("data.path", out / "text.jsonl"), spell_setting("data.spans", spans)]
    if tags := [name for name in layers if name not in spans]:
        fields.append(spell_setting("data.tags", tags))
    return f"next: plmctl tokenize {' '.join(fields)} out=<dir>"
