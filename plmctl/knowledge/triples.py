"""Readers of knowledge graphs: tab-separated triples, OpenKE's numbered files, a knowledge
directory, or the graph that comes with Python.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from plmctl.core.errors import AbsentData, DataError
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import counted
from plmctl.knowledge.directory import parse_entity
from plmctl.knowledge.graph import SPLITS, KnowledgeGraph
from plmctl.knowledge.python_graph import list_triples
from plmctl.storage.paths import find_near
from plmctl.text.inputs import read_lines

BUILTIN = "builtin"
NAMES = {"valid": ("valid", "validation", "dev"), "train": ("train",), "test": ("test",)}
ENDS = (".tsv", ".txt", ".tsv.gz", ".txt.gz")
SHOWN = 5  # broken lines that a message names
Unseen = Literal["keep", "drop"]


@dataclass
class _Split:
    """The triples of a split as names, each with its file and line."""

    file: Path | None
    triples: list[tuple[str, str, str]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)

    def place(self, number: int) -> str:
        return f"{self.file}:{self.lines[number]}" if self.file else f"triple {number + 1}"


@dataclass
class _Files:
    """The contents of the files of a graph, before names have numbers."""

    splits: dict[str, _Split] = field(default_factory=dict)
    entities: dict[str, None] = field(default_factory=dict)  # entities that a list names
    relations: dict[str, None] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    relation_texts: dict[str, str] = field(default_factory=dict)
    held_out: bool = False  # whether valid is a part of the training file


def read_graph(
    path: str | Path,
    *,
    valid_share: float = 0.05,
    unseen: Unseen = "keep",
    setting: str = "data.path",
) -> KnowledgeGraph:
    """Read a knowledge graph.

    Args:
        path: a folder with train, valid and test (.tsv or .txt, also .gz) of head, relation and
            tail, with tabs between them; a folder of OpenKE (train2id.txt, entity2id.txt, ...); a
            knowledge directory; one file of triples; or "builtin": the classes of Python.
        valid_share: The share of the triples that are held out if no file has a split of its own;
            each of their entities and relations stays in training.
        unseen: The treatment of valid and test triples with an entity or a relation that no
            training triple has; the published evaluations include them.
        setting: The setting that names the path, for messages.

    Raises:
        DataError: A file is missing, empty, or has a line that is no triple.
    """
    files = (
        _read_builtin() if str(path) == BUILTIN else _read_place(Path(path).expanduser(), setting)
    )
    remarks = _drop_repeated(files)
    if set(files.splits) == {"train"} and valid_share > 0:
        _hold_out(files, valid_share)
    remarks += _check_unseen(files, unseen)
    return _number(files, remarks)


def _read_place(place: Path, setting: str) -> _Files:
    """The files of a folder, or one file of triples."""
    if not place.exists():
        meant = find_near(place, folders=False)
        placeholder = f"{setting}=<a folder with train.tsv, or builtin>"
        fix = spell_setting(setting, meant) if meant else placeholder
        raise AbsentData("no such file or directory", file=place, fix=fix)
    if place.is_file():
        return _Files({"train": _read_triples(place)})
    if (place / "train2id.txt").is_file():
        return _read_numbered(place)
    files = _Files()
    if (place / "triples.tsv").is_file():  # a knowledge directory
        files.splits["train"] = _read_triples(place / "triples.tsv")
    for split in SPLITS:
        if file := _find(place, NAMES[split]):
            files.splits[split] = _read_triples(file)
    if "train" not in files.splits:
        there = ", ".join(sorted(file.name for file in place.iterdir())[:8]) or "nothing"
        looked = "looked for train.tsv and triples.tsv (also .txt, .gz)"
        what = f"no training triples: {looked}; there is {there}"
        fix = f"{setting}=<a folder with train.tsv: head, relation, tail, tabs between them>"
        raise AbsentData(what, file=place, fix=fix)
    _read_lists(place, files)
    return files


def _find(place: Path, stems: Sequence[str]) -> Path | None:
    """The file of one of these names, with an ending of `ENDS`; DataError if two exist."""
    found = [place / f"{stem}{end}" for stem in stems for end in ENDS]
    found = [file for file in found if file.is_file()]
    if len(found) > 1:
        names = ", ".join(file.name for file in found)
        raise DataError(f"several files could be meant: {names}", file=place, fix="leave one there")
    return found[0] if found else None


def _read_triples(file: Path) -> _Split:
    """The triples of a file of three columns."""
    split = _Split(file)
    broken: list[tuple[int, str]] = []
    for number, line in _lines(file, tabs=True):
        cells = tuple(cell.strip() for cell in line.split("\t"))
        if len(cells) != 3 or not all(cells):
            broken.append((number, _explain_line(line, cells)))
            continue
        split.triples.append((cells[0], cells[1], cells[2]))
        split.lines.append(number)
    if broken:
        fix = "write head, relation and tail with a tab between them, or remove the line"
        raise _explain_broken(file, broken, fix)
    return split


def _explain_line(line: str, cells: Sequence[str]) -> str:
    """Why a line is no triple."""
    if len(cells) == 3:
        named = zip(("head", "relation", "tail"), cells, strict=True)
        empty = [name for name, cell in named if not cell]
        return f"the {', '.join(empty)} {'is' if len(empty) == 1 else 'are'} empty"
    what = f"{counted(len(cells), 'column')} where a triple has 3"
    if len(cells) == 1 and len(line.split()) == 3:
        what += ": they stand between spaces, not tabs"
    return what


def _explain_broken(file: Path, broken: Sequence[tuple[int, str]], fix: str) -> DataError:
    """The error of a file with wrong lines, (line, problem); the first ones are in one message."""
    (line, first), *others = broken
    told = [f"\n  {file}:{number}: {what}" for number, what in others[: SHOWN - 1]]
    if more := len(others) - len(told):
        told.append(f"\n  and {counted(more, 'line')} more")
    return DataError(f"{first}{''.join(told)}", file=file, line=line, fix=fix)


def _lines(file: Path, *, tabs: bool = False) -> Iterator[tuple[int, str]]:
    """(number, text) of each line that is not blank, and with `tabs` of each line that has only
    tabs; DataError for a file without lines.
    """
    empty = True
    for number, line in read_lines(file, cut=False):
        if line.strip() or (tabs and "\t" in line):
            empty = False
            yield number, line
    if empty:
        raise DataError("the file is empty", file=file, fix="name a file with triples")


def _read_lists(place: Path, files: _Files) -> None:
    """Read the names and descriptions next to the triples, if such files exist."""
    for name, known, texts in (
        ("entity", files.entities, files.texts),
        ("relation", files.relations, files.relation_texts),
    ):
        if file := _find(place, ["entities" if name == "entity" else "relations"]):
            known.update(dict.fromkeys(line.partition("\t")[0].strip() for _, line in _lines(file)))
        if file := _find(place, [f"{name}2text"]):
            texts.update(_read_texts(file))
        known.update(dict.fromkeys(texts))
    if (file := place / "entities.jsonl").is_file():
        for number, line in _lines(file):
            entity = parse_entity(line, file, number)
            # as in a `KnowledgeDirectory`: one without a name is called by its first alias
            if name := entity.name or next((alias for alias, _ in entity.aliases), ""):
                files.entities[name] = None
                files.texts |= {name: entity.text} if entity.text else {}


def _read_texts(file: Path) -> Iterator[tuple[str, str]]:
    """(name, description) of each line."""
    for number, line in _lines(file):
        name, tab, text = line.partition("\t")
        if not tab or not name.strip():
            fix = "write the name, a tab and the description, or remove the line"
            raise DataError("no name with a description", file=file, line=number, fix=fix)
        yield name.strip(), text.strip()


def _read_numbered(place: Path) -> _Files:
    """OpenKE's files: names with numbers, and triples `head tail relation` of numbers, each file
    with the count of its lines in its first line.
    """
    names = {kind: _read_numbers(place / f"{kind}2id.txt") for kind in ("entity", "relation")}
    files = _Files(
        entities=dict.fromkeys(names["entity"].values()),
        relations=dict.fromkeys(names["relation"].values()),
    )
    for split in SPLITS:
        file = place / f"{split}2id.txt"
        if not file.is_file():
            continue
        found = files.splits[split] = _Split(file)
        broken: list[tuple[int, str]] = []
        for number, line in _skip_count(file):
            cells = line.split()
            try:
                head, tail, relation = (int(cell) for cell in cells)
                triple = names["entity"][head], names["relation"][relation], names["entity"][tail]
            except (ValueError, KeyError):
                broken.append((number, "not the numbers of a head, a tail and a relation"))
                continue
            found.triples.append(triple)
            found.lines.append(number)
        if broken:
            fix = "write three numbers of entity2id.txt and relation2id.txt"
            raise _explain_broken(file, broken, fix)
    return files


def _read_numbers(file: Path) -> dict[int, str]:
    """{number: name} of one of OpenKE's lists, in the order of the numbers."""
    if not file.is_file():
        raise AbsentData("no such file", file=file, fix="copy it next to train2id.txt")
    known: dict[int, str] = {}
    for number, line in _skip_count(file):
        name, _, place = line.rpartition("\t") if "\t" in line else line.rpartition(" ")
        if not name.strip() or not place.strip().isdecimal():
            fix = "write the name, a tab and its number"
            raise DataError("no name with a number", file=file, line=number, fix=fix)
        known[int(place)] = name.strip()
    return dict(sorted(known.items()))


