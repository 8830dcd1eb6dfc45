"""Parts that moved are found by the names that they had, in a run that the code of before wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from plmctl.config.saved import read_saved
from plmctl.config.walks import targets_in
from plmctl.core.locate import locate
from plmctl.core.moved import MOVED, find_moved, name_before

SAVED = Path(__file__).parents[1] / "fixtures" / "saved"  # its README says how it was made


@pytest.mark.parametrize("before", MOVED)
def test_a_part_is_found_by_both_names(before: str) -> None:
    now = MOVED[before]
    assert now not in MOVED
    assert locate(before) is locate(now)
    assert find_moved(before) == find_moved(now) == now
    assert name_before(now) == before


def test_saved_settings_have_the_names_of_today() -> None:
    text = (SAVED / "finetuned" / "config.yaml").read_text(encoding="utf-8")
    assert "plmctl.tasks.tables.Table" in text
    names = set(targets_in(read_saved(SAVED / "finetuned" / "config.yaml")))
    assert "plmctl.tasks.readers.tables.Table" in names
    assert not names & MOVED.keys()
    saved = {find_moved(name) for name in targets_in(yaml.safe_load(text))}
    assert names <= saved
    unused = {name for name in saved - names if not name.startswith("plmctl.nn.")}
    assert unused <= {"plmctl.attention.patterns.linked.Linked"}  # of cells that no layout has
