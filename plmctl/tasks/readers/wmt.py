"""WMT's test sets as examples: a source and any number of references, aligned by the ids of
documents and segments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from plmctl.core.errors import DataError
from plmctl.tasks.readers import files, sgm
from plmctl.tasks.record import Example
from plmctl.text.tabular import kind_of

FIX = "task.path={test: [<source>.sgm,<reference>.sgm]}, and train and dev"


def find_sets(
    folder: Path, patterns: Sequence[str], languages: Mapping[str, str | None]
) -> list[Path]:
    """The srcset in a folder whose name fits `patterns`, and the refsets with its setid; empty
    without one.

    Args:
        languages: The endings of the names of sources and of references (a.de.sgm); None: any.
    """
    sets = [file for file in sorted(folder.iterdir()) if kind_of(file) == sgm.SUFFIX]
    kinds = {file: sgm.read_set(file) for file in sets}
    sources = [
        (_stem(file).lower(), file)
        for file, (kind, _) in kinds.items()
        if kind == "srcset" and _is_in(file, languages["source"])
    ]
    source = files.match_patterns(sources, patterns, folder, fix=FIX)
    if source is None:
        return []
    name = kinds[source][1]
    references = [
        file
        for file, (kind, of) in kinds.items()
        if kind == "refset" and of == name and _is_in(file, languages["target"])
    ]
    return [source, *references]


def read_sets(located: Sequence[Path], *, labelled: bool) -> list[Example]:
    """The examples of a source and its references; DataError where `labelled` ones have none."""
    source, *references = map(sgm.read_segments, located)
    if source.kind != "srcset":
        problem = f"it is a {source.kind}: the source stands first"
        raise DataError(problem, file=source.file, fix="[<source>.sgm,<reference>.sgm]")
    if labelled and not references:
        what = f"no refset with the setid '{source.name}' is there"
        raise DataError(what, file=source.file, fix=FIX)
    return [
        Example(":".join(filter(None, ids)), {"source": text}, golds or None, f"{source.file}:{at}")
        for ids, at, text, golds in sgm.align(source, references)
    ]


def _stem(file: Path) -> str:
    return file.name.removesuffix(".gz").removesuffix(sgm.SUFFIX)


def _is_in(file: Path, language: str | None) -> bool:
    return language is None or Path(_stem(file)).suffix == f".{language}"
