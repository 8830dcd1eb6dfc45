"""`plmctl distill`."""

from __future__ import annotations

from plmctl.cli.declare import command
from plmctl.cli.options import (
    ConfigDir,
    DryRun,
    Json,
    Multirun,
    Plugin,
    PrintConfig,
    RecipeWords,
    Resume,
)
from plmctl.cli.start import start
from plmctl.run.spec import Provenance


@command(
    "distill",
    place=70,
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
)
def distill(
    words: RecipeWords = None,
    print_config: PrintConfig = False,
    dry_run: DryRun = False,
    resume: Resume = False,
    multirun: Multirun = False,
    config_dir: ConfigDir = None,
    plugin: Plugin = None,
    as_json: Json = False,
) -> None:
    """Train a smaller model to imitate a teacher.

    teacher=<a run or a Hugging Face folder>. With task=<name> the data are labelled.
    """
    from plmctl.run.distill_words import as_training

    given = Provenance("distill", dry_run=dry_run, resume=resume, json=as_json)
    told = {"print_config": print_config, "multirun": multirun}
    start(given, words, config_dir, plugin, complete=as_training, **told)
