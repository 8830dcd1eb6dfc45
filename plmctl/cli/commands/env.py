"""`plmctl env`."""

from __future__ import annotations

from typing import Any

from plmctl.cli.declare import command


@command(
    "env", talks=False, place=210, examples=("plmctl env", "plmctl env --json"), options="json"
)
def env(**options: Any) -> None:
    """Show versions, devices, precision, folders and extras, to paste into an issue."""
    from plmctl.runs.environment import show_environment

    show_environment(as_json=options["json"])
