"""What the commands on recipes share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from plmctl.cli.mistakes import find_plugins, report_mistakes
from plmctl.run.spec import Provenance

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="A recipe of plmctl recipes ls, or your own ./FILE.yaml."),
]
Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", show_default=False, help="Settings of the recipe."),
]


@contextmanager
def given(
    config_dir: Sequence[str] | None, plugin: Sequence[str] | None = None, **flags: Any
) -> Iterator[Provenance]:
    """Collect what the command line says; mistakes inside become messages."""
    provenance = Provenance(
        "recipes", config_dirs=tuple(config_dir or ()), plugins=tuple(plugin or ()), **flags
    )
    with report_mistakes():
        find_plugins(provenance.plugins)
        yield provenance
