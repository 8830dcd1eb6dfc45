"""Column files of tagged words (CoNLL), lists of words and tags in JSON lines and tables, and texts
with entities by their characters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from plmctl.core.errors import DataError, find_meant, nearest
from plmctl.core.parts import part_of
from plmctl.core.spelling import spell, spell_word
from plmctl.tasks.readers import files, schemes, span_rows, tag_spelling
from plmctl.tasks.readers.column_settings import Column, spell_role
from plmctl.tasks.readers.label_text import is_absent
from plmctl.tasks.readers.schemes import PlacedTags
from plmctl.tasks.readers.span_files import json_rows
from plmctl.tasks.readers.span_rows import TaggedText
from plmctl.tasks.readers.split_files import SplitFiles
from plmctl.tasks.readers.tables import Table
from plmctl.tasks.record import Example
from plmctl.text.inputs import need_lines
from plmctl.text.tabular import kind_of


class TagTable(Table):
    """A table whose labels are the tags of words."""

    empty_labels = True
    label_setting = "tags"


@part_of("reader")
class Columns(SplitFiles):
    """Reads sentences of tagged words: CoNLL column files, JSON lines of lists, or tables of
    space-separated lists.

    `columns`: `tokens` and `tags` are column numbers (negative from the right) in column files,
    names in JSON lines and tables. `layout="auto"` takes `.jsonl` as JSON lines, Parquet and `.csv`
    with commas as tables, everything else as column files; `-DOCSTART-` lines begin documents, as
    does another value of the field `document` in JSON lines. JSON whose rows have a text has
    entities by their characters (span_rows.py): its words are tagged by them. `header` is that of
    tables, as in `Table`. `scheme` is the scheme of the tags, which become IOB2 or BIOES, however
    their marks are spelled. "auto" infers it from all tags of a file, None leaves them alone.
    """

    def __init__(
        self,
        *,
        splits: Mapping[str, Sequence[str]],
        layout: str = "auto",
        scheme: schemes.FileScheme | None = None,
        header: bool | None = None,
    ) -> None:
        super().__init__(splits=splits)
        self.layout, self.scheme = layout, scheme
        self._spelled: dict[str, str] = {}
        self._marked: dict[str, str] = {}  # file -> how its entities were read
        self._table = TagTable(splits={}, header=header)

    @property
    def notes(self) -> dict[str, str]:
        """{file: how it was read}, for files whose layout or scheme was detected."""
        kinds = self._table.notes, self._spelled, self._marked
        return {
            file: "; ".join(filter(None, (notes.get(file) for notes in kinds)))
            for file in dict.fromkeys(file for notes in kinds for file in notes if notes[file])
        }

    def read(self, path: files.Where, split: str, columns: Mapping[str, Column]) -> list[Example]:
        """The sentences of a split, with `fields.words` and their tags as label."""
        file = self.need(path, split)
        return self.read_file(file, columns, labelled=split.startswith(("train", "dev")))

    def read_file(
        self, file: Path, columns: Mapping[str, Column], *, labelled: bool = True
    ) -> list[Example]:
        """The sentences of one file; DataError where words and tags differ in number."""
        layout = self.layout
        if layout == "auto":
            layout = _find_layout(file)
        if layout == "table":
            sentences = list(_table_lists(self._table, file, columns, labelled))
            _refuse_words(file, sentences)
        elif layout == "jsonl":
            sentences, self._marked[str(file)] = _read_json(file, columns, labelled)
        else:
            sentences = list(_blocks(file, columns))
        examples = []
        sentences, scheme = self._find_scheme(file, sentences)
        for number, (line, words, tags, document, more) in enumerate(sentences):
            if tags is not None and len(tags) != len(words):
                raise DataError(f"{len(words)} words but {len(tags)} tags", file=file, line=line)
            if tags is None and labelled and more:
                what = f"no entities: none of the fields {', '.join(span_rows.FIELDS)} is a list"
                raise DataError(what, file=file, line=line or None, fix=span_rows.SHOWN)
            if tags is None and labelled:
                problem = f"no column {columns['tags']} with tags"
                raise DataError(problem, file=file, line=line, fix="set task.columns.tags")
            label = None if tags is None else schemes.read_as(tags, scheme)
            if words:
                examples.append(
                    Example(
                        id=str(number),
                        fields={"words": words, **more},
                        label=label,
                        place=f"{file}:{line}" if line else f"{file}, number {number}",
                        document=document,
                    )
                )
        if not examples:
            raise DataError("no sentences", file=file)
        if empty := len(sentences) - len(examples):
            left = f"{empty:,} of {len(sentences):,} texts have no words and are left out"
            marked = self._marked[str(file)] if layout == "jsonl" else ""
            self._marked[str(file)] = "; ".join(filter(None, (marked, left)))
        return examples

    def _find_scheme(
        self, file: Path, sentences: list[FileSentence]
    ) -> tuple[list[FileSentence], str | None]:
        """The sentences with their marks as `B-PER` and `O`, and the scheme of a file, stated or
        detected; DataError for tags that it does not have.
        """
        tagged = [PlacedTags(own.line, own.tags) for own in sentences if own.tags is not None]
        if self.scheme is None:
            return sentences, None
        unified, spelled = tag_spelling.unify(tagged, self.scheme, file)
        # io types alone are entities; a file whose tags have marks shows its own scheme
        marked = any(tag != "O" and tag[0] != "I" for own in unified for tag in own.tags)
        detects = self.scheme == "auto" or (self.scheme == schemes.IO and marked)
        scheme = schemes.detect(unified, file) if detects else self.scheme
        told = "" if scheme == self.scheme else f"its tags are read as {scheme}"
        if scheme == self.scheme:
            schemes.check_letters(unified, self.scheme, file)
        if scheme is not None and (notes := [note for note in (told, spelled) if note]):
            self._spelled[str(file)] = f"{'; '.join(notes)} (task.reader.scheme)"
        own = iter(unified)
        read = [
            each if each.tags is None else each._replace(tags=list(next(own).tags))
            for each in sentences
        ]
        return read, scheme


def _refuse_words(file: Path, sentences: Sequence[FileSentence]) -> None:
    """DataError for a table in which every row is a word, so that sentences have no ends."""
    if len(sentences) < 3 or any(len(each.words) != 1 for each in sentences):
        return
    other = spell_word(str(file.with_suffix(".tags")))
    fix = f"tr ',' '\\t' < {spell_word(str(file))} > {other}, with an empty line between sentences"
    what = "every row is one word: a row of a table is a sentence, its words and its tags"
    raise DataError(what, file=file, fix=fix)


def _find_layout(file: Path) -> str:
    """How a file lays its words out, by its name; a .csv by the commas of its first line, too."""
    suffix = kind_of(file)
    if suffix in (".jsonl", ".json"):
        return "jsonl"
    first = next((line for _, line in need_lines(file)), "") if suffix == ".csv" else ""
    return "table" if suffix == ".parquet" or "," in first else "columns"


ROLES = ("tokens", "tags")  # roles of columns, and their keys in JSON lines


class FileSentence(NamedTuple):
    """One sentence of a file."""

    line: int  # 0: a value of a list
    words: list[str]
    tags: list[str] | None
    document: int | None = None  # its number
    more: Mapping[str, Any] = {}  # further fields


def _blocks(file: Path, columns: Mapping[str, Column]) -> Iterator[FileSentence]:
    token, tag = columns["tokens"], columns["tags"]
    if not isinstance(token, int) or not isinstance(tag, int):
        problem = f"column files have numbers, not names: tokens={token} tags={tag}"
        fix = "task.columns.tokens=0 task.columns.tags=-1, or task.reader.layout=table"
        raise DataError(problem, file=file, fix=fix)
    words: list[str] = []
    tags: list[str] = []
    first, document = 1, -1
    for number, line in [*need_lines(file), (0, "")]:
        cells = line.split("\t") if "\t" in line else line.split()
        if not line.strip() or cells[0] == "-DOCSTART-":
            if words:
                yield FileSentence(first, words, tags, document if document >= 0 else None)
            words, tags = [], []
            document += line.lstrip().startswith("-DOCSTART-")
            continue
        first = first if words else number
        for column in (token, tag):
            if not -len(cells) <= column < len(cells) or (column == tag and len(cells) < 2):
                problem = f"no column {column}: found {len(cells)} in {line[:80]!r}"
                fix = "set task.columns.tokens and task.columns.tags"
                raise DataError(problem, file=file, line=number, fix=fix)
        words.append(cells[token])
        tags.append(cells[tag].strip())
        if len(several := tags[-1].split()) > 1:
            raise DataError(
                f"{len(several)} tags in one cell ('{tags[-1][:20]}...'):"
                " a line is a whole sentence",
                file=file,
                line=number,
                fix="task.reader.layout=table",
            )


def _read_json(
    file: Path, columns: Mapping[str, Column], labelled: bool
) -> tuple[list[FileSentence], str]:
    """(the sentences of a file, how its entities were read): lists of words and tags, or texts with
    entities by their characters.
    """
    rows = [(number, row) for number, row in json_rows(file)]
    named = {role: name for role, name in columns.items() if isinstance(name, str)}
    text, field = named.get("tokens", span_rows.TEXT), named.get("tags")
    first = rows[0][1] if rows else None
    words = first.get(named.get("tokens", "tokens")) if isinstance(first, dict) else None
    plain = isinstance(words, list) and not any(isinstance(word, dict) for word in words)
    found: list[FileSentence] = []
    read: list[TaggedText] = []
    for number, row in () if plain else rows:
        try:
            marked = span_rows.find_marked(row, text, field)
        except ValueError as error:
            line = number or None
            raise DataError(str(error), file=file, line=line, fix=span_rows.SHOWN) from None
        if marked is None:
            break
        own = span_rows.tag_text(*marked)
        read.append(own)
        more = {"places": [list(place) for place in own.places], "source": marked.text}
        found.append(FileSentence(number, own.words, own.tags, more=more))
    if rows and len(found) == len(rows):
        return found, span_rows.describe_marked(read)
    return list(_json_lists(file, rows, columns, labelled)), ""


def _json_lists(
    file: Path, rows: Sequence[tuple[int, Any]], columns: Mapping[str, Column], labelled: bool
) -> Iterator[FileSentence]:
    documents: list[Any] = []
    for number, row in rows:
        if not isinstance(row, dict):
            what = f"a JSON object is needed on each line, found {type(row).__name__}"
            raise DataError(
                what, file=file, line=number, fix="one {...} a line, not one list of them"
            )
        names = [name if isinstance(name := columns[role], str) else role for role in ROLES]
        for role, name in zip(ROLES[: 1 + labelled], names, strict=False):
            if name not in row:
                meant = find_meant(name, row)
                raise DataError(
                    f"no field {name}; found {', '.join(row)}{nearest(name, row)}",
                    file=file,
                    line=number,
                    fix=spell_role(
                        role, spell(meant) if meant else "<one of those found>", columns
                    ),
                )
        for name in names:
            if not isinstance(row.get(name, []), list | None):
                what = f"field {name} is no list, one item for each word"
                raise DataError(
                    what, file=file, line=number, fix='{"tokens": ["a", "b"], "tags": ["O", "O"]}'
                )
        tags = row.get(names[1])
        for role, items in (("word", row[names[0]] or ()), ("tag", tags or ())):
            absent = next((place for place, item in enumerate(items) if is_absent(item)), None)
            if absent is not None:
                what = f"{role} {absent + 1} is {'null' if items[absent] is None else 'NaN'}"
                raise DataError(what, file=file, line=number, fix="O for a word in no entity")
        document = row.get("document")
        documents += [document] if document is not None and [document] != documents[-1:] else []
        document_number = None if document is None else len(documents) - 1
        yield FileSentence(
            number,
            [str(word) for word in row[names[0]] or ()],
            None if tags is None else [str(tag) for tag in tags],
            document_number,
        )


def _table_lists(
    table: Table, file: Path, columns: Mapping[str, Column], labelled: bool
) -> Iterator[FileSentence]:
    roles = {"tokens": columns["tokens"], "label": columns["tags"]}
    for example in table.read_file(file, roles, header=table.header, labelled=labelled):
        line = int(example.place.rpartition(":")[2])
        tags = None if example.label is None else str(example.label).split()
        yield FileSentence(line, str(example.fields["tokens"]).split(), tags)
