"""The options of `plmctl report` as its command line states them, and what they mean."""

from __future__ import annotations

from typing import Annotated

import typer

Out = Annotated[
    str,
    typer.Option(
        "-o",
        "--out",
        metavar="FILE",
        help="An .html file, an .md file next to the .html file, or a folder for report.html.",
    ),
]
Markdown = Annotated[
    bool,
    typer.Option("--markdown", help="Also write Markdown, with pictures in a folder next to it."),
]
Brief = Annotated[
    bool,
    typer.Option(
        "--brief", help="Only one sheet: the result, how sure it is, the confusions, the limits."
    ),
]
Heads = Annotated[
    str | None,
    typer.Option(
        "--attention",
        metavar="L.H,...",
        help="Draw what these heads attend to: layer.head, counted from 0 (default: none).",
    ),
]
Sentences = Annotated[
    list[str] | None,
    typer.Option(
        "--sentence",
        metavar="TEXT",
        help="The sentence for --attention and --keys. May be repeated.",
    ),
]
HeadText = Annotated[
    str | None,
    typer.Option(
        "--heads",
        metavar="dev|FILE",
        help="Tabulate what each head looks at, over held-out rows of the run (dev) or the lines"
        " of a file (default: none).",
    ),
]
Probes = Annotated[
    list[str] | None,
    typer.Option(
        "--probe",
        metavar="NAME=FILE[:TOKENS,TAGS]",
        help=(
            "Probe every layer for the labels of a column file (default: columns 0 and 1)"
            " or of WiC's JSON lines."
        ),
    ),
]
Bits = Annotated[
    str | None,
    typer.Option(
        "--sensitivity",
        metavar="BITS,...",
        help="Score fine-tuned runs again with one matrix at a time in so many bits, for example"
        " 8,4 (default: none).",
    ),
]
Words = Annotated[
    list[str] | None,
    typer.Option(
        "--word",
        metavar="WORD=FILE",
        help="Compare the vectors of a word in different sentences, one in each line of the file."
        " May be repeated.",
    ),
]
Units = Annotated[
    str | None,
    typer.Option(
        "--keys",
        metavar="L.U,...",
        help="List the texts that these feed-forward units react to: layer.unit, counted from 0"
        " (default: none).",
    ),
]
Figures = Annotated[
    str | None,
    typer.Option(
        "--figures",
        metavar="FOLDER",
        help="Also write each picture as SVG, PNG and PDF, and each table as CSV and LaTeX"
        " (default: none).",
    ),
]
Card = Annotated[
    str | None,
    typer.Option(
        "--card", metavar="FILE", help="Also write a model card for Hugging Face (default: none)."
    ),
]
Facts = Annotated[
    list[str] | None,
    typer.Option(
        "--fact",
        metavar="KEY=VALUE",
        help="A fact for --card: license=, language= or name=. May be repeated.",
    ),
]
