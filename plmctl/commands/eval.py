"""`plmctl eval`."""

from __future__ import annotations

from typing import Annotated

import typer

from plmctl.config.command import About, Command, Result
from plmctl.config.uses import Evaluate

Submission = Annotated[
    bool,
    typer.Option("--submission", help="Write the files that the leader board of the task accepts."),
]


class EvalCommand(Evaluate, Command):
    """Score a checkpoint, label new texts, or measure perplexity.

    A checkpoint is scored on the task that it was fine-tuned on. input=FILE labels the texts of a
    file, task=lm measures perplexity.
    """

    about = About(
        "eval",
        place=80,
        examples=(
            "plmctl eval checkpoint=runs/sst2 --json",
            "plmctl eval checkpoint=runs/first task=lm data.path=README.md",
        ),
        bare="checkpoint",
        metavar="RUN",
        options="json print_config multirun config_dir plugin",
        own_options=(("submission", Submission, False),),
        slots="task runtime",
    )

    def perform(self) -> Result:
        """Do what the settings say."""
        from plmctl.probes.evaluate import evaluate

        return evaluate(self)
