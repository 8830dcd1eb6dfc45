"""Readers of graphs: every layout, and every kind of bad input with its place and fix."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from plmctl.core.errors import DataError
from plmctl.knowledge.graph import KnowledgeGraph
from plmctl.knowledge.triples import read_graph
from tests.marks import mark_slow

TRAIN = "ann\tknows\tbob\nbob\tknows\tcem\ncem\tlikes\tann\n"
SHARED = Path(__file__).parents[2].parent / "shared/data/knowledge_graph"


def write(folder: Path, files: Mapping[str, str]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        raw = text.encode()
        (folder / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return folder


def named(graph: KnowledgeGraph, split: str) -> list[tuple[str, str, str]]:
    return [
        (graph.entities[h], graph.relations[r], graph.entities[t])
        for h, r, t in graph.splits[split].tolist()
    ]


@pytest.mark.parametrize("end", [".tsv", ".txt", ".tsv.gz", ".txt.gz"])
@pytest.mark.parametrize("valid", ["valid", "dev", "validation"])
def test_a_folder_of_splits(tmp_path: Path, end: str, valid: str) -> None:
    files = {f"train{end}": TRAIN, f"{valid}{end}": "ann\tlikes\tcem\n", "README.md": "x"}
    graph = read_graph(write(tmp_path, files))
    assert graph.entities == ("ann", "bob", "cem")
    assert graph.relations == ("knows", "likes")
    assert list(graph.splits) == ["train", "valid"]
    assert graph.splits["train"].tolist() == [[0, 0, 1], [1, 0, 2], [2, 1, 0]]
    assert named(graph, "valid") == [("ann", "likes", "cem")]
    assert not graph.remarks


def test_names_and_texts_beside_the_triples(tmp_path: Path) -> None:
    files = {
        "train.tsv": TRAIN,
        "entity2text.txt": "zoe\tZoe, a cat\nann\tAnn\nbob\tBob\ncem\tCem\n",
        "relation2text.txt": "likes\tis fond of\n",
    }
    graph = read_graph(write(tmp_path, files), valid_share=0)
    assert graph.entities == ("zoe", "ann", "bob", "cem")
    assert graph.texts[0] == "Zoe, a cat"
    assert graph.relations == ("likes", "knows")
    assert graph.relation_texts == {0: "is fond of"}
    assert graph.remarks == ("1 entity in no triple of any split: candidates that are never right",)


def test_lists_give_the_numbers(tmp_path: Path) -> None:
    lists = {"entities.txt": "cem\nbob\nann\n", "relations.txt": "likes\nknows\n"}
    graph = read_graph(write(tmp_path, {"train.tsv": TRAIN, **lists}), valid_share=0)
    assert graph.entities == ("cem", "bob", "ann")
    assert graph.relations == ("likes", "knows")
    assert named(graph, "train")[0] == ("ann", "knows", "bob")


def test_a_knowledge_directory(tmp_path: Path) -> None:
    entities = [
        {"name": "bob", "aliases": [["Bobby", 3]], "types": [], "text": "Bob is a man."},
        {"name": "ann", "aliases": [], "types": [], "text": ""},
        {"name": "", "aliases": [["cem", 2]], "types": [], "text": ""},
        {"name": "", "aliases": [], "types": [], "text": ""},
    ]
    files = {
        "knowledge.json": "{}",
        "triples.tsv": TRAIN,
        "relations.txt": "likes\nknows\n",
        "entities.jsonl": "".join(json.dumps(entity) + "\n" for entity in entities),
    }
    graph = read_graph(write(tmp_path, files), valid_share=0)
    assert graph.entities == ("bob", "ann", "cem")
    assert graph.texts == {0: "Bob is a man."}
    assert named(graph, "train")[0] == ("ann", "knows", "bob")


def test_files_of_openke(tmp_path: Path) -> None:
    files = {
        "entity2id.txt": "3\nann\t2\nbob\t0\ncem\t1\n",
        "relation2id.txt": "2\nlikes\t1\nis fond of\t0\n",
        "train2id.txt": "2\n2 0 1\n0\t1\t0\n",  # head tail relation
        "valid2id.txt": "1\n2 1 0\n",
    }
    graph = read_graph(write(tmp_path, files))
    assert graph.entities == ("bob", "cem", "ann")
    assert graph.relations == ("is fond of", "likes")
    assert named(graph, "train") == [("ann", "likes", "bob"), ("bob", "is fond of", "cem")]
    assert named(graph, "valid") == [("ann", "is fond of", "cem")]


def test_triples_are_held_out_of_one_file(tmp_path: Path) -> None:
    lines = [f"e{n % 20}\tr{n % 3}\te{(n * 7 + 1) % 20}" for n in range(60)]
    file = write(tmp_path, {"all.tsv": "\n".join(dict.fromkeys(lines)) + "\n"}) / "all.tsv"
    graph, again = read_graph(file, valid_share=0.2), read_graph(file, valid_share=0.2)
    train, valid = named(graph, "train"), named(graph, "valid")
    assert len(valid) == pytest.approx(0.2 * (len(train) + len(valid)), abs=1)
    assert not set(train) & set(valid)
    assert {name for h, _, t in valid for name in (h, t)} <= {
        name for h, _, t in train for name in (h, t)
    }
    assert {r for _, r, _ in valid} <= {r for _, r, _ in train}
    assert graph.fingerprint == again.fingerprint
    smaller = read_graph(file, valid_share=0.1)
    assert set(named(smaller, "valid")) < set(valid)
    assert list(read_graph(file, valid_share=0).splits) == ["train"]


def test_what_repeats_is_left_out_and_counted(tmp_path: Path) -> None:
    files = {
        "train.tsv": TRAIN + "ann\tknows\tbob\nann\tknows\tbob\n",
        "valid.tsv": "bob\tlikes\tann\nbob\tknows\tcem\n",
    }
    graph = read_graph(write(tmp_path, files))
    assert len(graph.splits["train"]) == 3
    assert len(graph.splits["valid"]) == 2
    assert graph.remarks == (
        f"{tmp_path}/train.tsv:4: 2 triples of train came before, left out",
        f"{tmp_path}/valid.tsv:2: 1 triple of valid are trained on, too",
    )


def test_what_is_not_trained_is_named(tmp_path: Path) -> None:
    files = {"train.tsv": TRAIN, "valid.tsv": "ann\tknows\tcem\nann\tknows\tdan\neve\thates\tdan\n"}
    kept = read_graph(write(tmp_path, files))
    assert len(kept.splits["valid"]) == 3
    assert kept.entities[3:] == ("dan", "eve")
    (remark,) = kept.remarks
    assert remark.startswith(f"{tmp_path}/valid.tsv:2: 'dan' and 2 more of valid in no training")
    assert "2 triples ranked by vectors that are not trained (data.unseen=drop" in remark
    dropped = read_graph(tmp_path, unseen="drop")
    assert named(dropped, "valid") == [("ann", "knows", "cem")]
    assert "2 triples left out" in dropped.remarks[0]


BAD = {
    "two columns": ({"train.tsv": "a\tr\tb\na\tr\n"}, "train.tsv:2: 2 columns where"),
    "spaces": ({"train.tsv": "a r b\n"}, "train.tsv:1: 1 column .* between spaces, not tabs"),
    "nothing in a column": ({"train.tsv": "a\t\tb\n"}, "train.tsv:1: the relation is empty"),
    "four columns": ({"train.tsv.gz": "a\tr\tb\tc\n"}, "train.tsv.gz:1: 4 columns"),
    "empty": ({"train.tsv": "\n \n"}, "train.tsv: the file is empty"),
    "no train": ({"test.tsv": TRAIN}, "no training triples: looked for train.tsv"),
    "two trains": ({"train.tsv": TRAIN, "train.txt": TRAIN}, "several files could be meant"),
    "a list without text": (
        {"train.tsv": TRAIN, "entity2text.txt": "ann\tAnn\nbob\n"},
        "entity2text.txt:2: no name with a description",
    ),
    "another key of an entity": (
        {"triples.tsv": TRAIN, "entities.jsonl": '{"name": "ann"}\n{"nam": "x"}\n'},
        "entities.jsonl:2: unknown key 'nam'",
    ),
    "no json": (
        {"triples.tsv": TRAIN, "entities.jsonl": '{"name": "ann"\n'},
        "entities.jsonl:1: not JSON",
    ),
    "no count": (
        {"train2id.txt": "1\n0 0 0\n", "entity2id.txt": "ann\t0\n", "relation2id.txt": "1\nr\t0\n"},
        "entity2id.txt:1: the first line is no count",
    ),
    "no such number": (
        {
            "train2id.txt": "1\n0 9 0\n",
            "entity2id.txt": "1\nann\t0\n",
            "relation2id.txt": "1\nr\t0",
        },
        "train2id.txt:2: not the numbers",
    ),
    "no list": ({"train2id.txt": "1\n0 0 0\n"}, "entity2id.txt: no such file"),
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_bad_input_is_answered_with_its_place_and_a_fix(tmp_path: Path, name: str) -> None:
    files, message = BAD[name]
    with pytest.raises(DataError, match=message) as error:
        read_graph(write(tmp_path / "graph", files))
    assert "fix:" in str(error.value)


def test_broken_lines_are_told_together(tmp_path: Path) -> None:
    lines = ["a\tr\tb", "a\tr", "\t\t", "", "a\t\tb", "\t", *["a r b"] * 4]
    file = write(tmp_path, {"all.tsv": "\n".join(lines) + "\n"}) / "all.tsv"
    with pytest.raises(DataError) as error:
        read_graph(file)
    assert str(error.value).splitlines() == [
        f"{file}:2: 2 columns where a triple has 3",
        f"  {file}:3: the head, relation, tail are empty",
        f"  {file}:5: the relation is empty",
        f"  {file}:6: 2 columns where a triple has 3",
        f"  {file}:7: 1 column where a triple has 3: they stand between spaces, not tabs",
        "  and 3 lines more",
        "  fix: # write head, relation and tail with a tab between them, or remove the line",
    ]
    openke = {"entity2id.txt": "1\na\t0\n", "relation2id.txt": "1\nr\t0\n"}
    openke["train2id.txt"] = "4\n0 0 0\n0 9 0\n0 0\n0 0 0\n"
    with pytest.raises(DataError, match=r"train2id.txt:3: (?s:.*)\n  .*train2id.txt:4: not the"):
        read_graph(write(tmp_path / "openke", openke))


def test_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_bytes("ann\tknows\tbob\nann\tknows\tJosé\n".encode("latin1"))
    with pytest.raises(DataError, match=r"train.tsv:2: not UTF-8.*\n  fix: iconv") as error:
        read_graph(tmp_path)
    assert error.value.exit_code == 3


def test_a_damaged_archive_and_a_missing_folder(tmp_path: Path) -> None:
    (tmp_path / "train.tsv.gz").write_bytes(gzip.compress(TRAIN.encode())[:-10])
    with pytest.raises(DataError, match="damaged gzip file"):
        read_graph(tmp_path)
    with pytest.raises(DataError, match="no such file"):
        read_graph(tmp_path / "other")


def test_a_cycle_is_a_graph_too(tmp_path: Path) -> None:
    files = {"train.tsv": "a\tr\ta\na\tr\tb\nb\tr\ta\n"}
    assert len(read_graph(write(tmp_path, files), valid_share=0).splits["train"]) == 3


def test_the_graph_of_python() -> None:
    graph = read_graph("builtin")
    assert set(graph.relations) == {"subclass_of", "defined_in", "defines", "overrides"}
    triples = {*named(graph, "train"), *named(graph, "valid")}
    assert ("KeyError", "subclass_of", "LookupError") in triples
    assert ("collections.OrderedDict", "overrides", "dict.pop") in triples
    assert len(triples) > 1500
    assert len(graph.splits["valid"]) == pytest.approx(0.05 * len(triples), abs=1)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "entities", "relations", "train", "valid"),
    mark_slow(
        [("wn18rr", 40943, 11, 86835, 3034), ("fb15k237", 14541, 237, 272115, 17535)],
        slow=[("fb15k237", 14541, 237, 272115, 17535)],
    ),
)
def test_published_graphs(name: str, entities: int, relations: int, train: int, valid: int) -> None:
    if not SHARED.is_dir():
        pytest.skip("no shared data")
    graph = read_graph(SHARED / name)
    assert len(graph.relations) == relations
    assert {split: len(rows) for split, rows in graph.splits.items()} == {
        "train": train,
        "valid": valid,
    }
    assert len(graph.entities) == entities
    assert len(graph.texts) == entities
    assert np.bincount(graph.kinds(), minlength=4).sum() == relations
