"""Fields: every name that a part speaks of is introduced by some part, once, and the glossary
shows it.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.config.build import build
from plmctl.config.glossary import fields_in, known_fields
from plmctl.config.part_help import targets
from plmctl.config.recipes import load, part_files
from plmctl.core.errors import UsageError
from plmctl.core.fields import COMMON, Field, fields_of, glossary, held_by_data, sequences
from plmctl.core.locate import locate
from plmctl.runs.contract.stand_in import TINY

SPOKEN_OF = ("provides", "reads", "writes", "removes", "needs", "uses")
ROWS = ("format", "noise")  # slots whose parts are made of a vocabulary alone


def parts(slot: str) -> dict[str, type]:
    return {
        f"{slot}={name}.{target}": locate(target)
        for name, file in part_files(slot).items()
        for target in targets(file)
    }


@pytest.mark.parametrize("slot", ["format", "noise", "objective", "pattern", "model", "task"])
def test_every_name_that_a_part_speaks_of_is_in_the_glossary(slot: str) -> None:
    known = {"input", *known_fields()}
    found = parts(slot)
    assert found
    for name, part in found.items():
        for attribute in SPOKEN_OF:
            said = getattr(part, attribute, ())
            names = said if isinstance(said, frozenset) else frozenset()
            assert names <= known, f"{name}: {attribute} {sorted(names - known)}"


@pytest.mark.parametrize("slot", ROWS)
def test_what_a_part_says_only_once_it_is_made(slot: str) -> None:
    known = {"input", *known_fields()}
    for name, file in part_files(slot).items():
        try:
            part = build(load(file), {"vocab": TINY, "max_length": 8}, path=slot)
        except (UsageError, ValueError):  # needs more than a vocabulary of nothing
            continue
        assert getattr(part, "writes" if slot == "noise" else "provides") <= known, name


def test_a_name_means_one_thing() -> None:
    meant: dict[str, Field] = dict(COMMON)
    for slot in ("format", "noise", "objective", "pattern", "model", "task"):
        for part in parts(slot).values():
            for name, field in fields_of(part).items():
                assert meant.setdefault(name, field) == field, f"{part}: {name}"


def test_the_glossary_is_printed() -> None:
    done = CliRunner().invoke(make_app(), ["help", "fields"], env={"COLUMNS": "240"})
    assert done.exit_code == 0, done.output
    shown = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    assert shown.keys() >= known_fields().keys()
    assert "id of the token that the noise hid" in shown["targets.mlm"]
    assert "noise=token_mask" in shown["targets.mlm"]


class Base:
    fields: Mapping[str, Field] = {"tracks.a": Field("[n, T]", "int", "a")}


class Derived(Base):
    fields: Mapping[str, Field] = {"spans.b": Field("[m, 4]", "int", "b", stored=True)}


def test_a_class_adds_to_the_fields_of_its_base() -> None:
    assert fields_of(Derived).keys() == fields_of(Derived()).keys() == {"tracks.a", "spans.b"}
    assert glossary([Derived()]).keys() == {*COMMON, "tracks.a", "spans.b"}


def test_what_the_text_itself_may_hold() -> None:
    known = glossary([Derived()])
    held = {
        name
        for name in ("tracks.a", "spans.b", "tracks.sense", "spans.place", "text")
        if held_by_data(name, known)
    }
    assert held == {"spans.b", "tracks.sense", "spans.place"}
    assert not held_by_data("spans.chosen", fields_in(known_fields()))
    assert sequences({"text", "tracks.a", "anchors", "reverse"}, fields_in(known_fields())) == {
        "text",
        "reverse",
    }
