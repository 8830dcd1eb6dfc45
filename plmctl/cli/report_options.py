"""The options of `plmctl report` as its command line states them, and what they mean."""

from __future__ import annotations

from typing import Annotated

import typer

Out = Annotated[
    str,
    typer.Option(
        "--out", metavar="FILE", help="A .html file; a .md file: that, and the .html beside it."
    ),
]
Markdown = Annotated[
    bool, typer.Option("--markdown", help="Also Markdown, with the pictures in a folder beside it.")
]
Heads = Annotated[
    str | None,
    typer.Option(
        "--attention",
        metavar="L.H,...",
        help="Draw what these heads attend to: layer.head, from 0.",
    ),
]
Sentences = Annotated[
    list[str] | None,
    typer.Option("--sentence", metavar="TEXT", help="... on this sentence; may be repeated."),
]
Probes = Annotated[
    list[str] | None,
    typer.Option(
        "--probe",
        metavar="NAME=FILE[:TOKENS,TAGS]",
        help=(
            "Probe every layer for the labels of a column file (by default in columns 0 and 1)"
            " or of WiC's JSON lines."
        ),
    ),
]
Card = Annotated[
    str | None,
    typer.Option("--card", metavar="FILE", help="Also a model card of the run, for Hugging Face."),
]
Facts = Annotated[
    list[str] | None,
    typer.Option(
        "--fact", metavar="KEY=VALUE", help="... that says this: license=, language=, name=."
    ),
]
