"""A command as Typer runs it: its words become a recipe and settings, and common mistakes in them
are explained.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

from typer import BadParameter
from typer.core import TyperCommand

from plmctl.cli import mistakes
from plmctl.config.command import About, Command
from plmctl.config.spec import Provenance
from plmctl.core.errors import UsageError, find_meant, nearest
from plmctl.core.pasted import spell_fix
from plmctl.core.spelling import spell, spell_word

ALL = "--all"  # with --help: all settings and parts
# parameters that say which settings a command composes
LINE = ("words", "config_dir", "plugin", "json", "dry_run", "resume")
# a setting that names files or folders, without any
EMPTY = re.compile(r"\+{0,2}(?:[\w./@]+\.)?(?:\w*path|init|checkpoint|teacher|out|dir|among)=")
# Typer's words about an option's value, and the allowed values
BOUND = re.compile(r"(less|greater) than or equal to (\S+)")
NUMBERS = {"valid integer": "a whole number", "valid number": "a number"}


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
    if bound := BOUND.search(message):
        return f"at {'most' if bound[1] == 'less' else 'least'} {bound[2]}", bound[2]
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
        if ALL in args and {*args} & {*ctx.help_option_names}:
            ctx.meta[ALL] = True
            args = [word for word in args if word != ALL]
        # an argument has its bare name
        options = {
            name: param
            for param in self.get_params(ctx)
            for name in (*param.opts, *param.secondary_opts)
            if name.startswith("-")
        }
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
                if takes_value and not equals and (following in options or not following):
                    needed = getattr(option, "metavar", None) or "value"
                    but = f", but {following} is an option" if following else " behind it"
                    fix = f"\n  fix: {name} 5" if needed == "N" else ""
                    needed = "number" if fix else needed
                    ctx.fail(f"{name} needs a {needed}{but}{fix}")
            elif word.startswith("--") or word == "-o":
                from plmctl.cli.epilog import name_setting

                value = value if equals else "" if following.startswith("-") else following
                long = "--out" if name == "-o" else name
                if setting := name_setting(long, value or "...", self.command_of(ctx)):
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
                example = self.callback.kind.about.examples[0]  # type: ignore[union-attr]
                ctx.fail(f"{error.format_message()}\n  fix: {example}")
            if not allowed or not name.startswith("-"):
                raise
            given = next((word for at, word in pairwise(["", *words, ""]) if at == name), "")
            value = f"{name} {given}".strip()
            with mistakes.report_mistakes():
                raise UsageError(f"{value}: must be {allowed}\n  fix: {name} {fix}") from error

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
        with mistakes.report_mistakes():
            mistakes.find_plugins(ctx.params.get("plugin") or ())
            kind, asked = self.callback.kind, ctx.params  # type: ignore[union-attr]
            if asked.get("words") and not asked.get("resume"):
                asked["words"] = read_bare(kind.about, asked["words"])
            if not issubclass(kind, Command):
                return super().invoke(ctx)
            own = {name for name, *_ in kind.about.own_options}
            line = {name: asked.pop(name) for name in LINE if name in {*asked} - own}
            # Typer hands over nothing but its parameters
            function = self.callback.__wrapped__  # type: ignore[union-attr]
            return ctx.invoke(function, given=read_line(kind.about, **line), **asked)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options in groups: those of the command first."""
        from plmctl.cli.epilog import write_options

        write_options(self.get_params(ctx), ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write examples, settings, and the parts and recipes that can be chosen."""
        from plmctl.cli.epilog import write_sections

        about = self.callback.kind.about  # type: ignore[union-attr]
        write_sections(about, formatter, whole=ALL in ctx.meta)

    @staticmethod
    def command_of(ctx: Any) -> str:
        """The name of the command behind `plmctl`: "data check"."""
        return str(ctx.command_path).partition(" ")[2]


def read_line(about: About, words: Sequence[str] | None = None, **options: Any) -> Provenance:
    """The request in the words and options of a command line.

    Args:
        words: A recipe and settings.
        options: The options of `collect_options`.
    """
    given = collect_options(about.verb, **options)
    named, overrides = sort_words(words or [], resume=given.resume)
    recipe = named or (None if given.resume else about.recipe)
    return replace(given, recipe=recipe, overrides=tuple(overrides))


def collect_options(
    verb: str,
    *,
    config_dir: Sequence[str] | None = None,
    plugin: Sequence[str] | None = None,
    **wishes: Any,
) -> Provenance:
    """The values of a command's options."""
    return Provenance(
        verb, config_dirs=tuple(config_dir or ()), plugins=tuple(plugin or ()), **wishes
    )


def read_bare(about: About, words: Sequence[str]) -> list[str]:
    """The words of a command; the first word without "=" becomes the setting for which it stands.
    UsageError for another word that has no meaning there.
    """
    marks = dict(about.marks)
    words = [marks.get(word, word) if place else word for place, word in enumerate(words)]
    if not about.bare:
        refuse_cut_value(words)
    if not about.takes_path:
        return list(words)
    setting = about.bare if isinstance(about.bare, str) else about.bare(words)
    return name_argument(setting, words, several=about.several)


def is_setting(word: str) -> bool:
    """Whether a word is `key=value` or `~key`, and no path such as `runs/seed=1,task=sst2`: only
    Hydra's own groups have a slash in their names. A dot before it is that of a misspelt key.
    """
    key, equals, _ = word.partition("=")
    owner, slash, _ = key.partition("/")
    misspelt = "." in owner.strip(".") and not os.path.exists(word)
    named = not slash or owner.lstrip("+") == "hydra" or misspelt
    return word.startswith("~") or (bool(equals) and named)


def _is_bare(word: str) -> bool:
    """Whether a word is neither a setting nor a file of settings."""
    return not (is_setting(word) or re.search(r"\.ya?ml$", word))


def name_argument(setting: str, words: Sequence[str], *, several: bool = False) -> list[str]:
    """The words, where a word without "=" becomes `setting`; a file of settings stays as it is.
    Where `several` are allowed, they become a list.
    """
    bare = [word for word in words if _is_bare(word)]
    given = [word for word in words if word.startswith(f"{setting}=")]
    if several and len(bare) > 1 and not given:
        others = [word for word in words if word not in bare]
        return [f"{setting}={spell(bare)}", *others]
    if bare and len(bare) + len(given) > 1:
        both = " ".join([*bare, *given])
        first = spell_word(f"{setting}={bare[0]}")
        fix = f"{first} alone, or <another setting>={spell_word(bare[-1])}"
        raise UsageError(f"{setting} is given more than once: {both}\n  fix: {fix}")
    return [f"{setting}={word}" if word in bare else word for word in words]


def refuse_cut_value(words: Sequence[str]) -> None:
    """Raise UsageError for words without "=" behind a setting, of a command where they have no
    meaning: the shell ended a value at its space.
    """
    for place, word in enumerate(words[1:], 1):
        if not _is_bare(word) or not is_setting(words[place - 1]):
            continue
        rest = list(takewhile(lambda word: not is_setting(word), words[place:]))
        problem = f"'{word}': has no =; the shell ends a value at a space that is not in quotes"
        raise UsageError(f"{problem}\n  fix: {spell_word(' '.join([words[place - 1], *rest]))}")


def sort_words(words: Sequence[str], *, resume: bool) -> tuple[str | None, list[str]]:
    """Split words into a recipe, which is the one word without "=", and overrides. With --resume
    this word may be the folder of the run.
    """
    bare = [word for word in words if not is_setting(word)]
    overrides = [word for word in words if word not in bare]
    if len(bare) > 1:
        fix = f"{spell_word(bare[0])} alone, or {spell_word(bare[1])}=<a value>"
        raise UsageError(
            f"only one recipe may be named; settings are key=value: {' '.join(bare)}\n  fix: {fix}"
        )
    if bare and resume and Path(bare[0]).is_dir():
        return None, [*overrides, f"run.dir={bare[0]}"]
    return (bare[0] if bare else None), overrides
