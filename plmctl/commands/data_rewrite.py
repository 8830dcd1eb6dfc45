"""`plmctl data rewrite`."""

from __future__ import annotations

from plmctl.config.command import About, Command, Result
from plmctl.config.writing import Rewrite


class DataRewriteCommand(Rewrite, Command):
    """Write a training set whose targets a trained model wrote.

    A student that learns from it imitates this model (sequence-level distillation).
    """

    about = About(
        "data rewrite",
        place=40,
        examples=(
            "plmctl data rewrite checkpoint=runs/en-de out=en-de-rewritten",
            (
                "plmctl data rewrite checkpoint=runs/en-de pick=nearest search.width=3"
                " search.count=3 out=en-de-nearest"
            ),
        ),
        options="json print_config config_dir plugin",
        slots="task search",
    )

    def perform(self) -> Result:
        """Do what the settings say."""
        from plmctl.datasets.rewrite import rewrite

        return rewrite(self)
