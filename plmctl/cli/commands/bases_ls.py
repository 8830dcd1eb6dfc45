"""`plmctl bases ls`."""

from __future__ import annotations

from typing import Any

from plmctl.cli.declare import command


@command(
    "bases ls",
    talks=False,
    place=103,
    examples=("plmctl bases ls", "plmctl bases ls --json"),
    options="json",
)
def ls(**options: Any) -> None:
    """List the bases of studies, with their folders and how far each is."""
    from plmctl.study.bases import show_bases

    show_bases(as_json=options["json"])
