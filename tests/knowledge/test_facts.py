"""Facts between entities: lookups by a loop, controls, what is missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from plmctl.core.errors import DataError
from plmctl.knowledge.facts import LINKED, FactTable

FACTS = [("a", "in", "b"), ("a", "near", "b"), ("b", "in", "c"), ("d", "near", "a")]


def write(folder: Path, facts: list[tuple[str, str, str]]) -> str:
    folder.mkdir()
    (folder / "knowledge.json").write_text('{"version": 1}')
    names = "".join(f'{{"name": "{name}"}}\n' for name in "abcd")
    (folder / "entities.jsonl").write_text(names)
    (folder / "relations.txt").write_text("in\nnear\n")
    (folder / "triples.tsv").write_text("".join("\t".join(fact) + "\n" for fact in facts))
    return str(folder)


def found(table: FactTable) -> set[tuple[int, int, int]]:
    """All facts of entities 0 to 5, the last of which are unknown."""
    head, tail = np.repeat(np.arange(6), 6), np.tile(np.arange(6), 6)
    pair, relation = table.find(head, tail)
    assert (np.diff(pair) >= 0).all()
    return {(int(head[p]), int(r), int(tail[p])) for p, r in zip(pair, relation, strict=True)}


def test_facts_and_controls(tmp_path: Path) -> None:
    path = write(tmp_path / "k", FACTS)
    wanted = {(0, 0, 1), (0, 1, 1), (1, 0, 2), (3, 1, 0)}
    table = FactTable(knowledge=path)
    assert found(table) == wanted
    assert table.names == ["in", "near"]
    pairs = {(h, t) for h, _, t in wanted}
    seen = set()
    for seed in range(6):
        shuffled = found(FactTable(knowledge=path, control="shuffled", seed=seed))
        assert {(h, t) for h, _, t in shuffled} <= pairs
        seen.add(tuple(sorted(shuffled)))
    assert len(seen) > 1
    random = FactTable(knowledge=path, control="random", seed=1)
    assert found(random) != wanted
    assert random.names == table.names


def test_random_facts_without_a_directory() -> None:
    table = FactTable(seed=2)
    head, tail = np.repeat(np.arange(80), 80), np.tile(np.arange(80), 80)
    pair, relation = table.find(head, tail)
    assert len(pair) / 6400 == pytest.approx(LINKED, abs=0.03)
    assert np.bincount(relation, minlength=8).min() > 0.05 * len(pair)
    again = table.find(head[::-1].copy(), tail[::-1].copy())
    assert len(again[0]) == len(pair)
    assert not np.array_equal(FactTable(seed=3).find(head, tail)[0], pair)


def test_a_directory_without_triples(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no triples between its entities"):
        found(FactTable(knowledge=write(tmp_path / "k", [])))
