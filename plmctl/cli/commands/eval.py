"""`plmctl eval`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from plmctl.cli.declare import command
from plmctl.cli.options import RunWords
from plmctl.cli.start import start

Submission = Annotated[
    bool,
    typer.Option("--submission", help="Write the files that the leader board of the task accepts."),
]


@command(
    "eval",
    place=80,
    bare="checkpoint",
    examples=(
        "plmctl eval checkpoint=runs/sst2 --json",
        "plmctl eval checkpoint=runs/first task=lm data.path=README.md",
    ),
    slots="task",
    options="json print_config multirun config_dir plugin",
)
def evaluate(words: RunWords = None, submission: Submission = False, **options: Any) -> None:
    """Score a checkpoint, label new texts, or measure perplexity.

    A checkpoint is scored on the task that it was fine-tuned on. input=FILE labels the texts of a
    file, task=lm measures perplexity.
    """
    start("eval", words, submission=submission, **options)
