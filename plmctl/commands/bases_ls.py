"""`plmctl bases ls`."""

from __future__ import annotations

from typing import Any

from plmctl.config.command import About, Tool


class BasesLsCommand(Tool):
    """List the bases of studies, with their folders and how far each is."""

    about = About(
        "bases ls",
        place=103,
        examples=("plmctl bases ls", "plmctl bases ls --json"),
        options="json",
        talks=False,
    )

    @staticmethod
    def perform(**options: Any) -> None:
        from plmctl.study.bases import show_bases

        show_bases(as_json=options["json"])
