"""`plmctl finetune`."""

from __future__ import annotations

from plmctl.config.command import About, Command, Result
from plmctl.config.schema import Finetune


class FinetuneCommand(Finetune, Command):
    """Train a checkpoint, or a new model, on a labelled task."""

    about = About(
        "finetune",
        place=60,
        examples=(
            (
                "plmctl finetune task=sst2 task.path=glue/SST-2 checkpoint=runs/first"
                " run.dir=runs/sst2"
            ),
            (
                "plmctl finetune task=sst2 task.path=glue/SST-2 checkpoint=null size=tiny"
                " tokenizer.path=tokens train.steps=50"
            ),
        ),
        options="print_config dry_run resume multirun config_dir plugin json",
        slots="task mixing tuning features head_encoder output_features size model optim schedule",
        task="classification",
    )

    def perform(self) -> Result:
        """Do what the settings say."""
        from plmctl.runs.finetuning import finetune

        return finetune(self)

    def check(self) -> None:
        """Raise what does not fit, before anything is written."""
        from plmctl.runs.resolve import resolve_finetuning

        resolve_finetuning(self)
