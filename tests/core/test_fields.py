"""The glossary of fields, and those that a token directory may hold."""

from __future__ import annotations

from typing import ClassVar

import pytest

from plmctl.core.fields import COMMON, Field, Fields, glossary, held_by_data, sequences

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


def test_sequences_are_told_by_their_type() -> None:
    known = {"text": Field("", "Seq", "an input"), "tracks.own": MADE}
    assert sequences(["text", "tracks.own", "unknown"], known) == {"text"}


def test_the_glossary_has_the_fields_of_every_part_and_the_common_ones() -> None:
    class One:
        fields: ClassVar[Fields] = {"tracks.one": MADE}

    class Two:
        fields: ClassVar[Fields] = {"tracks.two": MADE}

    assert glossary([One(), Two()]) == {**COMMON, "tracks.one": MADE, "tracks.two": MADE}
