"""`plmctl distill`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from plmctl.config.command import RECIPE, About, Command, Result
from plmctl.config.spec import Provenance

if TYPE_CHECKING:
    from plmctl.config.schema import Finetune, Pretrain


class DistillCommand(Command):
    """Train a smaller model to imitate a teacher.

    teacher=<a run or a Hugging Face folder>. With task=<name> the data are labelled.
    """

    about = About(
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
        bare=RECIPE,
        metavar="RECIPE",
        options="print_config dry_run resume multirun config_dir plugin json",
        slots="distill task",
        takes="pretrain",
        only=("teacher", "teacher_cache", "kept_layers"),
    )

    @classmethod
    def read(cls, given: Provenance, **options: Any) -> Provenance:
        """Turn the words into those of the training that imitates the teacher."""
        from plmctl.runs.distill_words import as_training

        return as_training(given)

    def perform(self) -> Result:
        """Do what the settings say."""
        from plmctl.runs.distilling import distill

        # the words became those of the training that imitates
        return distill(cast("Finetune | Pretrain", self))
