"""`plmctl models ls`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from plmctl.config.command import About, Tool


class ModelsLsCommand(Tool):
    """List the families of published models that can be opened, with recipes, sizes and names.

    A model of the hub is opened as checkpoint=hf:NAME once it has been downloaded.
    """

    about = About(
        "models ls",
        place=146,
        examples=("plmctl models ls", "plmctl models ls --json"),
        options="json",
        talks=False,
    )

    @staticmethod
    def perform(**options: Any) -> None:
        from plmctl.core.terminal import print_table, tell
        from plmctl.interop.listing import list_families

        families = list_families()
        if options["json"]:
            rows = [{**asdict(family), "hub": dict(family.hub)} for family in families]
            tell(json.dumps(rows, indent=1, ensure_ascii=False))
            return
        print_table(
            ("model_type", "systems", "recipes", "names on the hub (parameters)"),
            [
                (
                    family.model_type,
                    ", ".join(family.systems),
                    ", ".join(family.recipes),
                    family.spell_names(),
                )
                for family in families
            ],
        )
