"""`plmctl convert`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from plmctl.cli.declare import command
from plmctl.cli.options import Plugin


def list_families() -> tuple[str, list[tuple[str, str]]]:
    """List the families that can be converted, for --help."""
    from plmctl.interop.listing import list_systems

    return "Families", list_systems()


In = Annotated[
    str, typer.Argument(metavar="IN", help="A run, a checkpoint or a Hugging Face folder.")
]
Out = Annotated[str, typer.Argument(metavar="OUT", help="The folder to write.")]
To = Annotated[
    Literal["hf", "plmctl", "peft"] | None,
    typer.Option(
        "--to",
        help="The layout of OUT; peft: what LoRA or IA3 have learned, beside the model in Hugging"
        " Face's layout. With --max-length plmctl is the default.",
    ),
]
Network = Annotated[
    Literal["model", "generator"],
    typer.Option("--part", help="Which network of an ELECTRA run to convert."),
]
MaxLength = Annotated[
    int | None,
    typer.Option(
        "--max-length",
        help="Make an encoder with learned positions, or that of an encoder-decoder, read rows of"
        " so many tokens (Longformer, LED).",
    ),
]
Reach = Annotated[
    int | None,
    typer.Option(
        "--reach",
        help="With --max-length: tokens that each sees to either side; as before, or as many as an"
        " old row has, at most 256.",
    ),
]
Without = Annotated[
    Literal["copies", "projections"] | None,
    typer.Option(
        "--without",
        help="With --max-length, for ablations: draw the new positions; no projections of their"
        " own for global tokens.",
    ),
]


@command(
    "convert",
    place=90,
    examples=(
        "plmctl convert runs/first exported --to hf",
        "plmctl convert exported imported --to plmctl",
    ),
    section=list_families,
)
def convert(
    source: In,
    out: Out,
    to: To = None,
    part: Network = "model",
    max_length: MaxLength = None,
    reach: Reach = None,
    without: Without = None,
    plugin: Plugin = None,
) -> None:
    """Convert a model to or from Hugging Face's layout, or make it read longer rows.

    Weights, settings and tokenizer are converted.
    """
    from plmctl.core.errors import UsageError
    from plmctl.report.card import make_card
    from plmctl.run.convert import convert as convert_model

    for option, value in (("--reach", reach), ("--without", without)):
        if value and max_length is None:
            fix = f"--max-length 4096, or no {option}"
            raise UsageError(f"{option} is of a longer model\n  fix: {fix}")
    if to is None and max_length is None:
        raise UsageError("Missing option '--to'\n  fix: --to hf, or --to plmctl")
    convert_model(
        Path(source).expanduser(),
        Path(out).expanduser(),
        to=to or "plmctl",
        max_length=max_length,
        reach=reach,
        without=(without,) if without else (),
        part=part,
        plugins=tuple(plugin or ()),
        card=partial(make_card, library="transformers", plugins=tuple(plugin or ())),
    )
