"""Commands without settings, whose libraries take a mapping of their arguments and flags."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from plmctl.cli.console import reported, see_plugins
from plmctl.run.spec import Provenance


def run(
    verb: str,
    settings: Mapping[str, Any],
    plugin: Sequence[str] | None = None,
    config_dir: Sequence[str] | None = None,
    **flags: Any,
) -> None:
    """`plmctl.commands.<verb>.run`, whose imports are made now."""
    from omegaconf import OmegaConf

    given = Provenance(
        verb, config_dirs=tuple(config_dir or ()), plugins=tuple(plugin or ()), **flags
    )
    with reported():
        see_plugins(given.plugins)
        library = importlib.import_module(f"plmctl.commands.{verb}")
        result = library.run(OmegaConf.create(dict(settings)), flags=given)
        raise typer.Exit(result if isinstance(result, int) else 0)
