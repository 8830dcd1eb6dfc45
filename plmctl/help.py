"""What `plmctl <command> --help` ends with: examples, settings, and the options that conf/ and recipes/ hold."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

from plmctl.config.lesson import LESSON
from plmctl.config.recipes import STUDIES, conf_dir, described, recipes_dir
from plmctl.config.schema import VERBS as SCHEMAS
from plmctl.config.settings import settings
from plmctl.examples import EXAMPLES

GROUPS = {  # the slots whose options a verb's --help lists
    "tokenize": ("tokenizer",),
    "pretrain": ("size", "tokenizer", "format", "noise", "pattern", "position", "model", "objective", "optim", "schedule"),
    "distill": ("distill", "task"),
    "finetune": ("task", "features", "head_encoder", "output_features", "size", "model", "optim", "schedule"),
    "eval": ("task",),
    "data check": ("task", "format"),
    "data augment": ("task",),
    "data rewrite": ("task", "search"),
    "generate": ("search",),
}


class Verb(TyperCommand):
    """A command whose help ends with runnable examples and the options that conf/ and recipes/ hold."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        name = ctx.command_path.partition(" ")[2]
        verb = next((word for word in reversed(name.split()) if word in SCHEMAS), name)
        with formatter.section("Examples"):
            formatter.write("".join(f"  {line}\n" for line in EXAMPLES[name]))
        if verb in SCHEMAS:
            with formatter.section("Settings (key=value; --print-config shows all, those of parts too)"):
                formatter.write_dl(settings(verb))
        if name == "pretrain":
            with formatter.section("Recipes"):
                formatter.write_dl(described(recipes_dir()) or [("-", "")])
        if name == "ablate":
            with formatter.section("Studies"):
                formatter.write_dl(described(recipes_dir() / STUDIES) or [("-", "")])
        if name == "distill":
            with formatter.section("Settings (besides those of plmctl pretrain, or with task=<name> of plmctl finetune)"):
                formatter.write_dl(line for line in settings("finetune") if line[0].partition("=")[0] in LESSON)
        for group in GROUPS.get(name, ()):
            with formatter.section(f"{group}="):
                formatter.write_dl(described(conf_dir() / group) or [("-", "")])
