"""Triples as text: each kind against the graph, and false triples that are no true ones."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.knowledge.graph import KnowledgeGraph
from plmctl.knowledge.triple_texts import TripleTexts

GRAPH = KnowledgeGraph(
    ("ann_lee", "bob", "paris", "cem"),
    ("/people/lives_in", "knows"),
    {"train": np.array([[0, 0, 2], [0, 1, 1]]), "valid": np.array([[1, 1, 0]])},
    texts={2: "Paris, the capital of France", 3: "Cem"},
    relation_texts={1: "is a friend of"},
)
TEXTS = TripleTexts(GRAPH)


def test_a_description_marks_its_first_word() -> None:
    rows = list(TEXTS.descriptions())
    assert [row["text"] for row in rows] == [
        *("ann lee", "bob", "Paris, the capital of France", "Cem")
    ]
    for number, row in enumerate(rows):
        (mark,) = row["entity"]
        assert mark["id"] == number
        assert row["text"][mark["start"] : mark["end"]] == row["text"].split()[0]


def test_head_and_relation_ask_for_the_tail() -> None:
    assert list(TEXTS.comet("train")) == [
        {"source": "ann lee people lives in", "target": "Paris, the capital of France"},
        {"source": "ann lee is a friend of", "target": "bob"},
    ]


def test_relations_are_labels() -> None:
    assert list(TEXTS.classify_relations("valid")) == [
        {"text": "bob", "text2": "ann lee", "label": "knows"}
    ]


def test_true_triples_stand_before_false_ones() -> None:
    rows = list(TEXTS.kg_bert("train", negatives=3, seed=1))
    assert [row["label"] for row in rows] == (["true"] + ["false"] * 3) * 2
    assert rows[4] == {"text": "ann lee", "text2": "is a friend of bob", "label": "true"}


def test_false_triples_are_known_in_no_split() -> None:
    rng = np.random.default_rng(0)
    triples = np.unique(rng.integers(0, [12, 2, 12], (90, 3)), axis=0)
    graph = KnowledgeGraph(
        tuple(map(str, range(12))), ("r", "s"), {"train": triples[::2], "valid": triples[1::2]}
    )
    known = {tuple(triple) for triple in triples.tolist()}
    train = graph.splits["train"]
    false = TripleTexts(graph).corrupt(train, negatives=40, seed=0)
    sides: Counter[str] = Counter()
    for right, wrong in zip(train.tolist(), false.tolist(), strict=True):
        for h, r, t in wrong:
            assert (h, r, t) not in known
            assert r == right[1]
            assert (h == right[0]) != (t == right[2])
            sides["tail" if h == right[0] else "head"] += 1
    assert abs(sides["tail"] - sides["head"]) < 5 * sum(sides.values()) ** 0.5
    again = TripleTexts(graph).corrupt(train, negatives=40, seed=0)
    other = TripleTexts(graph).corrupt(train, negatives=40, seed=1)
    assert np.array_equal(false, again)
    assert not np.array_equal(false, other)


def test_the_command_writes_what_tasks_read(tmp_path: Path) -> None:
    for kind, names in (
        ("descriptions", ["descriptions.jsonl"]),
        ("comet", ["dev.jsonl", "train.jsonl"]),
        ("relations", ["dev.jsonl", "train.jsonl"]),
    ):
        out = tmp_path / kind
        result = CliRunner().invoke(
            make_app(), ["data", "triples", f"kind={kind}", f"out={out}", "--json"]
        )
        assert result.exit_code == 0, result.output
        said = json.loads(result.stdout)
        assert sorted(file.name for file in out.glob("*.jsonl")) == names
        for name in names:
            lines = (out / name).read_text(encoding="utf-8").splitlines()
            assert len(lines) == said[name] > 100
            assert isinstance(json.loads(lines[0]), dict)
    again = CliRunner().invoke(make_app(), ["data", "triples", f"out={tmp_path / 'comet'}"])
    assert again.exit_code == 2
    assert "fix: out=NEW_FOLDER" in again.output
