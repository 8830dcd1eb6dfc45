"""`plmctl distill`."""

from __future__ import annotations

from typing import Any

from plmctl.cli.declare import RECIPE, command
from plmctl.cli.options import RecipeWords
from plmctl.cli.start import start


@command(
    "distill",
    place=70,
    bare=RECIPE,
    examples=(
        (
            "plmctl distill task=sst2 task.path=glue/SST-2 teacher=runs/sst2"
            " kept_layers=first1 run.dir=runs/small"
        ),
        (
            "plmctl distill bert teacher=runs/first size=tiny size.num_layers=1"
            " train.steps=10 run.dir=runs/student"
        ),
    ),
    slots="distill task",
    only=("teacher", "teacher_cache", "kept_layers"),
    options="print_config dry_run resume multirun config_dir plugin json",
)
def distill(words: RecipeWords = None, **options: Any) -> None:
    """Train a smaller model to imitate a teacher.

    teacher=<a run or a Hugging Face folder>. With task=<name> the data are labelled.
    """
    from plmctl.runs.distill_words import as_training

    start("distill", words, complete=as_training, **options)
