"""`plmctl self-train`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from plmctl.cli.completion import suggest_words
from plmctl.cli.verb import collect_options
from plmctl.config.command import About, Tool

Settings = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE",
        show_default=False,
        help="Settings of the rounds, and of plmctl finetune.",
        autocompletion=suggest_words,
    ),
]


class SelfTrainCommand(Tool):
    """Fine-tune on few labels and many texts without: a teacher labels them for a student.

    input=FILE names the texts. With rounds=3 the student is the next teacher, three times.
    The setting threshold=0.9 passes over texts whose label is less probable. The setting share=0.5
    takes the surest half of each label. The folder is out=FOLDER. All other settings are those of
    plmctl finetune.

    Start the same command again to continue: finished steps are kept.
    """

    about = About(
        "self-train",
        place=65,
        examples=(
            (
                "plmctl self-train task=classification task.path=builtin checkpoint=null"
                " size=tiny tokenizer=char train.steps=50 input=README.md rounds=2"
                " threshold=0.9 --dry-run"
            ),
            (
                "plmctl self-train task=classification task.path=builtin checkpoint=null"
                " size=tiny tokenizer=char train.steps=50 input=README.md"
                " out=self-trained/first"
            ),
        ),
        takes="finetune",
        options="json config_dir plugin",
    )

    @staticmethod
    def perform(
        settings: Settings = None,
        dry_run: Annotated[
            bool, typer.Option("--dry-run", help="Print the commands. Run nothing.")
        ] = False,
        **options: Any,
    ) -> None:
        from plmctl.chain.self_training import self_train as run

        raise typer.Exit(
            run(settings or [], collect_options("finetune", dry_run=dry_run, **options))
        )
