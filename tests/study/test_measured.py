"""Kept results: which of them the catalogue credits, and what it says of untrained heads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from plmctl.analysis.statistics import ALPHA
from plmctl.config.recipes import load, recipes_dir
from plmctl.study import measured
from plmctl.study.study import Metric, Published
from plmctl.study.untrained import find_untrained, list_untrained

LOGS = Path(__file__).parents[2] / "docs/results"
ENTRIES = measured.read()
FILES = {file.stem: load(file) for file in (recipes_dir() / "studies").glob("*.yaml")}
CREDITED = [
    (name, number)
    for name, entries in ENTRIES.items()
    for number, entry in enumerate(entries)
    if "copy" not in entry and entry["form"] == measured.identify(FILES[name])
]


def count(name: str) -> str:
    return measured.count(name, FILES[name])


def test_every_entry_has_its_section_and_every_logged_study_its_entry() -> None:
    logs = "\n".join(page.read_text(encoding="utf-8") for page in LOGS.glob("*.md"))
    headings = set(re.findall(r"^## (.*)$", logs, re.MULTILINE))
    assert {*re.findall(r"^(?:`?plmctl ablate |`recipes/studies/)(\w+)", logs, re.MULTILINE)} <= {
        *ENTRIES
    }
    assert all(entry["where"] in headings for entries in ENTRIES.values() for entry in entries)
    assert measured.spell(ENTRIES) == (recipes_dir() / "studies/measured.json").read_text()


@pytest.mark.parametrize(("name", "number"), CREDITED)
def test_what_is_credited_is_about_the_study_as_it_is(name: str, number: int) -> None:
    """Arms, metrics and directions are those of the file, and each verdict is that of its row."""
    study = FILES[name]
    for row in ENTRIES[name][number]["rows"]:
        assert row["arm"] in {str(arm) for arm in study["arms"]}
        expected = study["metrics"][row["metric"]].get("expect", {}).get(row["arm"])
        assert row.get("expected") == expected
        if row.get("verdict") and "p_holm" in row:
            right = (row["difference"] > 0) == (expected == "higher")
            clear = row["p_holm"] < ALPHA
            told = ("held" if right else "not held") if clear else "undecided"
            assert row["verdict"] == told


def test_counts_are_those_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """9 of 9 after the run that the README shows; former forms and copies count nothing."""
    assert count("prenorm_gradients") == "9 held"
    assert count("bert_sizes") == count("spanbert_sbo") == "not in this form"
    assert count("encoders") == "not measured"
    entry = ENTRIES["roberta_data"][0]
    assert count("roberta_data") == "3 held"
    for change in ({"copy": "it had other arms"}, {"form": "00000000"}):
        changed: dict[str, Any] = {"roberta_data": [entry | change]}
        monkeypatch.setattr(measured, "read", lambda changed=changed: changed)
        assert count("roberta_data") == "not in this form"


def test_a_form_is_what_is_trained() -> None:
    study = FILES["roberta_data"]
    form = measured.identify(study)
    assert measured.identify(study | {"title": "x", "seeds": [7]}) == form
    assert measured.identify(study | {"start": "encoder"}) != form
    assert measured.identify(study | {"arms": {**study["arms"], "x": []}}) != form


def test_heads_that_are_not_trained_are_found() -> None:
    words = ["objective.lexical_relation.weight=0", "~objective.sop", "objective.mlm.weight=0.5"]
    assert list_untrained(words) == {"lexical_relation", "sop"}
    arms = {"without": words, "relations": [], "all": []}
    metrics = {
        "relations": Metric("pretrain", "acc/lexical"),
        "order": Metric("pretrain", "acc/sop", published=Published("%", {"all": 1.0})),
        "masked": Metric("pretrain", "loss/mlm"),
        "task": Metric("wic", "accuracy"),
    }
    found = find_untrained(arms, "without", metrics)
    assert found == [("relations", "relations"), ("relations", "all"), ("order", "relations")]
    # of a baseline that trains it, the arm that does not is meant
    assert find_untrained(arms, "all", metrics) == [("relations", "without"), ("order", "without")]


def test_held_against_an_untrained_head_is_no_verdict_on_a_paper() -> None:
    assert count("erica_controls") == "2 undecided, 2 against an untrained head"
    assert count("wklm") == "1 undecided, 1 against an untrained head"
    assert len(CREDITED) > 30
