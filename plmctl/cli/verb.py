"""A command as Typer runs it, whose help ends with examples and settings, and which explains two
common mistakes with options.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection
from itertools import pairwise, takewhile
from typing import Any

from typer import BadParameter
from typer.core import TyperCommand

from plmctl.cli import mistakes
from plmctl.cli.words import read_bare
from plmctl.core.errors import find_meant, nearest
from plmctl.core.pasted import spell_fix

TYPED = "plmctl.typed"  # the key of the words of the command line in Typer's context
# a setting that names files or folders, without any
EMPTY = re.compile(r"\+{0,2}(?:[\w./@]+\.)?(?:\w*path|init|checkpoint|teacher|out|dir|among)=")
# Typer's words about an option's value, and the allowed values
NUMBERS = {"valid integer": "a whole number", "valid number": "a number"}

# {title of a group of options in --help: their names}
GROUPS = {
    "What is shown": ("json", "print_config", "preview", "quiet", "verbose", "help"),
    "Parts of your own": ("config_dir", "plugin"),
}


def _find_title(param: Any, titles: dict[str, str]) -> str:
    """The group of a parameter in --help."""
    if param.param_type_name == "argument":
        return "Arguments"
    return titles.get(param.name, "Options")


def _is_empty(word: str) -> bool:
    """Whether nothing is left of a word, or of the path in it: it would mean a default, or the
    folder that one is in.
    """
    return not word.strip() or EMPTY.fullmatch(word.strip()) is not None


def _explain_value(message: str) -> tuple[str, str]:
    """(the allowed values of an option, one that may be meant) from Typer's message; else two empty
    texts.
    """
    kind = next((ours for word, ours in NUMBERS.items() if word in message), "")
    if kind:
        return kind, f"<{kind}>"
    if not (listed := re.search(r"'(.*)' is not one of (.+?)\.?$", message)):
        return "", ""
    words = re.findall(r"'([^']*)'", listed[2])
    meant = find_meant(listed[1], words) or f"<{' or '.join(words)}>"
    return f"one of {', '.join(words)}{nearest(listed[1], words)}", meant


class Verb(TyperCommand):
    """A command with settings: `--learning-rate 1` is answered with `optim.lr=1`."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse the words as Typer does, once no option lacks its value and no setting has
        dashes.
        """
        # an argument has its bare name
        options = {
            name: param
            for param in self.get_params(ctx)
            for name in (*param.opts, *param.secondary_opts)
            if name.startswith("-")
        }
        ctx.meta[TYPED] = tuple(args)
        if ctx.resilient_parsing:  # a shell completes the line
            return super().parse_args(ctx, args)
        if any(map(_is_empty, args)):
            valued = [name for name, each in options.items() if not getattr(each, "is_flag", False)]
            self._refuse_empty(ctx, args, valued)
        words = list(takewhile(lambda word: word != "--", args))
        for word, following in zip(words, [*args, ""][1:], strict=False):
            name, equals, value = word.partition("=")
            if option := options.get(name):
                takes_value = not getattr(option, "is_flag", False)
                if takes_value and not equals and following in options:
                    needed = getattr(option, "metavar", None) or "value"
                    ctx.fail(f"{name} needs a {needed}, but {following} is an option")
            elif word.startswith("--"):
                from plmctl.cli.epilog import name_setting

                value = value if equals else "" if following.startswith("-") else following
                if setting := name_setting(name, value or "...", self.command_of(ctx)):
                    ctx.fail(
                        f"there is no option {name}: settings are written without dashes"
                        f"\n  fix: {spell_fix(setting)}"
                    )
        try:
            return super().parse_args(ctx, args)
        except BadParameter as error:
            name = next(iter(getattr(error.param, "opts", ())), "")
            allowed, fix = _explain_value(error.message)
            if error.param is not None and error.message == "":  # it is missing
                example = self.callback.about.examples[0]  # type: ignore[union-attr]
                ctx.fail(f"{error.format_message()}\n  fix: {example}")
            if not allowed or not name.startswith("-"):
                raise
            given = next((word for at, word in pairwise(["", *words, ""]) if at == name), "")
            value = f"{name} {given}".strip()
            return ctx.fail(f"{value}: must be {allowed}\n  fix: {spell_fix(f'{name} {fix}')}")

    def _refuse_empty(self, ctx: Any, args: list[str], valued: Collection[str]) -> None:
        """Fail on the first word that an empty variable of a shell leaves.

        Args:
            valued: the options that take a value; one with an empty value is left out, too.
        """
        place, word = next(item for item in enumerate(args, 1) if _is_empty(item[1]))
        kept = [
            each
            for each, following in pairwise([*args, "end"])
            if not (_is_empty(each) or (each in valued and _is_empty(following)))
        ]
        rest = shlex.join(["plmctl", *self.command_of(ctx).split(), *kept])
        name = word.strip() or f"word {place} after the command"
        ctx.fail(f"{name} is empty: is a variable not set?\n  fix: {rest}")

    def invoke(self, ctx: Any) -> Any:
        """Run the command; a user's mistake becomes a message and an exit code."""
        typed = shlex.join(["plmctl", *self.command_of(ctx).split(), *ctx.meta.get(TYPED, ())])
        with mistakes.report_mistakes(typed):
            mistakes.find_plugins(ctx.params.get("plugin") or ())
            if (words := ctx.params.get("words")) and not ctx.params.get("resume"):
                about = self.callback.about  # type: ignore[union-attr]
                ctx.params["words"] = read_bare(about, words)
            return super().invoke(ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options in groups: those of the command first."""
        shown = {param.name: param.get_help_record(ctx) for param in self.get_params(ctx)}
        titles = {name: title for title, names in GROUPS.items() for name in names}
        for title in ("Arguments", "Options", *GROUPS):
            lines = [
                shown[param.name]
                for param in self.get_params(ctx)
                if shown[param.name] and title == _find_title(param, titles)
            ]
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write examples, settings, and the parts and recipes that can be chosen."""
        from plmctl.cli.epilog import list_sections

        about = self.callback.about  # type: ignore[union-attr]
        with formatter.section("Examples"):
            formatter.write("".join(f"  {line}\n" for line in about.examples))
        for title, lines in list_sections(about):
            with formatter.section(title):
                formatter.write_dl(lines or [("-", "")])

    @staticmethod
    def command_of(ctx: Any) -> str:
        """The name of the command behind `plmctl`: "data check"."""
        return str(ctx.command_path).partition(" ")[2]
