"""The families that `plmctl convert --help` lists are those that are read and written."""

from __future__ import annotations

import json
import subprocess
import sys

from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.config.recipes import recipe_names
from plmctl.interop import hf
from plmctl.interop.listing import list_families, list_systems
from plmctl.storage.hub import is_hub_name


def test_every_family_is_listed_with_its_systems() -> None:
    stated = sorted({(family.model_type, ", ".join(family.systems)) for family in hf.FAMILIES})
    assert list_systems() == stated
    shown = CliRunner().invoke(make_app(), ["convert", "--help", "--all"]).output
    assert all(name in shown and systems in shown for name, systems in stated)


def test_models_ls_has_what_the_classes_state() -> None:
    # the classes of one name in config.json are a family and those that it is the base of
    own_name = (family for family in hf.FAMILIES if "model_type" in vars(type(family)))
    stated = {family.model_type: family for family in own_name}
    listed = {each.model_type: each for each in list_families()}
    assert listed.keys() == stated.keys()
    for name, each in listed.items():
        family = stated[name]
        own = vars(type(family))  # none is inherited: another family has other models
        assert (each.recipes, each.hub) == (own.get("recipes", ()), own.get("hub", ()))
        assert {*each.recipes} <= {*recipe_names()}
        assert all(is_hub_name(name) and size > 0 for name, size in each.hub)
    runner = CliRunner(env={"COLUMNS": "400"})
    shown = runner.invoke(make_app(), ["models", "ls"]).output
    found = json.loads(runner.invoke(make_app(), ["models", "ls", "--json"]).output)
    assert [each["model_type"] for each in found] == sorted(stated)
    for family in found:
        assert all(f"{name} (" in shown for name in family["hub"])


def test_the_list_costs_no_torch() -> None:
    code = (
        "import sys; from plmctl.interop.listing import list_families; list_families();"
        " sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
