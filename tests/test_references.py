"""References in settings: what they stand for is what OmegaConf makes of them, and most are found
without it.
"""

from __future__ import annotations

from typing import Any

import pytest

from plmctl.run import references
from plmctl.run.compose import attempt
from plmctl.run.references import UnresolvedReference, work_out
from plmctl.run.spec import Provenance

BASE: dict[str, Any] = {
    "size": {"width": 128, "heads": 4, "wide": "${portion:4,${size.width}}", "rate": 1e-05},
    "layers": ["a", {"width": "${size.width}"}, ("b", "${size.heads}")],
    "name": "plain",
    "none": None,
    "missing": "???",
    "on": True,
    3: {"x": "${size.heads}"},
}

# a setting, and whether OmegaConf has to be asked
CASES: list[tuple[Any, bool]] = [
    ("${size.width}", False),
    ("${size}", False),
    ("${layers}", False),
    ("${size.wide}", False),
    ("${none}", False),
    ("${on}", False),
    ("${size.rate}", False),
    ("af*${size.heads}", False),
    ("a*${size.heads} f*${portion:0.5,${size.heads}}", False),
    ("${portion:0.3,${size.width},8}", False),
    ("${portion:4, ${size.width}}", False),
    ("${quotient:4096,${size.width}}", False),
    ("${oc.select:size.width,7}", False),
    ({"a": [{"b": "${name}"}], "c": "no reference"}, False),
    ("${oc.select:size.absent,7}", True),
    ("${oc.select:none,7}", True),
    ("x${name}", True),
    ("x${size.rate}", True),
    ("x${on}", True),
    ("${layers.1.width}", True),
    ("\\${size.width}", True),
    ({"x": 1, "y": "${.x}"}, True),
    ({"x": "${..name}"}, True),
    ("${size.${key}}", True),
    ("${missing}", True),
    ("${size.absent}", True),
    ("${name.width}", True),
    ("${value}", True),
    ("${portion:four,${size.width}}", True),
    ("${quotient:0,${size.width}}", True),
    ("${unknown:1}", True),
    ("${size.width", True),
]


def find(settings: dict[Any, Any], how: Any) -> str:
    """The values, with their types, or what is wrong."""
    try:
        return repr(how(settings))
    except UnresolvedReference as error:
        return f"{error.path}: {error}"


@pytest.mark.parametrize(("value", "asked"), CASES, ids=lambda value: str(value))
def test_they_stand_for_what_omegaconf_finds(
    value: Any, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**BASE, "key": "width", "value": value}
    if not asked:
        del settings["missing"]
    before, calls = repr(settings), []
    ask = references._ask_omegaconf
    expected = find(settings, ask)
    monkeypatch.setattr(references, "_ask_omegaconf", lambda of: calls.append(1) or ask(of))
    assert find(settings, work_out) == expected
    assert bool(calls) == asked
    assert repr(settings) == before


def test_what_is_found_is_nobody_elses() -> None:
    settings = {"a": {"b": [1]}, "c": "${a}", "d": "${a}"}
    found = work_out(settings)
    found["c"]["b"].append(2)
    assert (found["a"], found["d"], settings["a"]) == ({"b": [1]}, {"b": [1]}, {"b": [1]})


@pytest.mark.parametrize("recipe", ["bert", "t5", "reformer", "lite_transformer"])
def test_those_of_recipes(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from plmctl.run import finish

    seen: list[Any] = []
    monkeypatch.setattr(
        finish, "work_out", lambda settings: seen.append(settings) or work_out(settings)
    )
    attempt(Provenance("pretrain", recipe, ("data.path=x",)))
    assert repr(work_out(seen[0])) == repr(references._ask_omegaconf(seen[0]))
