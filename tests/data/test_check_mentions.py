"""What `data check` says of marks and of the entities that they mean."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plmctl.config.build import build
from plmctl.config.compose import compose
from plmctl.core.errors import DataError
from plmctl.data.check.finding import Finding
from plmctl.data.check.mentions import check_mentions
from plmctl.data.shards import Shards
from plmctl.data.survey import TextSource
from plmctl.data.tokenizing import TokenizingJob, tokenize
from tests.knowledge.tables import ENTITIES, write_knowledge

TEXT = "Paris saw London and Rome. Ada did not."


def mark(word: str, entity: int) -> dict[str, int]:
    start = TEXT.index(word)
    return {"start": start, "end": start + len(word), "id": entity}


ROWS: list[dict[str, Any]] = [
    {"text": TEXT, "entity": [mark("Paris", 0), mark("Rome", 2), mark("Ada", 6)]}
] * 8
ROWS += [{"text": "Nobody is here.", "entity": []}] * 8


def tokens_of(folder: Path) -> Shards:
    cfg = compose("tokenize", None, ["tokenizer=char", f"out={folder / 'tokens'}"])
    source = TextSource(str(folder / "text.jsonl"), spans=("entity",))
    recipe = build(cfg.tokenizer, path="tokenizer")
    tokenize(TokenizingJob(source, recipe, valid_share=0, processes=1), folder / "tokens")
    return Shards.open(folder / "tokens")


def findings(shards: Shards) -> dict[str, Finding]:
    return {finding.name: finding for finding in check_mentions(shards)}


def test_coverage_is_that_of_a_count(tmp_path: Path) -> None:
    shards = tokens_of(write_knowledge(tmp_path, rows=ROWS))
    found = findings(shards)
    inside = 8 * len("ParisRomeAda")
    numbers = found["mentions (entity)"].numbers
    assert numbers == {
        "mentions": 24,
        "documents": 0.5,
        "tokens": pytest.approx(inside / len(shards.ids)),
    }
    types = found["types"].numbers
    assert types["mentions"] == {"city": 16}
    assert types["mentions without a type"] == pytest.approx(1 / 3)
    assert (types["types"], types["types with one member"]) == (3, 1)
    assert types["entities without a type"] == 1
    assert found["entities"].found == f"3 of {len(ENTITIES)} are mentioned"
    assert {finding.verdict for finding in found.values()} == {"ok"}


def test_marks_that_were_left_out_are_counted(tmp_path: Path) -> None:
    across = {"text": TEXT, "entity": [{"start": 21, "end": 30, "id": 0}, mark("Paris", 0)]}
    left = findings(tokens_of(write_knowledge(tmp_path, rows=[across] * 4)))["marks left out"]
    assert left.verdict == "bad"
    assert left.found == "50%: 4 'entity' across the end of a sentence"


def test_unknown_ids_and_unnamed_entities_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TextSource, "entities", lambda self: {})  # as earlier versions tokenized
    entities: list[dict[str, Any]] = [*ENTITIES[:6], {"name": ""}]
    rows = [{"text": TEXT, "entity": [mark("Paris", 0), mark("Rome", 9)]}] * 4
    entity = findings(tokens_of(write_knowledge(tmp_path, entities, rows=rows)))["entities"]
    assert entity.verdict == "bad"
    assert "1 without a name; 4 marks have an id that no entity has" in entity.found
    assert "entities.jsonl:7: with neither name nor alias" in entity.advice


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({**mark("Rome", 99)}, r"'entity'\[1\]: its id 99 is none of the \d+ entities of the text"),
        ({"start": 14, "end": 20}, r"'entity'\[1\]: has no 'id', which entity it means"),
    ],
)
def test_marks_of_no_entity_are_refused_where_they_are_read(
    tmp_path: Path, wrong: dict[str, int], said: str
) -> None:
    rows: list[dict[str, Any]] = [*ROWS[:2], {"text": TEXT, "entity": [mark("Paris", 0), wrong]}]
    folder = write_knowledge(tmp_path, rows=rows)
    with pytest.raises(DataError, match=rf"text\.jsonl:3: {said}") as caught:
        tokens_of(folder)
    assert "\n  fix: " in str(caught.value)
    assert not (folder / "tokens").exists()


def test_entities_that_were_cut_off_are_told(tmp_path: Path) -> None:
    file = write_knowledge(tmp_path, rows=ROWS) / "entities.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[:-5])
    with pytest.raises(DataError, match=rf"entities\.jsonl:{len(ENTITIES)}: "):
        tokens_of(tmp_path)
    about = json.loads((tmp_path / "knowledge.json").read_text())
    counts = {"counts": {"entities": len(ENTITIES)}}
    (tmp_path / "knowledge.json").write_text(json.dumps({**about, **counts}))
    file.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    with pytest.raises(DataError, match=r"ends behind \d+ entities, where knowledge\.json counts"):
        tokens_of(tmp_path)


def test_knowledge_that_changed_or_went_is_said(tmp_path: Path) -> None:
    shards = tokens_of(write_knowledge(tmp_path, rows=ROWS))
    write_knowledge(tmp_path, ENTITIES[::-1], rows=ROWS)
    changed = findings(shards)["entities"]
    assert changed.verdict == "bad"
    assert "not of this one" in changed.found
    (tmp_path / "knowledge.json").unlink()
    assert findings(shards)["entities"].found.endswith("is not there")


def test_tokens_without_marks_say_nothing(tokens_of: Callable[..., Path]) -> None:
    assert check_mentions(Shards.open(tokens_of("wordpiece"))) == []


def test_few_mentions_are_worth_a_look(tmp_path: Path) -> None:
    rows = [*ROWS[:1], *[{"text": "Nobody is here. " * 40, "entity": []}] * 8]
    found = findings(tokens_of(write_knowledge(tmp_path, rows=rows)))
    assert found["mentions (entity)"].verdict == "look"
    assert np.isclose(found["mentions (entity)"].numbers["documents"], 1 / 9)
