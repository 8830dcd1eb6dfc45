"""`plmctl data check`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer

from plmctl.cli.former import warn_of_former
from plmctl.config.command import About, Command, Result
from plmctl.config.schema import Check
from plmctl.config.spec import Provenance
from plmctl.core.spelling import spell_setting

Out = Annotated[str | None, typer.Option("--out", metavar="FILE", hidden=True)]


def choose_setting(words: Sequence[str]) -> str:
    """The setting that a path stands for: the files of a task where one is named."""
    return "task.path" if any(word.startswith("task=") for word in words) else "data.path"


class DataCheckCommand(Check, Command):
    """Check text, tokens or labelled files before a long run.

    PATH is text or a token directory, or with task=<name> the files of a task.
    """

    about = About(
        "data check",
        place=20,
        examples=(
            "plmctl data check tokens format=blocks format.max_length=64",
            "plmctl data check README.md tokenizer.path=tokens out=checked.md",
        ),
        bare=choose_setting,
        metavar="PATH",
        options="json print_config config_dir plugin",
        own_options=(("out", Out, None),),
        slots="task format",
    )

    @classmethod
    def read(cls, given: Provenance, out: str | None = None, **options: Any) -> Provenance:
        """Take --out, the former spelling of a setting."""
        if out is None:
            return given
        warn_of_former("--out", spell_setting("out", out))
        return replace(given, overrides=(*given.overrides, f"out={out}"))

    def perform(self) -> Result:
        """Do what the settings say."""
        from plmctl.report.data_check import check

        return check(self)
