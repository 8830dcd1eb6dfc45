"""`plmctl eval`."""

from __future__ import annotations

from typing import Annotated

import typer

from plmctl.cli.declare import command
from plmctl.cli.options import ConfigDir, Json, Multirun, Plugin, PrintConfig, Words
from plmctl.cli.start import start
from plmctl.run.spec import Provenance

Submission = Annotated[
    bool, typer.Option("--submission", help="Write the files that GLUE's server accepts.")
]


@command(
    "eval",
    place=80,
    examples=(
        "plmctl eval checkpoint=runs/sst2 --json",
        "plmctl eval checkpoint=runs/first task=lm data.path=README.md",
    ),
    slots="task",
)
def evaluate(
    words: Words = None,
    as_json: Json = False,
    submission: Submission = False,
    print_config: PrintConfig = False,
    multirun: Multirun = False,
    config_dir: ConfigDir = None,
    plugin: Plugin = None,
) -> None:
    """Score a checkpoint, label new texts, or measure perplexity.

    A checkpoint is scored on the task that it was fine-tuned on. input=FILE labels the texts of a
    file, task=lm measures perplexity.
    """
    given = Provenance("eval", json=as_json, submission=submission)
    start(given, words, config_dir, plugin, print_config=print_config, multirun=multirun)
