"""What `plmctl data link` reads and writes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plmctl.config.linked import Linking
from plmctl.core.errors import ConfigError
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import counted, remark, tell
from plmctl.inputs.tokenize import show_progress, spell_command
from plmctl.knowledge.collect import PageReading
from plmctl.knowledge.directory import ENTITIES
from plmctl.knowledge.layers import WORDNET
from plmctl.knowledge.linking import LinkingJob, Matching, is_export, is_treebank, link
from plmctl.storage.paths import find_near
from plmctl.storage.resumable import new_folder
from plmctl.text.annotate import check_names

_TYPES = 5  # that a line names


def write_links(spec: Linking) -> int:
    """Write `out` and say what is in it."""
    out, job = new_folder(spec.out).absolute(), make_job(spec)
    command = spell_command(spec.provenance, "data", "link")
    with show_progress(command, "linking") as say:
        about = link(job, out, say=say, tell=lambda line: remark(f"plmctl: {line}"))
    for line in about["problems"]:
        remark(f"plmctl: {line}")
    if spec.provenance.json:
        keys = ("counts", "coverage", "problems")
        tell(json.dumps({"out": spec.out, **{key: about[key] for key in keys}}))
        return 0
    for line in describe_links(about, spec.out):
        tell(line)
    layers = about["layers"].items()
    spans = [name for name, file in layers if Path(file).name == ENTITIES]
    fields = [spell_setting("data.spans", spans)]
    if tags := [name for name in about["layers"] if name not in spans]:
        fields.append(spell_setting("data.tags", tags))
    fields = [spell_setting("data.path", out / "text.jsonl"), *fields]
    tell(f"next: plmctl tokenize {' '.join(fields)} out=<dir>")
    return 0


def make_job(spec: Linking) -> LinkingJob:
    """The job that the settings describe."""
    path = _existing(spec.path, "path")
    dictionary = _existing(spec.dictionary, "dictionary")
    assert path is not None
    check_names((), spec.layers)
    if spec.layers and not is_treebank(path):
        raise ConfigError("layers", list(spec.layers), "goes with a path of CoNLL-U (.conllu)")
    if dictionary is None and not is_export(path) and not is_treebank(path):
        allowed = "a wiki's export (.xml, .bz2, .gz), or text with a dictionary of names"
        fix = "dictionary=<a knowledge directory, or a table of alias, name>"
        exports = sorted(filter(is_export, path.iterdir())) if path.is_dir() else []
        if exports:  # one that says that it is XML first
            export = min(exports, key=lambda file: ".xml" not in file.suffixes)
            fix = spell_setting("path", export)
        raise ConfigError("path", spec.path, allowed, fix=fix)
    if dictionary is not None and ".xml" in path.suffixes:
        allowed = "none: the links of a wiki's export say what its names mean"
        raise ConfigError("dictionary", spec.dictionary, allowed, fix="dictionary=null")
    return LinkingJob(
        path=path,
        dictionary=dictionary,
        reading=PageReading(types=spec.types, lists=spec.lists, without=spec.without),
        matching=Matching(
            fold=spec.fold,
            least_prior=spec.least_prior,
            least_length=spec.least_length,
            lowercase=spec.lowercase,
        ),
        repeated=spec.repeated,
        outside=spec.outside,
        least_mentions=spec.least_mentions,
        type_table=_existing(spec.type_table, "type_table"),
        triples=_existing(spec.triples, "triples"),
        ids=_existing(spec.ids, "ids"),
        lexicons=_find_lexicons(spec.lexicons),
        layers=spec.layers,
        licence=spec.licence,
    )


def _find_lexicons(given: Sequence[str]) -> dict[str, Path | str]:
    """{field: table} of the words `field:table`."""
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
    """What a knowledge directory holds, in lines for a person."""
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
