"""`plmctl ablate`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer

from plmctl.config.command import RECIPE, About, Command, Result
from plmctl.config.launcher import set_launcher_apart
from plmctl.config.schema import Ablate
from plmctl.config.spec import Provenance

DryRun = Annotated[bool, typer.Option("--dry-run", help="Print jobs and cost. Run nothing.")]


class AblateCommand(Ablate, Command):
    """Compare several settings over several seeds (a study).

    The result is a table of means, differences and verdicts. The word `published` behind the name
    takes the study at the size of its paper: plmctl ablate bert_sizes published --dry-run.
    """

    about = About(
        "ablate",
        place=100,
        examples=(
            "plmctl ablate gpt_lstm --dry-run",
            "plmctl ablate gpt_lstm budget.steps=2 seeds=[0,1] out=studies/first",
        ),
        bare=RECIPE,
        metavar="STUDY",
        marks=(("published", "scale=published"),),
        options="print_config config_dir plugin json",
        own_options=(("dry_run", DryRun, False),),
        lists="studies",
    )

    starts_jobs = True

    @classmethod
    def read(cls, given: Provenance, **options: Any) -> Provenance:
        """Set the words apart that are of the launcher of the jobs."""
        return set_launcher_apart(replace(given, **options))

    def perform(self) -> Result:
        """Do what the settings say."""
        from plmctl.study.run import ablate

        return ablate(self)
