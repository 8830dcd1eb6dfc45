"""Documents with the clusters of their mentions: CoNLL-2012 columns (Pradhan et al., 2012), and
JSON lines of sentences and clusters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.split_files import SplitFiles, read_records
from plmctl.tasks.record import Example
from plmctl.text.inputs import need_lines
from plmctl.text.tabular import kind_of

Mention = tuple[int, int]  # first and last word, in the document
JSON = (".jsonl", ".json")
SHOWN = (
    '{"doc_key": "a", "sentences": [["Anna", "laughs"], ["She", "left"]], "speakers": [["x", "x"],'
    ' ["x", "x"]], "clusters": [[[0, 0], [2, 2]]]}'
)
BRACKETS = "(0 where a mention of cluster 0 begins, 0) where it ends, (0) for both, | between two"


class _Record(TypedDict):
    """A document as JSON has it; words are counted through all of its sentences."""

    sentences: list[list[str]]
    clusters: NotRequired[list[list[list[int]]] | None]
    speakers: NotRequired[list[list[str]] | None]
    doc_key: NotRequired[str]


@part_of("reader")
class CoreferenceFiles(SplitFiles):
    """Reads documents: `sentences` of words, `speakers`, one for each word or none at all. The
    label is the clusters, lists of (first word, last word), counted from 0 through the document.

    Column files have `#begin document` and `#end document` around each, and an empty line between
    two sentences. `columns` are the numbers of words, speaker (null: none) and clusters, negative
    ones from the right. JSON lines have `sentences`, `clusters`, and perhaps `speakers` and
    `doc_key`.
    """

    kinds = (".conll", ".v4_gold_conll", ".v4_auto_conll")
    bare_test = True

    def read_file(self, file: Path, columns: Columns, *, labelled: bool = True) -> list[Example]:
        json = kind_of(file) in JSON
        found = list(_from_json(file, labelled) if json else _from_columns(file, columns, labelled))
        if not found:
            raise DataError("no documents", file=file, fix=f"#begin document lines, or {SHOWN}")
        return found


def _from_json(file: Path, labelled: bool) -> Iterator[Example]:
    for record in read_records(file, _Record, shown=SHOWN):
        values, place = record.values, record.place
        sentences, clusters = values["sentences"], values.get("clusters")
        words = [word for sentence in sentences for word in sentence]
        if not words:
            raise DataError("a document without words", file=place, fix=SHOWN)
        if clusters is None and labelled:
            raise DataError("no clusters", file=place, fix=SHOWN)
        speakers = [name for own in values.get("speakers") or () for name in own]
        if speakers and len(speakers) != len(words):
            problem = f"{len(speakers)} speakers for {len(words)} words"
            raise DataError(problem, file=place, fix="one speaker for each word, or no speakers")
        label = None if clusters is None else _check_clusters(clusters, len(words), place)
        fields = {"sentences": [own for own in sentences if own], "speakers": speakers}
        name = str(values.get("doc_key", record.number))
        yield Example(name, fields, label, place)


def _check_clusters(clusters: Any, words: int, place: str) -> list[list[Mention]]:
    """Clusters as pairs; DataError for a mention that is none, or stands twice."""
    made: list[list[Mention]] = []
    seen: set[Mention] = set()
    for cluster in clusters:
        made.append([])
        for mention in cluster:
            pair = (mention[0], mention[-1]) if len(mention) == 2 else None
            if pair is None or not 0 <= pair[0] <= pair[1] < words:
                problem = f"the mention {mention} is not [first, last] of {words} words"
                raise DataError(problem, file=place, fix=SHOWN)
            if pair in seen:
                problem = f"the mention {mention} stands twice"
                raise DataError(problem, file=place, fix="a mention is of one cluster")
            seen.add(pair)
            made[-1].append(pair)
    return made


@dataclass
class _Document:
    """The part of a document of columns that has been read."""

    name: str
    line: int
    sentences: list[list[str]] = field(default_factory=lambda: [[]])
    speakers: list[str] = field(default_factory=list)
    open: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    clusters: dict[str, list[Mention]] = field(default_factory=lambda: defaultdict(list))
    labelled: bool = False
    words: int = 0

    def add(self, cells: list[str], columns: Columns, file: Path, line: int) -> None:
        """One word."""
        numbers = {role: column for role, column in columns.items() if column is not None}
        for role, column in numbers.items():
            if not isinstance(column, int) or not -len(cells) <= column < len(cells):
                problem = (
                    f"no column {column} ({role}): found {len(cells)} in {' '.join(cells)[:80]!r}"
                )
                fix = f"task.columns.{role}=<a number from 0>"
                raise DataError(problem, file=file, line=line, fix=fix)
        self.sentences[-1].append(cells[numbers["words"]])
        if "speaker" in numbers:
            self.speakers.append(cells[numbers["speaker"]])
        if "clusters" in numbers:
            self.labelled = True
            self._bracket(cells[numbers["clusters"]], file, line)
        self.words += 1

    def _bracket(self, cell: str, file: Path, line: int) -> None:
        for part in cell.split("|") if cell not in ("-", "_", "*") else ():
            name = part.strip("()")
            if not name.isdecimal() or part not in (f"({name})", f"({name}", f"{name})"):
                problem = f"{part!r} in {cell!r} is no bracket of a cluster"
                raise DataError(problem, file=file, line=line, fix=BRACKETS)
            if part.startswith("("):
                self.open[name].append((self.words, line))
            if part.endswith(")"):
                if not self.open[name]:
                    problem = f"a mention of cluster {name} ends that did not begin"
                    raise DataError(problem, file=file, line=line, fix=BRACKETS)
                self.clusters[name].append((self.open[name].pop()[0], self.words))

    def make(self, file: Path, labelled: bool) -> Example:
        """The document as an example; DataError for an incomplete one."""
        place = f"{file}:{self.line}"
        for name, left in self.open.items():
            if left:
                problem = f"a mention of cluster {name} begins and does not end"
                raise DataError(problem, file=file, line=left[-1][1], fix=BRACKETS)
        if not self.words:
            raise DataError("a document without words", file=place)
        clusters = None
        if self.labelled:
            clusters = _check_clusters([*self.clusters.values()], self.words, place)
        elif labelled:
            raise DataError("no clusters", file=place, fix="task.columns.clusters=-1")
        fields = {"sentences": [own for own in self.sentences if own], "speakers": self.speakers}
        return Example(self.name, fields, clusters, place)


def _from_columns(file: Path, columns: Columns, labelled: bool) -> Iterator[Example]:
    document: _Document | None = None
    for line, text in need_lines(file):
        if text.startswith("#begin document"):
            if document is not None:
                raise DataError(
                    "a document begins before the one before it ends",
                    file=file,
                    line=line,
                    fix="#end document",
                )
            document = _Document(" ".join(text.split()[2:]) or str(line), line)
        elif text.startswith("#end document"):
            if document is None:
                fix = "#begin document"
                raise DataError("a document ends that did not begin", file=file, line=line, fix=fix)
            yield document.make(file, labelled)
            document = None
        elif not text.strip():
            if document is not None:
                document.sentences.append([])
        elif document is None:
            fix = "#begin document (<name>); part 000"
            raise DataError("a word outside of a document", file=file, line=line, fix=fix)
        else:
            document.add(text.split(), columns, file, line)
    if document is not None:
        raise DataError(
            "the document does not end", file=file, line=document.line, fix="#end document"
        )