def _skip_count(file: Path) -> Iterator[tuple[int, str]]:
    """The lines of one of OpenKE's files behind the first, which counts them."""
    lines = _lines(file)
    number, first = next(lines)
    if not first.strip().isdecimal():
        fix = "write the number of the following lines into the first"
        raise DataError("the first line is no count", file=file, line=number, fix=fix)
    yield from lines


def _read_builtin() -> _Files:
    """The graph of Python's own classes."""
    triples = list_triples()
    return _Files({"train": _Split(None, triples, list(range(1, len(triples) + 1)))})


def _drop_repeated(files: _Files) -> list[str]:
    """Leave one of equal triples in each split; remarks on them, and on those of valid and test
    that are training triples, which stay.
    """
    remarks: list[str] = []
    for name, split in files.splits.items():
        first: dict[tuple[str, str, str], int] = {}
        again = [n for n, triple in enumerate(split.triples) if first.setdefault(triple, n) != n]
        if again:
            times = counted(len(again), "triple")
            remarks.append(f"{split.place(again[0])}: {times} of {name} came before, left out")
            kept = list(first.values())
            split.triples = [split.triples[n] for n in kept]
            split.lines = [split.lines[n] for n in kept]
    train = set(files.splits["train"].triples)
    for name, split in files.splits.items():
        shared = [n for n, triple in enumerate(split.triples) if triple in train]
        if name != "train" and shared:
            times = counted(len(shared), "triple")
            remarks.append(f"{split.place(shared[0])}: {times} of {name} are trained on, too")
    return remarks


