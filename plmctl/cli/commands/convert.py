"""`plmctl convert`, as the program takes it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from plmctl.cli.console import Plugin, command, reported, see_plugins
from plmctl.interop.listing import list_systems


@command(
    "convert",
    place=90,
    examples=(
        "plmctl convert runs/first exported --to hf",
        "plmctl convert exported imported --to plmctl",
    ),
    section=lambda: ("Families", list_systems()),
)
def convert(
    source: Annotated[
        str, typer.Argument(metavar="IN", help="A run, checkpoint or Hugging Face folder.")
    ],
    out: Annotated[str, typer.Argument(metavar="OUT", help="The folder to write.")],
    to: Annotated[Literal["hf", "plmctl"], typer.Option("--to", help="The layout of OUT.")],
    part: Annotated[
        Literal["model", "generator"],
        typer.Option("--part", help="Of an ELECTRA run: what to take."),
    ] = "model",
    plugin: Plugin = None,
) -> None:
    """Convert weights, config and tokenizer to or from Hugging Face's layout."""
    with reported():
        see_plugins(plugin or ())
        from plmctl.report.card import make_card
        from plmctl.run.convert import convert as convert_model

        convert_model(
            Path(source).expanduser(),
            Path(out).expanduser(),
            to=to,
            part=part,
            plugins=tuple(plugin or ()),
            card=partial(make_card, library="transformers", plugins=tuple(plugin or ())),
        )
