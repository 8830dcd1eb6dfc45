"""Questions with the texts that answer them and texts that do not: tables, SQuAD's files, and the
layouts of BEIR and MS MARCO.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from plmctl.core.errors import DataError, list_some
from plmctl.core.parts import part_of
from plmctl.core.terminal import counted
from plmctl.core.values import fit
from plmctl.tasks.readers import files
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.judged import SHOWN as SHOWN_JUDGED
from plmctl.tasks.readers.judged import has_candidates, read_judged
from plmctl.tasks.readers.squad import SquadFiles
from plmctl.tasks.readers.tables import Table
from plmctl.tasks.record import Example, Examples
from plmctl.text.inputs import need_lines
from plmctl.text.tabular import kind_of, objects_of

SHOWN = '{"_id": "d1", "title": "...", "text": "..."}'
QRELS = "question <tab> document <tab> grade, or question <tab> 0 <tab> document <tab> grade"


class _Text(TypedDict):
    _id: str
    text: str
    title: NotRequired[str | None]
    metadata: NotRequired[Any]


@part_of("reader")
class RankingFiles(Table):
    """Examples are questions: `fields` has `query`, and `positives`, `negatives` as {id: text}, and
    `grades` as {id: how relevant a positive is}.

    A table has `columns` query, positive and negatives (null: it has none); in JSON the last two
    may be lists, and `negatives` may be several columns. SQuAD's JSON is read as questions with
    their paragraph, JSON lines of `query`, `candidates` and `labels` as they are (`judged.py`). A
    folder with corpus.jsonl, queries.jsonl and qrels/<split>.tsv (BEIR: Thakur
    et al., 2021), or with collection.tsv, queries.<split>.tsv and qrels.<split>.tsv (MS MARCO:
    Bajaj et al., 2016), is read as such; judged documents of grade 0 are negatives. Questions
    without a relevant document are left out and counted.
    """

    several = ("negatives",)

    def has(self, path: files.Where, split: str, columns: Columns | None = None) -> bool:
        if isinstance(path, str | Path) and (folder := find_corpus(path)):
            return folder.qrels(split) is not None
        return super().has(path, split)

    def read(self, path: files.Where, split: str, columns: Columns) -> list[Example]:
        if isinstance(path, str | Path) and (folder := find_corpus(path)):
            examples, self.skipped[str(path)] = folder.read(split)
            return examples
        return self.read_file(self.need(path, split), columns, header=self.header)

    def read_corpus(self, path: files.Where, split: str, columns: Columns) -> dict[str, str]:
        """{id: text} of all texts to search. They are the corpus of a folder that has one, every
        paragraph of a SQuAD file, else all texts of the examples of the split.
        """
        if isinstance(path, str | Path) and (folder := find_corpus(path)):
            return dict(folder.texts())
        file = self.need(path, split)
        if kind_of(file) == ".json":
            return {text: name for name, text in _number_paragraphs(file).items()}
        return collect_texts(self.read(path, split, columns))

    def read_file(
        self, file: Path, columns: Columns, *, header: bool | None = None, labelled: bool = True
    ) -> list[Example]:
        if kind_of(file) == ".json":
            return read_squad(file)
        if has_candidates(file):
            return self._read_judged(file)
        several = columns.get("negatives")
        many: dict[str, Any] = {}
        if isinstance(several, list | tuple):
            many = {f"negative{n}": column for n, column in enumerate(several)}
        given = {role: c for role, c in columns.items() if not (many and role == "negatives")}
        if not labelled:
            given = {role: c for role, c in given.items() if role in ("query", "id")}
            many = {}
        read = super().read_file(file, given | many, header=header, labelled=False)
        numbers: dict[str, str] = {}
        return [_from_row(e, list(many), numbers, labelled) for e in read]

    def _read_judged(self, file: Path) -> list[Example]:
        """The questions with candidates that are right; the others are left out and counted."""
        numbers: dict[str, str] = {}
        examples = []
        every = list(read_judged(file))
        for each in every:
            right: dict[str, int] = {}
            wrong: list[str] = []
            for text, grade in zip(each.texts, each.grades, strict=True):
                if grade > 0:
                    right[text] = grade
                else:
                    wrong.append(text)
            known, others = _name(list(right), numbers), _name(wrong, numbers)
            if right:
                grades = {name: right[text] for name, text in known.items()}
                made = make_question(each.id, each.query, known, others, each.place, grades)
                examples.append(made)
        if left := len(every) - len(examples):
            self.skipped[str(file)] = left
            self.why[str(file)] = f"{counted(left, 'question')} without a right candidate"
        if not examples:
            raise DataError("no question has a right candidate", file=file, fix=SHOWN_JUDGED)
        return examples

    def cell(self, role: str, value: Any) -> Any:
        lists = role == "positive" or role.startswith("negative")
        if lists and isinstance(value, list) and all(isinstance(text, str) for text in value):
            return tuple(value)
        return super().cell(role, value)


def _from_row(
    example: Example, many: Sequence[str], numbers: dict[str, str], labelled: bool
) -> Example:
    fields = example.fields

    def texts(*roles: str) -> list[str]:
        cells = [fields[role] for role in roles if role in fields]
        listed = [text for cell in cells for text in (cell if isinstance(cell, tuple) else [cell])]
        return [str(text).strip() for text in listed if str(text).strip()]

    positives, negatives = texts("positive"), texts("negatives", *many)
    query = str(fields["query"]).strip()
    if not query or (labelled and not positives):
        absent = "question" if not query else "text that answers the question"
        raise DataError(f"no {absent}", file=example.place, fix="fill the column, or drop the row")
    return make_question(
        example.id, query, _name(positives, numbers), _name(negatives, numbers), example.place
    )


def _name(texts: Sequence[str], numbers: dict[str, str]) -> dict[str, str]:
    """{number of a text in its file: the text}."""
    return {numbers.setdefault(text, str(len(numbers))): text for text in texts}


def make_question(
    name: str,
    query: str,
    positives: Mapping[str, str],
    negatives: Mapping[str, str],
    place: str,
    grades: Mapping[str, int] | None = None,
    *,
    is_text: bool = False,
) -> Example:
    """An example of a ranking task; a negative that is a positive, too, is none. `is_text`: the
    corpus has the question itself, under its name.
    """
    known = set(positives.values())
    fields = {
        "query": query,
        "positives": dict(positives),
        "negatives": {n: text for n, text in negatives.items() if text not in known},
        "grades": dict(grades or dict.fromkeys(positives, 1)),
        **({"itself": name} if is_text else {}),
    }
    return Example(name, fields, tuple(positives) or None, place)


def collect_texts(examples: Examples) -> dict[str, str]:
    """{id: text} of all texts of the examples, each once."""
    found: dict[str, str] = {}
    for example in examples:
        found |= example.fields["positives"] | example.fields["negatives"]
    return found


def read_squad(file: Path) -> list[Example]:
    """The questions of SQuAD's JSON that have an answer, each with its paragraph."""
    numbers = _number_paragraphs(file)
    return [
        make_question(
            e.id,
            e.fields["question"].strip(),
            {numbers[e.fields["context"]]: e.fields["context"]},
            {},
            e.place,
        )
        for e in SquadFiles(splits={}).read_file(file, {})
        if e.fields["answers"] and e.fields["question"].strip()
    ]


