"""`plmctl env`."""

from __future__ import annotations

from typing import Any

from plmctl.config.command import About, Tool


class EnvCommand(Tool):
    """Show versions, devices, precision, folders and extras, to paste into an issue."""

    about = About(
        "env", place=210, examples=("plmctl env", "plmctl env --json"), options="json", talks=False
    )

    @staticmethod
    def perform(**options: Any) -> None:
        from plmctl.runs.environment import show_environment

        show_environment(as_json=options["json"])
