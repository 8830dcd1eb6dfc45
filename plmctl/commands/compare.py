"""`plmctl compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plmctl.cli.options import Json, Plugin
from plmctl.config.command import About, Tool

Side = Annotated[
    str, typer.Argument(metavar="A", help="A run, or a .jsonl, .csv or .tsv file of predictions.")
]
Others = Annotated[
    list[str],
    typer.Argument(metavar="B...", help="The same of one system that is compared, or of several."),
]
Split = Annotated[str, typer.Option("--split", metavar="NAME", help="Of runs.")]
Kind = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="KIND",
        help="The kind of predictions: classes, numbers, tags (of entities), words (with other"
        " tags), pairs (minimal ones), answers or texts (default: as it looks).",
    ),
]
Metric = Annotated[
    list[str] | None,
    typer.Option("--metric", metavar="NAME", help="A score. May be repeated (default: all)."),
]
Positive = Annotated[
    str | None, typer.Option("--positive", metavar="LABEL", help="Add its F1 (default: none).")
]
Gold = Annotated[str, typer.Option("--gold", metavar="COLUMN", help="With the right labels.")]
Guess = Annotated[str, typer.Option("--guess", metavar="COLUMN", help="With the predictions.")]
Id = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="COLUMN",
        help="The column that names the example (default: id, else the row).",
    ),
]
Bundle = Annotated[
    str | None,
    typer.Option(
        "--bundle",
        metavar="COLUMN",
        help="The column of examples that are drawn together (default: bundle, if there is one).",
    ),
]
Samples = Annotated[
    int | None,
    typer.Option("--samples", metavar="N", help="Draws of the bootstrap (default: 10000)."),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="The seed of these draws.")]


class CompareCommand(Tool):
    """Compare systems on the same examples: differences to the first, intervals, p-values.

    The interval is that of a paired bootstrap. The p-value is by swaps of the two answers: exact,
    or of 9,999 random choices. McNemar's test counts the examples that one of two systems alone
    answers rightly. Several systems have one table, with p-values corrected by Holm.
    """

    about = About(
        "compare",
        place=85,
        examples=(
            "plmctl compare runs/sst2 runs/sst2/predictions/dev.jsonl",
            "plmctl compare runs/sst2 runs/sst2 runs/sst2/predictions/dev.jsonl --json",
        ),
    )

    @staticmethod
    def perform(
        first: Side,
        others: Others,
        split: Split = "dev",
        kind: Kind = None,
        metric: Metric = None,
        positive: Positive = None,
        gold: Gold = "gold",
        guess: Guess = "guess",
        column: Id = None,
        bundle: Bundle = None,
        samples: Samples = None,
        seed: Seed = 0,
        json: Json = False,
        plugin: Plugin = None,
    ) -> None:
        from plmctl.report.compare import compare as compare_systems
        from plmctl.report.predicted import ColumnNames

        compare_systems(
            Path(first).expanduser(),
            *(Path(other).expanduser() for other in others),
            split=split,
            columns=ColumnNames(gold, guess, column, bundle),
            kind=kind,
            positive=positive,
            names=metric or (),
            samples=samples,
            seed=seed,
            as_json=json,
            plugins=tuple(plugin or ()),
        )
