"""`plmctl finetune`."""

from __future__ import annotations

from typing import Any

from plmctl.cli.declare import command
from plmctl.cli.options import Words
from plmctl.cli.start import start


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
    slots="task mixing tuning features head_encoder output_features size model optim schedule",
    task="classification",
    options="print_config dry_run resume multirun config_dir plugin json",
)
def finetune(words: Words = None, **options: Any) -> None:
    """Train a checkpoint, or a new model, on a labelled task."""
    start("finetune", words, **options)
