"""Knowledge directories: what is read, what a shuffled one means, and what is refused by line."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from plmctl.core.errors import DataError
from plmctl.knowledge.directory import KnowledgeDirectory, refuse_other_knowledge
from tests.knowledge.tables import ENTITIES, write_knowledge

MARK = {"start": 0, "end": 5, "id": 0}


def test_entities_are_read_by_their_line(tmp_path: Path) -> None:
    triples = [("Paris", "capital of", "France"), ("Seine", "flows through", "Paris")]
    known = KnowledgeDirectory(write_knowledge(tmp_path, triples=triples))
    assert len(known) == len(ENTITIES)
    assert known[0].aliases == (("Paris", 9), ("City of Light", 2))
    assert known[1].text == "A capital."
    assert [entity.name for entity in known] == known.names == [e["name"] for e in ENTITIES]
    assert {kind: ids.tolist() for kind, ids in known.members.items()} == {
        "city": [0, 1, 2],
        "country": [3, 4],
        "river": [5],
    }
    assert known.relations == ["capital of", "flows through"]
    assert known.triples.tolist() == [[0, 0, 3], [5, 1, 0]]
    with pytest.raises(IndexError):
        known[7]


def test_shuffled_knowledge_is_the_same_with_other_ids(tmp_path: Path) -> None:
    folder = write_knowledge(tmp_path)
    plain, other = KnowledgeDirectory(folder), KnowledgeDirectory(folder, shuffled=3)
    assert Counter(plain) == Counter(other)
    assert plain.names != other.names
    assert [entity.name for entity in other] == other.names
    assert other.names == KnowledgeDirectory(folder, shuffled=3).names
    assert other.names != KnowledgeDirectory(folder, shuffled=4).names
    for number, entity in enumerate(other):
        assert (entity.name, entity.types) == (other.names[number], other.types[number])
        assert number in (other.members[entity.types[0]] if entity.types else [number])


def test_entities_without_names_are_used_as_far_as_they_go(tmp_path: Path) -> None:
    entities = [{"name": "A"}, {"name": "", "aliases": [["bee", 2]]}, {"types": ["x"]}, {}]
    known = KnowledgeDirectory(write_knowledge(tmp_path, entities))
    assert known.names == ["A", "bee", "", ""]
    assert known.problems == {"without a name": 1, "with neither name nor alias": 2}
    lines = known.describe_problems()
    assert lines[0].endswith("entities.jsonl:2: without a name")
    assert lines[1].endswith("entities.jsonl:3: with neither name nor alias, and 1 more")


def test_mentions_are_counted_by_the_text_or_else_by_aliases(tmp_path: Path) -> None:
    folder = write_knowledge(tmp_path)
    by_alias = [sum(count for _, count in each.get("aliases", ())) for each in ENTITIES]
    assert KnowledgeDirectory(folder).mentions.tolist() == by_alias
    counts = list(range(len(ENTITIES)))
    (folder / "mentions.txt").write_text("".join(f"{count}\n" for count in counts))
    assert KnowledgeDirectory(folder).mentions.tolist() == counts
    assert KnowledgeDirectory(folder, shuffled=3).mentions.tolist() == counts
    (folder / "mentions.txt").write_text("1\n2\n")
    with pytest.raises(DataError, match=r"mentions.txt: counts of 2 entities, and there are"):
        _ = KnowledgeDirectory(folder).mentions
    (folder / "mentions.txt").write_text("1\nmany\n")
    with pytest.raises(DataError, match=r"mentions.txt:2: 'many' is no count"):
        _ = KnowledgeDirectory(folder).mentions


def test_triples_of_unknown_names_are_counted(tmp_path: Path) -> None:
    triples = [("Paris", "in", "France"), ("Paris", "in", "Gaul")]
    known = KnowledgeDirectory(write_knowledge(tmp_path, triples=triples))
    assert known.triples.tolist() == [[0, 0, 3]]
    assert known.describe_problems() == [f"{tmp_path}/triples.tsv:2: triples of unknown names"]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{", "entities.jsonl:2: not JSON"),
        ("[]", "entities.jsonl:2: not an entity"),
        (
            '{"nam": "x"}',
            "entities.jsonl:2: unknown key 'nam' .did you mean 'name'.*: an entity has name,",
        ),
        ('{"name": 3}', "entities.jsonl:2: 'name' and 'text' are texts"),
        ('{"name": "x", "types": "city"}', "entities.jsonl:2: 'types' is no list"),
        ('{"name": "x", "aliases": ["y"]}', "entities.jsonl:2: 'aliases' is no list"),
    ],
)
def test_a_line_that_is_no_entity_is_named(tmp_path: Path, line: str, what: str) -> None:
    write_knowledge(tmp_path)
    (tmp_path / "entities.jsonl").write_text(f'{{"name": "Paris"}}\n{line}\n')
    with pytest.raises(DataError, match=what):
        KnowledgeDirectory(tmp_path)


@pytest.mark.parametrize(
    ("mark", "what"),
    [
        ({"end": 9}, "text.jsonl:2: 'entity'.1.: 0..9 lies outside the text of 5 characters"),
        ({"id": 7}, "text.jsonl:2: 'entity'.1.: there is no entity 7, only 7"),
    ],
)
def test_marks_of_the_text_are_checked_by_line(tmp_path: Path, mark: dict, what: str) -> None:
    rows = [{"text": "Paris", "entity": [MARK]}, {"text": "Paris", "entity": [MARK, MARK | mark]}]
    known = KnowledgeDirectory(write_knowledge(tmp_path, rows=rows))
    rows = known.documents()
    assert next(rows)["entity"] == [MARK]
    with pytest.raises(DataError, match=what):
        next(rows)


def test_other_folders_and_versions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"not a knowledge directory.*\n  fix: plmctl data link"):
        KnowledgeDirectory(tmp_path)
    write_knowledge(tmp_path)
    (tmp_path / "knowledge.json").write_text('{"version": 9}')
    with pytest.raises(DataError, match="version 9 is unknown"):
        KnowledgeDirectory(tmp_path)
    write_knowledge(tmp_path, [])
    with pytest.raises(DataError, match="no entities"):
        KnowledgeDirectory(tmp_path)


def test_tokens_of_another_knowledge_directory_are_refused(tmp_path: Path) -> None:
    known = KnowledgeDirectory(write_knowledge(tmp_path / "a"))
    other = KnowledgeDirectory(write_knowledge(tmp_path / "b", ENTITIES[:3]))
    manifest = {"knowledge": {"path": str(known.folder), "fingerprint": known.fingerprint}}
    refuse_other_knowledge(manifest, known)
    refuse_other_knowledge({}, other)
    with pytest.raises(DataError, match=f"fix: knowledge={known.folder}  # or tokenize"):
        refuse_other_knowledge(manifest, other)
