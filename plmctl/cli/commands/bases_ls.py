"""`plmctl bases ls`."""

from __future__ import annotations

import json
from typing import Any

from plmctl.cli.declare import command
from plmctl.core.terminal import print_table, tell


@command(
    "bases ls",
    talks=False,
    place=103,
    examples=("plmctl bases ls", "plmctl bases ls --json"),
    options="json",
)
def ls(**options: Any) -> None:
    """List the bases of studies, with their folders and how far each is."""
    from plmctl.study.bases import BASES, find_base, find_state

    rows = [
        {
            "base": kind,
            "recipe": base.recipe,
            "minutes": str(base.minutes),
            "state": find_state(find_base(kind)),
            "folder": str(find_base(kind)),
        }
        for kind, base in BASES.items()
    ]
    if options["json"]:
        tell(json.dumps(rows, indent=1))
    else:
        print_table(list(rows[0]), [list(row.values()) for row in rows])
