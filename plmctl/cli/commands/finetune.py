"""`plmctl finetune`."""

from __future__ import annotations

from plmctl.cli.declare import command
from plmctl.cli.options import ConfigDir, DryRun, Json, Multirun, Plugin, PrintConfig, Resume, Words
from plmctl.cli.start import start
from plmctl.run.spec import Provenance


@command(
    "finetune",
    place=60,
    examples=(
        "plmctl finetune task=sst2 task.path=glue/SST-2 checkpoint=runs/first run.dir=runs/sst2",
        (
            "plmctl finetune task=sst2 task.path=glue/SST-2 checkpoint=null size=tiny"
            " tokenizer.path=tokens train.steps=50"
        ),
    ),
    slots="task features head_encoder output_features size model optim schedule",
    task="classification",
)
def finetune(
    words: Words = None,
    print_config: PrintConfig = False,
    dry_run: DryRun = False,
    resume: Resume = False,
    multirun: Multirun = False,
    config_dir: ConfigDir = None,
    plugin: Plugin = None,
    as_json: Json = False,
) -> None:
    """Train a checkpoint, or a new model, on a labelled task."""
    given = Provenance("finetune", dry_run=dry_run, resume=resume, json=as_json)
    start(given, words, config_dir, plugin, print_config=print_config, multirun=multirun)
