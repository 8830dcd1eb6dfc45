"""A vectors directory: written whole, read with checks, and its controls."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from plmctl.core.errors import DataError
from plmctl.knowledge.vectors import GraphVectors, is_vectors, match_names, read_vectors

E, R, D = 50, 3, 4
RNG = np.random.default_rng(0)
VECTORS = GraphVectors(
    entities=tuple(f"e {n}" for n in range(E)),
    relations=("is", "has", "né"),
    entity=RNG.standard_normal((E, D)).astype(np.float32),
    relation=RNG.standard_normal((R, D)).astype(np.float32),
    inverse=RNG.standard_normal((R, D)).astype(np.float32),
    record={"score": {"_target_": "x"}, "metrics": {}},
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "vectors"
    VECTORS.write(folder)
    read = read_vectors(folder)
    assert (read.entities, read.relations) == (VECTORS.entities, VECTORS.relations)
    for name in ("entity", "relation", "inverse"):
        assert np.array_equal(getattr(read, name), getattr(VECTORS, name))
    assert read.record == VECTORS.record
    assert sorted(file.name for file in folder.iterdir()) == [
        *("entities.txt", "graph.json", "relations.txt", "vectors.safetensors")
    ]
    assert [file.name for file in tmp_path.iterdir()] == ["vectors"]  # nothing is left beside
    replace(VECTORS, inverse=None).write(folder)  # in its place
    assert read_vectors(folder).inverse is None


def test_a_write_that_fails_leaves_the_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    VECTORS.write(tmp_path / "vectors")
    full = OSError("No space left on device")

    def fail(*_: object) -> None:
        raise full

    monkeypatch.setattr("safetensors.numpy.save_file", fail)
    with pytest.raises(OSError, match="No space"):
        replace(VECTORS, entities=("other",) * E).write(tmp_path / "vectors")
    assert read_vectors(tmp_path / "vectors").entities == VECTORS.entities
    assert [file.name for file in tmp_path.iterdir()] == ["vectors"]


def test_shuffled_vectors_are_those_of_other_entities(tmp_path: Path) -> None:
    VECTORS.write(tmp_path / "v")
    shuffled = read_vectors(tmp_path / "v", "shuffled", seed=3)
    again = read_vectors(tmp_path / "v", "shuffled", seed=3)
    assert np.array_equal(shuffled.entity, again.entity)
    assert not np.array_equal(shuffled.entity, VECTORS.entity)
    assert sorted(map(tuple, shuffled.entity)) == sorted(map(tuple, VECTORS.entity))
    moved = (shuffled.entity != VECTORS.entity).any(1).mean()
    assert moved > 0.9
    assert shuffled.entities == VECTORS.entities
    assert np.array_equal(shuffled.relation, VECTORS.relation)
    other = read_vectors(tmp_path / "v", "shuffled", seed=4)
    assert not np.array_equal(shuffled.entity, other.entity)


def test_random_vectors_have_the_spread_of_the_columns() -> None:
    wide = np.array([[1.0, 100.0]]) * RNG.standard_normal((20_000, 2)) + [5, -3]
    vectors = replace(VECTORS, entities=("e",) * 20_000, entity=wide.astype(np.float32)).controlled(
        "random", 1
    )
    assert vectors.entity.dtype == np.float32
    assert vectors.entity.std(0).tolist() == pytest.approx([1, 100], rel=0.03)
    assert vectors.entity[:, 0].mean() == pytest.approx(5, abs=0.05)
    assert abs(np.corrcoef(vectors.entity[:, 0], wide[:, 0])[0, 1]) < 0.05


def test_names_are_matched() -> None:
    assert match_names(["b", "x", "a"], ["a", "b"]).tolist() == [1, -1, 0]


def damage(folder: Path, how: str) -> None:
    match how:
        case "names":
            (folder / "entities.txt").write_text("a\nb\n", encoding="utf-8")
        case "encoding":
            (folder / "relations.txt").write_bytes(b"is\nhas\nn\xe9\n")
        case "truncated":
            file = folder / "vectors.safetensors"
            file.write_bytes(file.read_bytes()[:100])
        case "tensor":
            save_file({"entity": VECTORS.entity}, folder / "vectors.safetensors")
        case "numbers":
            broken = {"entity": VECTORS.entity * np.nan, "relation": VECTORS.relation}
            save_file(broken, folder / "vectors.safetensors")
        case "record":
            (folder / "graph.json").write_text("{", encoding="utf-8")
        case "gone":
            (folder / "graph.json").unlink()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("names", "entities.txt: 2 names for 50 vectors"),
        ("encoding", "relations.txt:3: not UTF-8"),
        ("truncated", "vectors.safetensors: truncated"),
        ("tensor", "there is no tensor 'relation'"),
        ("numbers", "must be two dimensions of finite numbers"),
        ("record", "graph.json: truncated or not JSON"),
        ("gone", "no vectors of a graph here"),
    ],
)
def test_damaged_directories_are_named(tmp_path: Path, how: str, message: str) -> None:
    folder = tmp_path / "vectors"
    VECTORS.write(folder)
    damage(folder, how)
    with pytest.raises(DataError, match=message) as error:
        read_vectors(folder)
    assert "fix:" in str(error.value)
    assert is_vectors(folder) == (how != "gone")


def test_the_record_is_json(tmp_path: Path) -> None:
    VECTORS.write(tmp_path / "v")
    text = (tmp_path / "v" / "graph.json").read_text(encoding="utf-8")
    assert json.loads(text) == VECTORS.record
