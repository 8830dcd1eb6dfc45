"""The arguments and options that several commands have."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from plmctl.cli.completion import suggest_recipes, suggest_words


def take_words(bare: str) -> Any:
    """The argument that takes the words of a command with settings.

    Args:
        bare: A word without "=" in the line of usage.
    """
    metavar = f"{bare} | KEY=VALUE" if bare else "[./FILE.yaml] KEY=VALUE"
    argument = typer.Argument(
        metavar=metavar, show_default=False, hidden=True, autocompletion=suggest_words
    )
    return Annotated[list[str] | None, argument]


Recipe = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A recipe of plmctl recipes ls, or your own ./FILE.yaml.",
        autocompletion=suggest_recipes,
    ),
]
RecipeSettings = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE",
        show_default=False,
        help="Settings of the recipe.",
        autocompletion=suggest_words,
    ),
]
ConfigDir = Annotated[
    list[str] | None,
    typer.Option(
        "--config-dir",
        metavar="DIR",
        help="A folder with your own parts, and recipes in DIR/recipes.",
    ),
]
Plugin = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin", metavar="PACKAGE", help="A Python package whose parts the settings may name."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print results as JSON.")]
PrintConfig = Annotated[bool, typer.Option("--print-config", help="Print all settings and stop.")]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Print parameters, compute, memory and time. Write nothing."),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue the run in run.dir with its saved settings.")
]
Multirun = Annotated[
    bool,
    typer.Option(
        "-m",
        "--multirun",
        help="Run all combinations of key=a,b (Hydra: choice(), range(), glob()).",
    ),
]

Quiet = Annotated[
    bool, typer.Option("-q", "--quiet", help="Print only results, warnings and mistakes.")
]
Verbose = Annotated[
    bool,
    typer.Option("-v", "--verbose", help="Also print which files are read and saved, and when."),
]

# {the name by which a command's file asks for an option: (the option, its default)}
SHARED: dict[str, tuple[Any, Any]] = {
    "config_dir": (ConfigDir, None),
    "plugin": (Plugin, None),
    "json": (Json, False),
    "print_config": (PrintConfig, False),
    "dry_run": (DryRun, False),
    "resume": (Resume, False),
    "multirun": (Multirun, False),
    "quiet": (Quiet, False),
    "verbose": (Verbose, False),
}
