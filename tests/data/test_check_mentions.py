"""What `data check` says of marks and of the entities that they mean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from plmctl.data.check.finding import Finding
from plmctl.data.check.mentions import check_mentions
from plmctl.data.shards import Shards
from plmctl.data.survey import TextSource
from plmctl.data.tokenizing import TokenizingJob, tokenize
from plmctl.run.build import build
from plmctl.run.compose import compose
from tests.knowledge.tables import ENTITIES, write_knowledge

TEXT = "Paris saw London and Rome. Ada did not."


def mark(word: str, entity: int) -> dict[str, int]:
    start = TEXT.index(word)
    return {"start": start, "end": start + len(word), "id": entity}


ROWS = [{"text": TEXT, "entity": [mark("Paris", 0), mark("Rome", 2), mark("Ada", 6)]}] * 8
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


def test_unknown_ids_and_unnamed_entities_are_named(tmp_path: Path) -> None:
    entities = [*ENTITIES[:6], {"name": ""}]
    rows = [{"text": TEXT, "entity": [mark("Paris", 0), mark("Rome", 9)]}] * 4
    entity = findings(tokens_of(write_knowledge(tmp_path, entities, rows=rows)))["entities"]
    assert entity.verdict == "bad"
    assert "1 without a name; 4 marks have an id that no entity has" in entity.found
    assert "entities.jsonl:7: with neither name nor alias" in entity.advice


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
