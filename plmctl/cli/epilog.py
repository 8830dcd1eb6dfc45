"""What `plmctl <command> --help` ends with: examples, settings, and the options that conf/ and
recipes/ hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand

from plmctl.cli.console import Command
from plmctl.run.explained import explained
from plmctl.run.foreign import ours
from plmctl.run.recipes import conf_dir, described, recipes_dir
from plmctl.run.schema import VERBS as SCHEMAS
from plmctl.run.settings import settings

SETTINGS = "Settings (key=value; plmctl help <part> explains those of a part)"
BESIDES = "Settings (besides those of plmctl pretrain, or with task=<name> of plmctl finetune)"


class Verb(TyperCommand):
    """A command whose help ends with runnable examples and the options that conf/ and recipes/
    hold.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """As the library does, after a look for the two mistakes whose messages would lead
        astray.
        """
        known = [
            (name, param)
            for param in self.get_params(ctx)
            for name in (*param.opts, *param.secondary_opts)
        ]
        # an argument has its bare name
        options = {name: param for name, param in known if name.startswith("-")}
        for word, following in zip(args, [*args, ""][1:], strict=True):
            if word == "--":
                break
            name, equals, value = word.partition("=")
            option = options.get(name)
            if (
                option is not None
                and not getattr(option, "is_flag", False)
                and not equals
                and following in options
            ):
                needed = getattr(option, "metavar", None) or "value"
                ctx.fail(f"{name} needs a {needed} behind it, and {following} is an option")
            setting = (
                _setting(name, _verb(ctx)[1]) if option is None and word.startswith("--") else ""
            )
            if setting:
                value = (
                    value
                    if equals
                    else following
                    if following and not following.startswith("-")
                    else "..."
                )
                ctx.fail(
                    f"there is no option {name}: settings are written without dashes\n  fix:"
                    f" {_said(setting, value)}"
                )
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        about: Command = self.callback.command  # type: ignore[union-attr]
        _, verb = _verb(ctx)
        with formatter.section("Examples"):
            formatter.write("".join(f"  {line}\n" for line in about.examples))
        sections: list[tuple[str, Iterable[tuple[str, str]]]] = []
        if verb in SCHEMAS and verb != "convert":
            sections.append((SETTINGS, settings(verb)))
        if about.lists:
            title = "Recipes" if about.lists == "." else about.lists.capitalize()
            sections.append((title, described(recipes_dir() / about.lists)))
        if about.only:
            own = [line for line in settings("finetune") if line[0].partition("=")[0] in about.only]
            sections.append((BESIDES, own))
        if about.task:
            title = f"Settings of task={about.task} (of another: plmctl help task=<name>)"
            sections.append((title, _of_task(about.task)))
        sections += [(f"{slot}=", described(conf_dir() / slot)) for slot in about.slots]
        for title, lines in sections:
            with formatter.section(title):
                formatter.write_dl(lines or [("-", "")])


def _of_task(name: str) -> list[tuple[str, str]]:
    """(task.key=default, meaning) of a task, without those of the parts in it."""
    found = explained(conf_dir() / "task" / f"{name}.yaml", types=False)
    inner = tuple(f"{each.path}." for each in found if each.target and each.path != "task")
    own = [
        each
        for each in found
        if each.path.startswith("task.") and not each.target and not each.path.startswith(inner)
    ]
    return [
        (f"{each.path}={each.default}", each.meaning) for each in own if each.path != "task.name"
    ]


def _verb(ctx: Any) -> tuple[str, str]:
    """What stands behind `plmctl`, and the command whose settings it takes."""
    name = ctx.command_path.partition(" ")[2]
    return name, next((word for word in reversed(name.split()) if word in SCHEMAS), name)


def _setting(option: str, verb: str) -> str:
    """The setting that somebody means who writes it as an option, with a value where that is
    another one; or nothing.
    """
    schema = SCHEMAS.get("pretrain" if verb == "distill" else verb)
    top = set(schema()) if schema else set()
    key = option.lstrip("-").replace("-", "_")
    if key.partition(".")[0] in top:
        return key
    return ours(key, lambda name: name.partition(".")[0] in top)


def _said(setting: str, value: str) -> str:
    return setting if "=" in setting else f"{setting}={value}"