def _hold_out(files: _Files, share: float) -> None:
    """Move a share of the training triples to valid, chosen by their content; what is left has
    all of their entities and relations.
    """
    train = files.splits["train"]
    hashes = [
        hashlib.blake2b("\t".join(triple).encode("utf-8", "surrogatepass"), digest_size=8).digest()
        for triple in train.triples
    ]
    entities = Counter(name for head, _, tail in train.triples for name in (head, tail))
    relations = Counter(relation for _, relation, _ in train.triples)
    held: set[int] = set()
    for number in sorted(range(len(hashes)), key=hashes.__getitem__):
        if len(held) >= share * len(hashes):
            break
        head, relation, tail = train.triples[number]
        needed = Counter([head, tail])
        if relations[relation] > 1 and all(entities[name] > n for name, n in needed.items()):
            entities.subtract(needed)
            relations[relation] -= 1
            held.add(number)
    if not held:
        return
    files.held_out = True
    numbers = range(len(hashes))
    for name, chosen in (("valid", held), ("train", set(numbers) - held)):
        rows = [n for n in numbers if n in chosen]
        files.splits[name] = _Split(
            train.file, [train.triples[n] for n in rows], [train.lines[n] for n in rows]
        )


def _check_unseen(files: _Files, unseen: Unseen) -> list[str]:
    """Remarks on entities and relations that no training triple has; with `drop`, the triples of
    valid and test that name one are left out.
    """
    train = files.splits["train"].triples
    entities = {name for head, _, tail in train for name in (head, tail)}
    relations = {relation for _, relation, _ in train}
    remarks: list[str] = []
    for split, found in files.splits.items():
        lost = {
            number: [name for name in (head, tail) if name not in entities]
            + [relation] * (relation not in relations)
            for number, (head, relation, tail) in enumerate(found.triples)
        }
        lost = {number: names for number, names in lost.items() if names}
        if not lost:
            continue
        number, names = next(iter(lost.items()))
        different = len({name for each in lost.values() for name in each})
        others = f" and {different - 1} more" if different > 1 else ""
        what = f"{names[0]!r}{others} of {split} in no training triple"
        triples = counted(len(lost), "triple")
        end = (
            f"{triples} left out"
            if unseen == "drop"
            else f"{triples} ranked by vectors that are not trained (data.unseen=drop: left out)"
        )
        remarks.append(f"{found.place(number)}: {what}; {end}")
        if unseen == "drop":
            kept = [n for n in range(len(found.triples)) if n not in lost]
            found.triples = [found.triples[n] for n in kept]
            found.lines = [found.lines[n] for n in kept]
    return remarks


def _number(files: _Files, remarks: list[str]) -> KnowledgeGraph:
    """The graph: names in the order of their lists, then in that of the triples."""
    entities, relations = dict(files.entities), dict(files.relations)
    named = {
        name: None
        for split in files.splits.values()
        for h, _, t in split.triples
        for name in (h, t)
    }
    if alone := sum(name not in named for name in entities):
        remarks = [
            *remarks,
            f"{counted(alone, 'entity').replace('entitys', 'entities')} in no"
            " triple of any split: candidates that are never right",
        ]
    entities.update(named)
    relations.update({r: None for split in files.splits.values() for _, r, _ in split.triples})
    entity_ids = {name: number for number, name in enumerate(entities)}
    relation_ids = {name: number for number, name in enumerate(relations)}
    splits = {
        name: np.array(
            [(entity_ids[h], relation_ids[r], entity_ids[t]) for h, r, t in split.triples], np.int64
        ).reshape(-1, 3)
        for name, split in files.splits.items()
    }
    return KnowledgeGraph(
        tuple(entities),
        tuple(relations),
        splits,
        {entity_ids[name]: text for name, text in files.texts.items()},
        {relation_ids[name]: text for name, text in files.relation_texts.items()},
        tuple(remarks),
        files.held_out,
    )
