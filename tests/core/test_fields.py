"""Which fields a token directory may hold."""

from __future__ import annotations

import pytest

from plmctl.core.fields import Field, held_by_data

MADE = Field("[n, T]", "int", "what a part makes")
STORED = Field("[n, T]", "int", "what a part reads", stored=True)


@pytest.mark.parametrize("group", ["spans", "tracks"])
def test_spans_and_tracks_come_from_the_data_unless_a_part_makes_them(group: str) -> None:
    name = f"{group}.own"
    assert held_by_data(name, {})
    assert held_by_data(name, {name: STORED})
    assert not held_by_data(name, {name: MADE})


@pytest.mark.parametrize("name", ["text", "targets.own", "labels.own", "values.own"])
def test_no_other_field_comes_from_the_data(name: str) -> None:
    assert not held_by_data(name, {})
    assert not held_by_data(name, {name: STORED})