def _number_paragraphs(file: Path) -> dict[str, str]:
    """{paragraph: its number, from 0}."""
    examples = SquadFiles(splits={}).read_file(file, {}, labelled=False)
    texts = dict.fromkeys(e.fields["context"] for e in examples)
    return {text: str(number) for number, text in enumerate(texts)}


class CorpusFolder:
    """A folder of documents, questions and which documents are relevant to which question."""

    def __init__(self, folder: Path, documents: Path) -> None:
        self.folder, self.documents = folder, documents

    def qrels(self, split: str) -> Path | None:
        """The file of the grades of a split."""
        spelled = (split, "valid") if split == "dev" else (split,)
        return self._first([f"qrels{mark}{name}.tsv" for name in spelled for mark in "/."])

    def _first(self, names: Sequence[str]) -> Path | None:
        every = [self.folder / f"{name}{end}" for name in names for end in ("", ".gz")]
        return next((file for file in every if file.is_file()), None)

    def texts(self, among: set[str] | None = None) -> Iterator[tuple[str, str]]:
        """(id, text) of every document, or of those `among` these ids; a title stands before its
        text.
        """
        yield from _read_texts(self.documents, among)

    def splits(self) -> list[str]:
        """The usual splits with grades."""
        return [each for each in ("test", "dev", "train") if self.qrels(each)]

    def questions(self, split: str) -> Path:
        """The file of the questions of a split; DataError without any."""
        found = self._first([f"queries.{split}.tsv", "queries.jsonl", "queries.tsv"])
        if found is None:
            raise DataError(f"no queries.jsonl or queries.{split}.tsv", file=self.folder)
        return found

    def count_unjudged(self, split: str) -> int:
        """The number of questions that have no grade in a split."""
        grades = read_qrels(file) if (file := self.qrels(split)) else {}
        return sum(name not in grades for name, _ in _read_texts(self.questions(split), None))

    def read(self, split: str) -> tuple[list[Example], int]:
        """The questions of a split, and how many are left out for want of a relevant document."""
        file = self.qrels(split)
        if file is None:
            there = ", ".join(sorted(each.name for each in self.folder.iterdir())[:12])
            other = next(iter(self.splits()), None)
            problem = f"no qrels/{split}.tsv or qrels.{split}.tsv; there is {there}"
            raise DataError(problem, file=self.folder, fix=f"split={other}" if other else "")
        grades = read_qrels(file)
        asked = self.questions(split)
        queries = dict(_read_texts(asked, set(grades)))
        _refuse_absent("question", grades, queries, asked, file)
        judged = {name for own in grades.values() for name in own}
        # some sets of BEIR search among their own questions; its scores leave these out
        both = set(grades) if self.documents.name.startswith("corpus.jsonl") else set[str]()
        texts = dict(self.texts(judged | both))
        _refuse_absent("document", sorted(judged), texts, self.documents, file)
        examples = []
        for name, own in grades.items():
            good = {each: grade for each, grade in own.items() if grade > 0}
            if good:
                bad = {each: texts[each] for each in own if each not in good}
                positives = {each: texts[each] for each in good}
                is_text = name in both and name in texts
                examples.append(
                    make_question(
                        name, queries[name], positives, bad, str(file), good, is_text=is_text
                    )
                )
        if not examples:
            raise DataError("no question has a relevant document", file=file)
        return examples, len(grades) - len(examples)


