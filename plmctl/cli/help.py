"""What `plmctl <command> --help` ends with: examples, settings, and the options that conf/ and
recipes/ hold.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from typer.core import TyperCommand

from plmctl.cli.examples import EXAMPLES
from plmctl.run.explained import explained
from plmctl.run.foreign import ours
from plmctl.run.lesson import LESSON
from plmctl.run.recipes import STUDIES, conf_dir, described, recipes_dir
from plmctl.run.schema import VERBS as SCHEMAS
from plmctl.run.settings import settings

GROUPS = {  # the slots whose options a verb's --help lists
    "tokenize": ("tokenizer",),
    "pretrain": (
        "size",
        "tokenizer",
        "format",
        "noise",
        "pattern",
        "position",
        "model",
        "objective",
        "optim",
        "schedule",
    ),
    "distill": ("distill", "task"),
    "finetune": (
        "task",
        "features",
        "head_encoder",
        "output_features",
        "size",
        "model",
        "optim",
        "schedule",
    ),
    "eval": ("task",),
    "data check": ("task", "format"),
    "data augment": ("task",),
    "data rewrite": ("task", "search"),
    "generate": ("search",),
}


# the task whose settings a verb's --help shows, as an example
OF_TASKS = {"finetune": "classification"}


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
        name, verb = _verb(ctx)
        with formatter.section("Examples"):
            formatter.write("".join(f"  {line}\n" for line in EXAMPLES[name]))
        if verb in SCHEMAS:
            with formatter.section(
                "Settings (key=value; plmctl help <part> explains those of a part)"
            ):
                formatter.write_dl(settings(verb))
        if name == "pretrain":
            with formatter.section("Recipes"):
                formatter.write_dl(described(recipes_dir()) or [("-", "")])
        if name == "ablate":
            with formatter.section("Studies"):
                formatter.write_dl(described(recipes_dir() / STUDIES) or [("-", "")])
        if name == "distill":
            with formatter.section(
                "Settings (besides those of plmctl pretrain,"
                " or with task=<name> of plmctl finetune)"
            ):
                formatter.write_dl(
                    line for line in settings("finetune") if line[0].partition("=")[0] in LESSON
                )
        if task := OF_TASKS.get(name):
            with formatter.section(
                f"Settings of task={task} (of another: plmctl help task=<name>)"
            ):
                formatter.write_dl(_of_task(task))
        for group in GROUPS.get(name, ()):
            with formatter.section(f"{group}="):
                formatter.write_dl(described(conf_dir() / group) or [("-", "")])


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
    top = {field.name for field in dataclasses.fields(schema)} if schema else set()
    key = option.lstrip("-").replace("-", "_")
    if key.partition(".")[0] in top:
        return key
    return ours(key, lambda name: name.partition(".")[0] in top)


def _said(setting: str, value: str) -> str:
    return setting if "=" in setting else f"{setting}={value}"
