"""The `plmctl` command: finds the commands that the files of commands/ declare."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from plmctl.cli.declare import Command
from plmctl.cli.verb import Verb
from plmctl.core.children import follow_starter
from plmctl.core.terminal import tell

COMMANDS = Path(__file__).parent / "commands"


def commands(folder: Path = COMMANDS) -> dict[str, Callable[..., None]]:
    """Find {"data check": its function} for every `@command` in the files of `folder`, in the order
    of --help.
    """
    modules = [
        importlib.import_module(f"plmctl.cli.commands.{file.stem}")
        for file in sorted(folder.glob("*.py"))
        if file.stem != "__init__"
    ]
    functions = [function for module in modules for function in vars(module).values()]
    known = {about: function for function in functions if (about := declared(function))}
    return {about.name: known[about] for about in sorted(known, key=lambda about: about.place)}


def declared(function: object) -> Command | None:
    """The declaration that `@command` gave a function."""
    about = getattr(function, "command", None)
    return about if isinstance(about, Command) else None


@functools.cache
def make_app(folder: Path = COMMANDS) -> typer.Typer:
    """Make the Typer application with all commands of `folder`, once a process."""
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},  # of every command, too
    )
    app.callback()(_about)
    groups: dict[str, typer.Typer] = {}
    known = commands(folder)
    for name, function in known.items():
        verb, _, inner = name.partition(" ")
        if inner and verb not in groups:
            others = [other.partition(" ")[2] for other in known if other.startswith(f"{verb} ")]
            about = f"Commands on {verb}: {', '.join(others)}."
            groups[verb] = typer.Typer(no_args_is_help=True, help=about)
            app.add_typer(groups[verb], name=verb, short_help=about)
        # as it stands: Typer would cut a long one
        about = " ".join((function.__doc__ or "").partition("\n\n")[0].split())
        place = groups[verb] if inner else app
        place.command(inner or verb, cls=Verb, short_help=about)(function)
    return app


def main() -> None:
    """Run the command line of this process."""
    follow_starter()
    make_app()(prog_name="plmctl")


def _show_versions(asked: bool) -> None:
    """Print the versions and end, if `asked`."""
    if asked:
        from plmctl.core.extras import describe_versions  # 30 ms that --help does not need

        tell(describe_versions())
        raise typer.Exit


_VERSIONS = typer.Option(
    "--version", callback=_show_versions, is_eager=True, help="Show the versions and exit."
)


def _about(version: Annotated[bool, _VERSIONS] = False) -> None:
    """Pretrain, fine-tune, evaluate and convert language models, by configuration."""
