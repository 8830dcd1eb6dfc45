"""`plmctl bases make`."""

from __future__ import annotations

import shlex
from typing import Annotated, Any

import typer

from plmctl.cli.options import PrintConfig
from plmctl.cli.start import start
from plmctl.cli.verb import read_line
from plmctl.config.command import About, Tool, find_command
from plmctl.core.errors import UsageError, nearest
from plmctl.core.terminal import tell


class BasesMakeCommand(Tool):
    """Pretrain the small model that the studies of its kind begin with (start=KIND).

    It is an ordinary run of plmctl pretrain in the cache folder, at the path that is printed, and
    is made once. Start the same command again to continue one that was stopped.
    """

    about = About(
        "bases make",
        place=102,
        examples=(
            "plmctl bases make encoder train.steps=20",
            "plmctl bases make decoder train.steps=20",
        ),
        takes="pretrain",
        options="config_dir plugin json",
    )

    @staticmethod
    def perform(
        kind: Annotated[str, typer.Argument(metavar="KIND", help="encoder, decoder or seq2seq.")],
        words: Annotated[
            list[str] | None,
            typer.Argument(
                metavar="KEY=VALUE", help="Settings of the pretraining, data.path=wiki/."
            ),
        ] = None,
        print_config: PrintConfig = False,
        **options: Any,
    ) -> None:
        from plmctl.study.bases import BASES, find_base, find_state

        if kind not in BASES:
            known = ", ".join(BASES)
            raise UsageError(
                f"there is no base '{kind}'{nearest(kind, BASES)}; there are {known}"
                f"\n  fix: plmctl bases make {next(iter(BASES))}"
            )
        base = BASES[kind]
        caches = [
            word.partition("=")[2] for word in words or () if word.startswith("data.cache_dir=")
        ]
        folder = find_base(kind, caches[-1] if caches else None)
        tell(f"base: {folder}")
        state, pretrain = find_state(folder), find_command("pretrain")
        if state == "not made":
            line = [base.recipe, *base.words, *(words or ()), f"run.dir={folder}"]
            given = read_line(pretrain.about, line, **options)
            start(pretrain, given, print_config=print_config)
        if state != "finished":
            given = read_line(pretrain.about, [f"run.dir={folder}"], resume=True, **options)
            start(pretrain, given, print_config=print_config)
        if words:
            raise UsageError(f"{folder}: is made already\n  fix: rm -r {shlex.quote(str(folder))}")