def find_corpus(path: str | Path) -> CorpusFolder | None:
    """The folder at `path`, where it has a corpus; None otherwise."""
    folder = Path(path).expanduser()
    for name in ("corpus.jsonl", "corpus.jsonl.gz", "collection.tsv", "collection.tsv.gz"):
        if (folder / name).is_file():
            return CorpusFolder(folder, folder / name)
    return None


def _refuse_absent(
    what: str, names: Iterable[str], texts: Mapping[str, str], own: Path, file: Path
) -> None:
    """DataError for graded questions or documents without a text in their file."""
    absent = [name for name in names if name not in texts]
    if len(absent) == 1:
        said = f"{what} '{absent[0]}' is not in {own.name}"
    else:
        said = f"{counted(len(absent), what)} are not in {own.name}: {list_some(absent)}"
    if absent:
        fix = f"add to {own.name}, or leave the lines of {file.name} out"
        raise DataError(said, file=file, fix=fix)


def _read_texts(file: Path, among: set[str] | None) -> Iterator[tuple[str, str]]:
    if kind_of(file) == ".jsonl":
        for line, value in objects_of(file):
            try:
                row: _Text = fit(value, _Text)
            except ValueError as error:
                raise DataError(str(error), file=file, line=line, fix=SHOWN) from error
            if among is None or row["_id"] in among:
                yield row["_id"], f"{row.get('title') or ''} {row['text']}".strip()
        return
    for line, content in need_lines(file):
        if content.strip():
            name, tab, text = content.partition("\t")
            if not tab or not name.strip():
                what = f"an id and a text with a tab between are needed, found {content[:60]!r}"
                raise DataError(what, file=file, line=line)
            if among is None or name in among:
                yield name, text.strip()


def read_qrels(file: Path) -> dict[str, dict[str, int]]:
    """{question: {document: grade}} of a file of grades, with or without names of its columns."""
    grades: dict[str, dict[str, int]] = {}
    for number, line in need_lines(file):
        cells = line.split()
        if not cells or (number == 1 and cells[0] in ("query-id", "qid", "query_id")):
            continue
        try:
            if len(cells) not in (3, 4):
                raise ValueError
            query, *_, document, grade = cells
            grades.setdefault(query, {})[document] = int(grade)
        except ValueError:
            what = f"found {line[:60]!r}"
            raise DataError(f"{QRELS}; {what}", file=file, line=number) from None
    if not grades:
        raise DataError("no grades", file=file, fix=QRELS)
    return grades
