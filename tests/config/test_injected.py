"""What parts are given by name: every parameter that a part must have is in its YAML or among
these.
"""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from plmctl.config.injected import Injected, ToFormats, ToHeads, ToNoises, ToObjectives
from plmctl.config.recipes import part_files
from plmctl.core.locate import locate, parameters

SLOTS: dict[str, tuple[type[Injected], ...]] = {
    "format": (ToFormats,),
    "noise": (ToNoises,),
    "features": (ToHeads,),
    "head_encoder": (ToHeads,),
}


@pytest.mark.parametrize(
    ("slot", "file"), [(slot, file) for slot in SLOTS for file in part_files(slot).values()]
)
def test_a_part_asks_for_nothing_else(slot: str, file: Path) -> None:
    """Of the outermost part of the file; a part that is given a name uses it under that name."""
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    node = next(iter(find(content)), None)
    if node is None:
        pytest.skip("this file builds nothing by itself")
    given = {each.name for kind in SLOTS[slot] for each in fields(kind)}
    needed = {
        name
        for name, each in parameters(locate(node["_target_"])).items()
        if each.default is inspect.Parameter.empty
    }
    inherited = {"max_length", *(name for name in needed if "defaults" in content)}
    assert needed <= {*node, *given, *inherited}, needed - {*node, *given}


def find(content: object) -> list[dict[str, object]]:
    """The nodes of a file that name a part, the outermost ones."""
    if not isinstance(content, dict):
        return []
    if "_target_" in content:
        return [content]
    return [node for value in content.values() for node in find(value)]


def test_values_are_given_by_their_names() -> None:
    made = ToHeads(width=2, state_width=3, num_layers=4, token_embedding=None)
    assert made.by_name() == {
        "width": 2,
        "state_width": 3,
        "num_layers": 4,
        "token_embedding": None,
    }
    assert {each.name for each in fields(ToObjectives)} >= {"model", "width", "vocab_size"}
