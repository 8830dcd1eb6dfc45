"""The families that `plmctl convert --help` lists are those that are read and written."""

from __future__ import annotations

import subprocess
import sys

from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.interop import hf
from plmctl.interop.listing import list_systems


def test_every_family_is_listed_with_its_systems() -> None:
    stated = sorted((family.model_type, ", ".join(family.systems)) for family in hf.FAMILIES)
    assert list_systems() == stated
    shown = CliRunner().invoke(make_app(), ["convert", "--help"]).output
    assert all(name in shown and systems in shown for name, systems in stated)


def test_the_list_costs_no_torch() -> None:
    code = (
        "import sys; from plmctl.interop.listing import list_systems; list_systems();"
        " sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
