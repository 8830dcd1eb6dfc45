"""The `plmctl` command: finds the commands that the files of plmctl/commands declare."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, MutableMapping, Sequence
from itertools import pairwise
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from plmctl.cli.declare import as_function
from plmctl.cli.mistakes import find_plugins
from plmctl.cli.verb import Verb
from plmctl.config.command import list_commands, load_command
from plmctl.core.children import follow_starter
from plmctl.core.errors import PlmctlError
from plmctl.core.terminal import FAIL, remark, tell


class KnownCommands(MutableMapping[str, Any]):
    """{word: command or group of commands} behind a prefix, each imported when it is looked up."""

    def __init__(self, prefix: str = "", plugins: Sequence[str] = ()) -> None:
        self.prefix, self.plugins = prefix, tuple(plugins)
        self._made: dict[str, Any] = {}

    def lines(self) -> dict[str, str]:
        """{word: its line in --help}."""
        found: dict[str, list[str]] = {}
        for name, listed in list_commands(self.plugins).items():
            if not name.startswith(self.prefix):
                continue
            word, _, inner = name.removeprefix(self.prefix).partition(" ")
            found.setdefault(word, []).append(inner or listed.about)
        groups = self._groups()
        return {
            word: f"Commands on {word}: {', '.join(texts)}." if word in groups else texts[0]
            for word, texts in found.items()
        }

    def _groups(self) -> set[str]:
        names = (name.removeprefix(self.prefix) for name in list_commands(self.plugins))
        return {name.partition(" ")[0] for name in names if " " in name}

    def __getitem__(self, word: str) -> Any:
        if word not in self._made:
            self._made[word] = self._make(word)
        return self._made[word]

    def _make(self, word: str) -> Any:
        if not self.prefix and word in self._groups():
            group = Commands(name=word, no_args_is_help=True, help=self.lines()[word])
            group.commands = KnownCommands(f"{word} ", self.plugins)
            return group
        listed = list_commands(self.plugins)[f"{self.prefix}{word}"]
        return make_command(word, listed.module, listed.about)

    def __setitem__(self, word: str, command: Any) -> None:
        self._made[word] = command

    def __delitem__(self, word: str) -> None:
        raise TypeError("a command is a file of the folder of commands")

    def __iter__(self) -> Iterator[str]:
        return iter(self.lines())

    def __len__(self) -> int:
        return len(self.lines())


def import_command(words: Sequence[str]) -> None:
    """Import the command that the first words name, if they name one."""
    known = list_commands()
    for name in (" ".join(words[:2]), " ".join(words[:1])):
        if name in known:
            load_command(known[name].module)


def make_command(word: str, module: str, about: str) -> Any:
    """A command as Typer runs it.

    Args:
        word: The last word of its name.
        module: The module that declares it.
        about: Its line in --help, whole: Typer would cut a long one.
    """
    function = as_function(load_command(module))
    info = typer.models.CommandInfo(name=word, cls=Verb, callback=function, short_help=about)
    return typer.main.get_command_from_info(
        info, pretty_exceptions_short=True, rich_markup_mode=None
    )


class Commands(TyperGroup):
    """A group of commands, of which --help imports none."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = KnownCommands()

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse the words as Typer does, once the commands of plug-ins are known."""
        known = self.commands
        assert isinstance(known, KnownCommands)
        if not (known.prefix or ctx.resilient_parsing or "".join(args).isascii()):
            self._refuse_look_alikes(args)
        if not known.prefix and (plugins := _find_plugins(args)):
            self.commands = KnownCommands(plugins=plugins)
            args = _behind_command(args)
        elif not known.prefix and known.plugins:
            self.commands = KnownCommands()
        with _report_broken():
            return super().parse_args(ctx, args)

    def _refuse_look_alikes(self, args: list[str]) -> None:
        """End where a sign only looks like one of a command line."""
        from plmctl.cli.signs import refuse_look_alikes

        command: Any = self
        for word in args:
            command = getattr(command, "commands", {}).get(word, command)
        params = [each for each in command.params if each.param_type_name == "option"]
        valued = [each for each in params if not each.is_flag]
        with _report_broken():
            refuse_look_alikes(
                args,
                {"--help", "-h", *(name for each in params for name in each.opts)},
                {name for each in valued for name in each.opts},
            )

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command as Typer does; a word that is none may be one of a plug-in."""
        try:
            with _report_broken():
                return super().resolve_command(ctx, args)
        except Exception as error:  # Typer has click inside, whose classes have no public name
            known = self.commands
            assert isinstance(known, KnownCommands)
            if hasattr(error, "message") and not known.prefix and not known.plugins:
                error.message += " A command of a plug-in needs --plugin <package>."
            raise

    def list_commands(self, ctx: Any) -> list[str]:
        """The words, in the order of --help."""
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands."""
        known = self.commands
        assert isinstance(known, KnownCommands)
        with formatter.section("Commands"):
            formatter.write_dl(list(known.lines().items()))


@contextlib.contextmanager
def _report_broken() -> Iterator[None]:
    """Turn the error of a plug-in that cannot be read into a message and an exit code."""
    try:
        yield
    except PlmctlError as error:
        remark(f"plmctl: {error}", FAIL)
        raise typer.Exit(error.exit_code) from None


def _behind_command(args: list[str]) -> list[str]:
    """The words with --plugin behind the command, or without it where there is no command."""
    if not args[0].startswith("-"):
        return args
    others, plugins = [], []
    words = iter(args)
    for word in words:
        if word == "--plugin":
            plugins += [word, next(words, "")]
        elif word.startswith("--plugin="):
            plugins.append(word)
        else:
            others.append(word)
    return [*others, *plugins] if any(not word.startswith("-") for word in others) else others


def _find_plugins(args: Sequence[str]) -> tuple[str, ...]:
    """The packages that --plugin names."""
    behind = [after for word, after in pairwise(args) if word == "--plugin"]
    joined = [word.partition("=")[2] for word in args if word.startswith("--plugin=")]
    plugins = tuple(dict.fromkeys([*behind, *joined]))
    try:
        find_plugins(plugins)
    except PlmctlError:  # the command says so
        return ()
    return plugins


@functools.cache
def make_app() -> typer.Typer:
    """Make the Typer application, once a process."""
    app = typer.Typer(
        cls=Commands,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},  # for every command, too
    )
    app.callback()(_about)
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
